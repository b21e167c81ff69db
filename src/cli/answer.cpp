#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/head_texts.h"
#include "fovea/core/error.h"
#include "fovea/models/heads.h"
#include "text/unicode.h"

namespace fovea::cli {
namespace {

using models::AnswerRole;

struct AnswerCommand {
  HeadOptions head;
  std::string question;
  std::int64_t longest = 15;
  std::size_t top_k = 1;
};

// The ids of the context, and of a model that reads both ways also the first one, such as [CLS], which says
// that there is no answer.
std::vector<AnswerRole> roles_of(const HeadModel& model, const text::Encoding& window) {
  std::vector<AnswerRole> roles;
  for (std::size_t i = 0; i < window.size(); ++i) {
    const bool none = i == 0 && window.special[i] == 1 && model.config().kind != models::FamilyKind::decoder;
    roles.push_back(none                   ? AnswerRole::none
                    : window.texts[i] == 1 ? AnswerRole::context
                                           : AnswerRole::outside);
  }
  return roles;
}

// The bytes of the context from the word of the first id to that of the last one.
text::ByteRange widened(const text::Encoding& window, const models::AnswerSpan& span) {
  auto first = static_cast<std::size_t>(span.first), last = static_cast<std::size_t>(span.last);
  const auto same_word = [&](std::size_t a, std::size_t b) {
    return window.texts[b] == 1 && window.words[a] >= 0 && window.words[a] == window.words[b];
  };
  while (first > 0 && same_word(first, first - 1)) --first;
  while (last + 1 < window.size() && same_word(last, last + 1)) ++last;
  return {window.offsets[first].begin, window.offsets[last].end};
}

struct Answer {
  text::ByteRange place;
  double score = 0.0;
};

// Adds the answers of a window. Those that read the same, but for capitals, are one: their scores are added.
void add_answers(const std::string& context, const text::Encoding& window,
                 const std::vector<models::AnswerSpan>& spans, std::vector<Answer>& answers) {
  const auto words = [&](const text::ByteRange& place) {
    return text::lower_case(context.substr(place.begin, place.end - place.begin));
  };
  for (const models::AnswerSpan& span : spans) {
    const text::ByteRange place = widened(window, span);
    const auto same = std::find_if(answers.begin(), answers.end(),
                                   [&](const Answer& answer) { return words(answer.place) == words(place); });
    if (same == answers.end())
      answers.push_back({place, span.score});
    else
      same->score += span.score;
  }
}

void print(const AnswerCommand& o, const text::CheckedLine& context, std::vector<Answer> answers) {
  std::stable_sort(answers.begin(), answers.end(),
                   [](const Answer& a, const Answer& b) { return a.score > b.score; });
  answers.resize(std::min(o.top_k, answers.size()));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [place, score] : answers) {
    const std::string words = context.text.substr(place.begin, place.end - place.begin);
    if (o.head.json)
      list.push_back({{"answer", words}, {"score", score}, {"begin", place.begin}, {"end", place.end}});
    else
      fmt::print("{:.4f}\t{}-{}\t{}\n", score, place.begin, place.end, words);
  }
  if (o.head.json)
    return print_line({{"line", context.number}, {"context", context.text}, {"answers", list}});
  // Several answers of one context stand together. One a context stays beside its line, also where it is
  // none.
  if (o.top_k > 1 || answers.empty()) fmt::print("\n");
}

// A question that leaves no room for a window of a longer context.
void check_question(const text::Encoding& pair, std::int64_t most, std::int64_t stride) {
  const std::int64_t asked = std::ssize(pair.ids) - std::count(pair.texts.begin(), pair.texts.end(), 1);
  if (std::ssize(pair.ids) > most && asked + stride >= most)
    throw InvalidArgument(
        "fovea answer", "--question",
        fmt::format("less than {} ids together with those of the template, so that a context of {} "
                    "ids can be read in windows of {}",
                    most - stride, std::ssize(pair.ids) - asked, most),
        std::to_string(asked));
}

void run(const AnswerCommand& o) {
  check_utf8("fovea answer", "--question", o.question);
  const HeadModel model(o.head, "fovea answer", {models::FamilyHead::answer});
  // As in transformers: a long context is read in windows, which share 128 ids.
  const std::int64_t most = std::min<std::int64_t>(model.longest(), 384),
                     stride = std::min<std::int64_t>(most / 2, 128);
  const auto encode = [&](const std::string& context) {
    const text::Encoding pair = model.tokenizer().encode(o.question, context);
    check_question(pair, most, stride);
    return text::windows_of(pair, most, stride);
  };
  // Widening to words makes some of the best spans of a window the same.
  const models::AnswerOptions options{.longest = o.longest,
                                      .count = 2 * static_cast<std::int64_t>(o.top_k) + 10};
  const auto print_text = [&](const text::CheckedLine& context, std::span<const text::Encoding> windows,
                              std::span<const Tensor> logits) {
    std::vector<Answer> answers;
    for (std::size_t n = 0; n < windows.size(); ++n)
      add_answers(context.text, windows[n],
                  models::answer_spans(logits[n], roles_of(model, windows[n]), options), answers);
    print(o, context, std::move(answers));
  };
  model.answer(o.head, {.encode = encode, .print = print_text});
}

}  // namespace

void register_answer(Command app) {
  auto o = std::make_shared<AnswerCommand>();
  Command command = app.add_subcommand("answer", "Find the answer to a question in texts");
  command.footer(bad_lines_help);
  add_head_options(command, o->head, "contexts in which the answer is sought");
  command.add_option("--question", o->question, "what is asked").required();
  command.add_option("--top-k", o->top_k, "answers for each context, the best first")
      .check(in_range(1, 1 << 20));
  command.add_option("--longest", o->longest, "tokens of an answer at most").check(in_range(1, 1 << 20));
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
