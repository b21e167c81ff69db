#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/head_texts.h"
#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "fovea/models/heads.h"

namespace fovea::cli {
namespace {

using nlohmann::ordered_json;

struct FillCommand {
  HeadOptions head;
  std::size_t top_k = 5;
};

std::vector<std::int64_t> masks_of(const text::Encoding& encoding, std::int32_t mask) {
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    if (encoding.ids[i] == mask) rows.push_back(static_cast<std::int64_t>(i));
  }
  return rows;
}

struct Filling {
  std::int32_t id = 0;
  double probability = 0.0;
  std::string token, text;
};

// The best tokens for one mask, and the text with each. Other masks stay in it.
std::vector<Filling> fillings(const HeadModel& model, const text::Encoding& encoding, std::int64_t row,
                              std::span<const float> logits, const FillCommand& o, bool only_mask) {
  const std::vector<double> scores = models::scores_of(models::ScoreFunction::softmax, logits);
  std::vector<std::int32_t> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const std::size_t count = std::min(o.top_k, order.size());
  const auto score = [&](std::int32_t id) { return scores[static_cast<std::size_t>(id)]; };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::int32_t a, std::int32_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
  std::vector<Filling> best;
  for (const std::int32_t id : std::span(order).first(count)) {
    std::vector<std::int32_t> ids = encoding.ids;
    ids[static_cast<std::size_t>(row)] = id;
    using Special = text::JsonTokenizer::SpecialTokens;
    const Special special = only_mask ? Special::skip : Special::keep;
    best.push_back({id, score(id), model.tokenizer().decode({&id, 1}, Special::keep),
                    model.tokenizer().decode(ids, special)});
  }
  return best;
}

void print(const FillCommand& o, const std::vector<Filling>& best) {
  for (const Filling& filling : best)
    fmt::print("{:.4f}\t{}\t{}\n", filling.probability, filling.token, filling.text);
  if (o.top_k != 1) fmt::print("\n");
}

ordered_json json_of(const text::ByteRange& place, const std::vector<Filling>& best) {
  ordered_json list = ordered_json::array();
  for (const Filling& filling : best)
    list.push_back({{"token", filling.token},
                    {"id", filling.id},
                    {"score", filling.probability},
                    {"text", filling.text}});
  return {{"begin", place.begin}, {"end", place.end}, {"tokens", list}};
}

void run(const FillCommand& o) {
  const HeadModel model(o.head, "fovea fill", {models::FamilyHead::masked});
  if (!model.read().mask_id)
    throw FileError(o.head.model, -1,
                    "has a tokenizer without a mask_token, which marks what is to be filled");
  const std::int32_t mask = *model.read().mask_id;
  const auto encode = [&](const std::string& text) {
    std::vector<text::Encoding> sequences{model.encode(text)};
    if (masks_of(sequences[0], mask).empty())
      throw InvalidArgument("fovea fill", "text", "a text with " + model.tokenizer().token(mask),
                            "'" + excerpt(text) + "'");
    return sequences;
  };
  const auto print_text = [&](const text::CheckedLine& line, std::span<const text::Encoding> sequences,
                              std::span<const Tensor> logits) {
    const text::Encoding& sequence = sequences[0];
    const std::vector<std::int64_t> rows = masks_of(sequence, mask);
    const auto width = static_cast<std::size_t>(logits[0].shape()[1]);
    ordered_json masks = ordered_json::array();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<Filling> best = fillings(
          model, sequence, rows[i], {logits[0].data<float>() + i * width, width}, o, rows.size() == 1);
      if (o.head.json)
        masks.push_back(json_of(sequence.offsets[static_cast<std::size_t>(rows[i])], best));
      else
        print(o, best);
    }
    if (o.head.json) print_line({{"line", line.number}, {"text", line.text}, {"masks", masks}});
  };
  model.answer(o.head, {.encode = encode,
                        .print = print_text,
                        .rows = [mask](const text::Encoding& encoding) { return masks_of(encoding, mask); }});
}

}  // namespace

void register_fill(Command app) {
  auto o = std::make_shared<FillCommand>();
  Command command = app.add_subcommand("fill", "Say which words fit in the place of a mask");
  command.footer(bad_lines_help);
  add_head_options(command, o->head, "texts with the mask token of the model");
  command.add_option("--top-k", o->top_k, "tokens for each mask, the best first").check(positive());
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
