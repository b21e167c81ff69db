#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/head_texts.h"
#include "fovea/models/heads.h"

namespace fovea::cli {
namespace {

using models::TagJoin;
using nlohmann::ordered_json;

struct TagCommand {
  HeadOptions head;
  TagJoin join = TagJoin::first;
};

// Rows of the ids that stand for text: the template's have no label.
std::vector<std::int64_t> text_rows(const text::Encoding& encoding) {
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    if (encoding.special[i] == 0) rows.push_back(static_cast<std::int64_t>(i));
  }
  return rows;
}

std::vector<models::TokenPlace> places_of(const text::JsonTokenizer& tokenizer, const std::string& text,
                                          const text::Encoding& encoding) {
  const std::vector<bool> begins = tokenizer.word_begins(text, encoding);
  std::vector<models::TokenPlace> places;
  for (const std::int64_t row : text_rows(encoding)) {
    const auto i = static_cast<std::size_t>(row);
    places.push_back({encoding.offsets[i].begin, encoding.offsets[i].end, begins[i]});
  }
  return places;
}

void print(const TagCommand& o, const text::CheckedLine& line, const std::vector<models::TaggedSpan>& spans) {
  ordered_json list = ordered_json::array();
  for (const models::TaggedSpan& span : spans) {
    const std::string words = line.text.substr(span.begin, span.end - span.begin);
    if (o.head.json)
      list.push_back({{"label", span.label},
                      {"score", span.score},
                      {"begin", span.begin},
                      {"end", span.end},
                      {"words", words}});
    else
      fmt::print("{:.4f}\t{}\t{}-{}\t{}\n", span.score, span.label, span.begin, span.end, words);
  }
  if (o.head.json)
    print_line({{"line", line.number}, {"text", line.text}, {"spans", list}});
  else
    fmt::print("\n");
}

void run(const TagCommand& o) {
  const HeadModel model(o.head, "fovea tag", {models::FamilyHead::token_labels});
  const auto print_text = [&](const text::CheckedLine& line, std::span<const text::Encoding> sequences,
                              std::span<const Tensor> logits) {
    print(o, line,
          models::tagged_spans(logits[0], places_of(model.tokenizer(), line.text, sequences[0]),
                               model.config().labels, o.join));
  };
  const auto encode = [&](const std::string& text) { return std::vector{model.encode(text)}; };
  model.answer(o.head, {.encode = encode, .print = print_text, .rows = text_rows});
}

}  // namespace

void register_tag(Command app) {
  auto o = std::make_shared<TagCommand>();
  Command command = app.add_subcommand("tag", "Find names and other labelled words in texts");
  command.footer(bad_lines_help);
  add_head_options(command, o->head, "texts to tag");
  add_truncate(command, o->head);
  const std::vector<std::pair<std::string, TagJoin>> joins{{"none", TagJoin::none},
                                                           {"simple", TagJoin::simple},
                                                           {"first", TagJoin::first},
                                                           {"average", TagJoin::average},
                                                           {"max", TagJoin::max}};
  command
      .add_choice("--aggregation", o->join, joins,
                  "which label a word of several tokens has: of its first one, of their average, or of the "
                  "surest one; simple and none join no words")
      .option_text("none, simple, first, average or max");
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
