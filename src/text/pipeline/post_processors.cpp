#include "text/pipeline/post_processors.h"

#include <algorithm>

#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestId = std::int64_t{1} << 30;
// Of a template, which names a token of many ids in a few bytes. Published ones have 5 ids and 3 texts.
constexpr std::size_t kMostTemplateIds = std::size_t{1} << 16, kMostTexts = 16;

Item special_item(std::int32_t id, std::int32_t type) {
  return {.id = id, .type = type, .special = true};
}

std::uint32_t forward(std::string_view text, std::uint32_t at, std::uint32_t characters, std::uint32_t end) {
  if (at < end && characters >= end - at) return end;
  for (; characters > 0 && at < end; --characters)
    at += static_cast<std::uint32_t>(decode_utf8(text, at).bytes);
  return std::min(at, end);
}

std::uint32_t backward(std::string_view text, std::uint32_t at, std::uint32_t characters,
                       std::uint32_t begin) {
  for (; characters > 0 && at > begin; --characters) {
    do --at;
    while (at > begin && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u);
  }
  return at;
}

// Takes the blanks of tokens out of their places, but for the one that was put before the text.
void trim(std::vector<Items>& parts, std::span<const std::string_view> texts, bool add_prefix_space) {
  for (Items& part : parts) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      Item& item = part[i];
      if (item.text < 0) continue;
      const std::string_view text = texts[static_cast<std::size_t>(item.text)];
      const bool first = i == 0 || item.place.begin == 0;
      if (!(first && add_prefix_space && item.blanks_before == 1))
        item.place.begin = forward(text, item.place.begin, item.blanks_before, item.place.end);
      item.place.end = backward(text, item.place.end, item.blanks_behind, item.place.begin);
    }
  }
}

void apply(const TemplateProcessing& processing, std::vector<Items>& parts, std::span<const std::string_view>,
           bool add_special) {
  std::vector<Items> result;
  for (const TemplateProcessing::Slot& slot : parts.size() == 1 ? processing.single : processing.pair) {
    Items items;
    if (slot.text >= 0) {
      items = parts[static_cast<std::size_t>(slot.text)];
      for (Item& item : items) item.type = slot.type;
    } else if (add_special) {
      for (const std::int32_t id : slot.ids) items.push_back(special_item(id, slot.type));
    }
    result.push_back(std::move(items));
  }
  parts = std::move(result);
}

void apply(const ClsSepProcessing& processing, std::vector<Items>& parts,
           std::span<const std::string_view> texts, bool add_special) {
  if (processing.trim_offsets) trim(parts, texts, processing.add_prefix_space);
  if (processing.roberta) {
    for (Items& part : parts) {
      for (Item& item : part) item.type = 0;
    }
  }
  if (!add_special) return;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int32_t type = processing.roberta ? 0 : static_cast<std::int32_t>(i);
    if (i == 0) parts[i].insert(parts[i].begin(), special_item(processing.cls, type));
    if (i > 0 && processing.roberta) parts[i].insert(parts[i].begin(), special_item(processing.sep, type));
    parts[i].push_back(special_item(processing.sep, type));
  }
}

void apply(const ByteLevel& options, std::vector<Items>& parts, std::span<const std::string_view> texts,
           bool) {
  if (options.trim_offsets) trim(parts, texts, options.add_prefix_space);
}

void apply(const PostProcessorSequence& sequence, std::vector<Items>& parts,
           std::span<const std::string_view> texts, bool add_special) {
  for (const PostProcessor& part : sequence.parts) part.apply(parts, texts, add_special);
}

std::vector<std::int32_t> read_ids(const Fields& token) {
  const json &ids = token.array("ids"), &tokens = token.array("tokens");
  std::vector<std::int32_t> result;
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(kLargestId))
      token.where("ids").at(result.size()).expected("a whole number from 0 on", id);
    result.push_back(id.get<std::int32_t>());
  }
  if (tokens.size() != result.size())
    token.where("tokens").fail("expected " + std::to_string(result.size()) + ", as many as ids, got " +
                               std::to_string(tokens.size()));
  return result;
}

TemplateProcessing::Slot read_slot(const json& value, const Where& where, const Fields& special, bool pair) {
  const Fields slot(value, where, {"Sequence", "SpecialToken"});
  const bool is_text = slot.has("Sequence");
  if (is_text == slot.has("SpecialToken")) where.fail("expected Sequence or SpecialToken");
  const std::string_view key = is_text ? "Sequence" : "SpecialToken";
  const Fields fields(slot.at(key), slot.where(key), {"id", "type_id"});
  TemplateProcessing::Slot result{.type = static_cast<std::int32_t>(fields.number("type_id", kLargestId))};
  if (is_text) {
    result.text = static_cast<int>(fields.one_of("id", {"A", "B"}));
    if (result.text == 1 && !pair) fields.where("id").fail("is B, and there is one text");
    return result;
  }
  const std::string id = fields.string("id");
  const json& tokens = special.at("special_tokens");
  if (!tokens.is_object()) special.where("special_tokens").expected("an object", tokens);
  const auto found = tokens.find(id);
  const Where token = special.where("special_tokens").at(id);
  if (found == tokens.end()) token.fail("is missing, and a template uses it");
  result.ids = read_ids(Fields(*found, token, {"id", "ids", "tokens"}));
  return result;
}

