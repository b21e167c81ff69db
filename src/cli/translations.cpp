#include "cli/translations.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/texts.h"
#include "fovea/core/error.h"
#include "fovea/inspect/terminal.h"

namespace fovea::cli {

train::FamilyTranslator read_family_translator(const std::string& command, const std::string& folder,
                                               train::FamilyTranslatorOptions options) {
  options.cancelled = [] { return stop_requested(); };
  try {
    train::FamilyTranslator translator(models::ModelFolder(folder), std::move(options));
    warn_of(translator.defaults());
    return translator;
  } catch (const InvalidArgument& error) {
    for (const auto& [argument, option] : {std::pair{"options.n_best", "--n-best"},
                                           {"options.seed", "--seed"},
                                           {"options.source_language", "--source-language"},
                                           {"options.target_language", "--target-language"}}) {
      if (error.argument() == argument) throw InvalidArgument(command, option, error.expected(), error.got());
    }
    throw;
  }
}

void refuse_length_penalty(const std::string& command, const char* option) {
  throw InvalidArgument(command, option, "a --beam-size above 1 or --json, which prints scores, beside it",
                        "neither");
}

namespace {

// A line that failed: an empty one where each line has one text, so that the others keep their places.
void print_failure(const TextOutput& how, std::int64_t number, const std::string& reason, std::ostream& out) {
  using nlohmann::ordered_json;
  const ordered_json object{{"line", number}, {"error", reason}};
  if (how.json)
    out << object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  else if (how.n_best == 1)
    out << '\n';
}

}  // namespace

void print_translations(const std::string& command, TextWindows& lines, const TranslateWindow& translate,
                        const TextOutput& how, Output& output) {
  CountProgress progress(command, "lines");
  FailedTexts failed;
  std::int64_t count = 0;
  std::ostream& out = output.stream();
  for (auto window = lines.next(); !window.empty(); window = lines.next()) {
    std::vector<std::string> texts;
    for (text::CheckedLine& line : window) texts.push_back(std::move(line.text));
    translate(texts, [&](std::size_t n, const std::vector<train::Translation>& found,
                         const std::exception_ptr& error) {
      const auto& [number, text, problem] = window[n];
      progress.clear();
      if (error || !problem.empty()) {
        const std::string reason = error ? reason_of(error) : problem;
        failed.add(lines.place(number), reason);
        print_failure(how, number, reason, out);
      } else {
        print_texts(how, static_cast<std::size_t>(number - 1), found, out);
      }
      output.flush();
      progress.show(++count, lines.expected());
    });
  }
  progress.clear();
  if (stop_requested()) throw Stopped{fmt::format("stopped; the first {} lines are written", count)};
  failed.end(count);
}

std::string alignment_text(const train::Translation& translation, bool hard) {
  const text::AlignmentWeights& weights = translation.weights;
  if (weights.weights.empty()) return {};
  if (hard) return text::to_pharaoh(train::hard_alignment(translation));
  std::string result;
  for (std::size_t row = 0; row < weights.target_len; ++row) {
    if (row > 0) result += ' ';
    for (std::size_t column = 0; column < weights.source_len; ++column) {
      result += fmt::format("{}{:.4f}", column > 0 ? "," : "", weights.at(row, column));
    }
  }
  return result;
}

namespace {

void print_json(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                std::ostream& out) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (const train::Translation& t : texts) {
    list.push_back({{"text", t.text}, {"score", t.score}, {"log_probability", t.log_probability}});
    if (!how.alignment.empty()) list.back()["alignment"] = alignment_text(t, how.alignment == "hard");
  }
  const ordered_json object{{"line", number + 1}, {"texts", list}};
  out << object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace

void print_texts(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                 std::ostream& out) {
  if (how.json) return print_json(how, number, texts, out);
  for (const train::Translation& t : texts) {
    // A line stays a line, whatever the model writes.
    std::string text = t.text;
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    out << (how.n_best > 1 ? fmt::format("{} ||| {} ||| {:.4f}", number, text, t.score) : text);
    if (!how.alignment.empty()) out << " ||| " << alignment_text(t, how.alignment == "hard");
    out << '\n';
    if (how.show && t.weights.target_len > 0)
      out << inspect::draw_terminal({t.target_words, t.source_words, t.weights.weights}) << '\n';
  }
}

}  // namespace fovea::cli
