#include "text/pipeline/limits.h"

#include <algorithm>

#include "fovea/core/error.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

constexpr std::int64_t kLongest = std::int64_t{1} << 40;
// A padded encoding of this length costs some 60 MB.
constexpr std::int64_t kMostPadding = std::int64_t{1} << 20;

void cut(Items& items, std::size_t most, Truncation::Side side) {
  if (items.size() <= most) return;
  const auto dropped = static_cast<std::ptrdiff_t>(items.size() - most);
  if (side == Truncation::Side::left)
    items.erase(items.begin(), items.begin() + dropped);
  else
    items.erase(items.end() - dropped, items.end());
}

}  // namespace

void Truncation::apply(std::vector<Items>& parts, std::size_t most) const {
  std::size_t total = 0;
  for (const Items& part : parts) total += part.size();
  if (total <= most) return;
  if (strategy == Strategy::longest_first) {
    if (parts.size() == 1) return cut(parts[0], most, side);
    // The shorter text keeps all its items if that leaves the other at least as many.
    const bool first_is_shorter = parts[0].size() <= parts[1].size();
    Items &shorter = parts[first_is_shorter ? 0 : 1], &longer = parts[first_is_shorter ? 1 : 0];
    const std::size_t kept = std::min(shorter.size(), most / 2);
    cut(shorter, kept, side);
    cut(longer, most - kept, side);
    return;
  }
  const std::size_t which = strategy == Strategy::only_first ? 0 : 1;
  if (which >= parts.size())
    throw InvalidArgument("encode", "texts", "two, because truncation cuts the second", "one");
  const std::size_t others = total - parts[which].size();
  if (others >= most)
    throw InvalidArgument("encode", "texts",
                          "less than " + std::to_string(most) + " ids in the text that is kept",
                          std::to_string(others));
  cut(parts[which], most - others, side);
}

void Padding::apply(Items& items) const {
  std::size_t length = std::max(items.size(), static_cast<std::size_t>(length_for(items.size())));
  const std::size_t missing = length - items.size();
  items.insert(left ? items.begin() : items.end(), missing, Item{.id = id, .type = type, .special = true});
}

std::int64_t Padding::length_for(std::size_t size) const {
  const std::int64_t longest = length > 0 ? length : static_cast<std::int64_t>(size);
  return (longest + multiple_of - 1) / multiple_of * multiple_of;
}

std::optional<Truncation> read_truncation(const json& value, const Where& where) {
  if (value.is_null()) return std::nullopt;
  const Fields fields(value, where, {"direction", "max_length", "strategy", "stride"});
  fields.number("stride", kLongest);  // of the windows behind the first one, which are not made here
  Truncation truncation{.max_length = fields.number("max_length", kLongest)};
  truncation.strategy = static_cast<Truncation::Strategy>(
      fields.one_of("strategy", {"LongestFirst", "OnlyFirst", "OnlySecond"}));
  if (fields.has("direction"))
    truncation.side = static_cast<Truncation::Side>(fields.one_of("direction", {"Right", "Left"}));
  return truncation;
}

std::optional<Padding> read_padding(const json& value, const Where& where) {
  if (value.is_null()) return std::nullopt;
  const Fields fields(value, where,
                      {"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  Padding padding;
  fields.string("pad_token");
  if (const json& strategy = fields.at("strategy"); strategy.is_object())
    padding.length = Fields(strategy, fields.where("strategy"), {"Fixed"}).number("Fixed", kMostPadding);
  else if (strategy != "BatchLongest")
    fields.where("strategy").expected("BatchLongest or Fixed", strategy);
  if (fields.has("pad_to_multiple_of"))
    padding.multiple_of = std::max<std::int64_t>(1, fields.number("pad_to_multiple_of", kMostPadding));
  padding.left = fields.one_of("direction", {"Right", "Left"}) == 1;
  padding.id = static_cast<std::int32_t>(fields.number("pad_id", 1 << 30));
  padding.type = static_cast<std::int32_t>(fields.number("pad_type_id", 1 << 30));
  return padding;
}

}  // namespace fovea::text::pipeline