PostProcessor read_template(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "single", "pair", "special_tokens"});
  TemplateProcessing processing;
  std::size_t ids = 0;
  for (const bool pair : {false, true}) {
    const char* key = pair ? "pair" : "single";
    auto& slots = pair ? processing.pair : processing.single;
    std::size_t texts = 0;
    for (const json& slot : fields.array(key)) {
      slots.push_back(read_slot(slot, fields.where(key).at(slots.size()), fields, pair));
      ids += slots.back().ids.size();
      if (ids > kMostTemplateIds)
        where.fail("expected at most " + std::to_string(kMostTemplateIds) +
                   " ids in its templates, got more");
      texts += slots.back().text >= 0;
      if (texts > kMostTexts)
        fields.where(key).fail("expected at most " + std::to_string(kMostTexts) + " texts, got more");
    }
  }
  return {std::move(processing)};
}

// ["[SEP]", 102]
std::int32_t read_token(const Fields& fields, std::string_view key) {
  const json& token = fields.array(key);
  if (token.size() != 2 || !token[0].is_string() || !token[1].is_number_unsigned() || token[1] > kLargestId)
    fields.where(key).fail("expected a token and its id");
  return token[1].get<std::int32_t>();
}

bool adds_tokens(const PostProcessor& processor) {
  return !std::holds_alternative<ByteLevel>(processor.kind);
}

PostProcessor read_post_processors(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "processors"});
  PostProcessorSequence sequence;
  for (const json& part : fields.array("processors"))
    sequence.parts.push_back(read_post_processor(part, fields.where("processors").at(sequence.parts.size())));
  if (std::count_if(sequence.parts.begin(), sequence.parts.end(), adds_tokens) > 1)
    where.fail("has more than one part that adds tokens");
  return {std::move(sequence)};
}

}  // namespace

std::uint32_t blanks_before(std::string_view token) {
  std::uint32_t count = 0;
  for (std::size_t at = 0; at < token.size(); ++count) {
    const CodePoint point = decode_utf8(token, at);
    if (point.value != U'\u0120' && !is_white_space(point.value)) break;
    at += static_cast<std::size_t>(point.bytes);
  }
  return count;
}

std::uint32_t blanks_behind(std::string_view token) {
  std::uint32_t count = 0;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint point = decode_utf8(token, at);
    count = point.value == U'\u0120' || is_white_space(point.value) ? count + 1 : 0;
    at += static_cast<std::size_t>(point.bytes);
  }
  return count;
}

std::size_t PostProcessor::added(std::size_t texts) const {
  if (const auto* processing = std::get_if<TemplateProcessing>(&kind)) {
    std::size_t count = 0;
    for (const auto& slot : texts == 1 ? processing->single : processing->pair) count += slot.ids.size();
    return count;
  }
  if (const auto* processing = std::get_if<ClsSepProcessing>(&kind))
    return texts == 1 ? 2 : processing->roberta ? 4 : 3;
  std::size_t count = 0;
  if (const auto* sequence = std::get_if<PostProcessorSequence>(&kind)) {
    for (const PostProcessor& part : sequence->parts) count += part.added(texts);
  }
  return count;
}

void PostProcessor::apply(std::vector<Items>& parts, std::span<const std::string_view> texts,
                          bool add_special) const {
  std::visit([&](const auto& of_kind) { pipeline::apply(of_kind, parts, texts, add_special); }, kind);
}

PostProcessor read_post_processor(const json& value, const Where& where) {
  const std::string type = type_of(value, where);
  if (type == "TemplateProcessing") return read_template(value, where);
  if (type == "ByteLevel") return {read_byte_level(value, where)};
  if (type == "Sequence") return read_post_processors(value, where);
  if (type == "BertProcessing") {
    const Fields fields(value, where, {"type", "sep", "cls"});
    return {ClsSepProcessing{.cls = read_token(fields, "cls"), .sep = read_token(fields, "sep")}};
  }
  if (type == "RobertaProcessing") {
    const Fields fields(value, where, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    return {ClsSepProcessing{.cls = read_token(fields, "cls"),
                             .sep = read_token(fields, "sep"),
                             .roberta = true,
                             .trim_offsets = fields.boolean("trim_offsets"),
                             .add_prefix_space = fields.boolean("add_prefix_space")}};
  }
  where.at("type").expected("TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence",
                            value["type"]);
}

}  // namespace fovea::text::pipeline
