// `fovea generate --input`: many texts at once.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/generate_ids.h"
#include "cli/generate_lines.h"
#include "cli/generate_options.h"
#include "cli/texts.h"
#include "fovea/models/batcher.h"
#include "fovea/text/line_stream.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

// What the prompt and the answer spell together, less the prompt.
std::string text_of(const Coder& coder, const Ids& prompt, const Ids& written) {
  Ids all = prompt;
  all.insert(all.end(), written.begin(), written.end());
  const std::string before = coder.text(prompt), whole = coder.text(all);
  return whole.size() > before.size() ? whole.substr(before.size()) : std::string();
}

struct AnswerText {
  std::string text, finish;
  std::vector<double> log_probabilities = {};  // of each token
  std::string error = {};
};

AnswerText failed(const Error& error) {
  return {.text = {}, .finish = "failed", .error = error.what()};
}

std::string answer_line(const json& id, const AnswerText& answer) {
  double log_probability = 0.0;
  for (const double of_token : answer.log_probabilities) log_probability += of_token;
  json object = {{"id", id},
                 {"text", answer.text},
                 {"finish", answer.finish},
                 {"tokens", answer.log_probabilities.size()},
                 {"log_probability", log_probability}};
  if (!answer.error.empty()) object["error"] = answer.error;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

AnswerText text_of_answer(const Coder& coder, const Line& line, const Ids& prompt,
                          const models::Answer& answer) {
  static constexpr const char* names[] = {"length", "stop", "cancelled", "failed"};
  return {line.stream ? *line.text + line.stream->rest() : text_of(coder, prompt, answer.generated.ids),
          names[static_cast<std::size_t>(answer.finish)], answer.generated.log_probabilities,
          message_of(answer.error)};
}

// Answers in the order of the lines, each printed once all before it are there.
class Answers {
 public:
  Answers(std::size_t count, std::ostream& out) : answers_(count), out_(out) {}
  void set(std::size_t number, const json& id, const AnswerText& answer) {
    if (!answer.error.empty() && failed_++ == 0) first_error_ = answer.error;
    answers_[number] = answer_line(id, answer);
  }
  /// Reads line `number`, or answers it by what is wrong with it and returns false.
  bool read(LineReader& reader, const text::CheckedLine& from, std::size_t number, Line& line) {
    try {
      reader.read(from, line);
      return true;
    } catch (const FileError& error) {
      set(number, line.id, failed(error));
    } catch (const Error& error) {  // of the tokenizer
      set(number, line.id, failed(reader.refused(error)));
    }
    return false;
  }
  void print() {
    for (; printed_ < answers_.size() && answers_[printed_]; ++printed_)
      out_ << *answers_[printed_] << std::endl;
  }
  /// Throws Stopped after a signal, and Error if a line failed: its answer says why, and the others stand.
  void end(const std::string& output) const {
    checked(out_, output);
    if (printed_ < answers_.size())
      throw Stopped{fmt::format("stopped; {} of {} answers are written", printed_, answers_.size())};
    if (failed_ > 0)
      throw LinesFailed(
          fmt::format("{} of {} lines failed, and the others are written. The first that failed: {}", failed_,
                      answers_.size(), first_error_));
  }

 private:
  std::vector<std::optional<std::string>> answers_;
  std::size_t printed_ = 0, failed_ = 0;
  std::string first_error_;
  std::ostream& out_;
};

std::vector<text::CheckedLine> lines_of(const GenerateOptions& o) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 26;  // of a line, such as a long chat
  return text::read_checked_lines(input_path(o.input), most_bytes);
}

}  // namespace

void write_many(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
                const ChatPrompts* chat, std::ostream& out) {
  models::Batcher batcher(model, {.limit_bytes = o.limit_mb << 20,
                                  .prefix_bytes = (o.limit_mb << 20) / 4,
                                  .step_tokens = o.step_tokens});
  const std::vector<text::CheckedLine> lines = lines_of(o);
  Answers answers(lines.size(), out);
  LineReader reader(o, coder, chat, LineReader::Writer::batcher);
  for (std::size_t n = 0; n < lines.size(); ++n) {
    Line line;
    if (!answers.read(reader, lines[n], n, line)) continue;
    models::Request request = std::move(line.request);
    request.done = [&, n, line, prompt = request.prompt](const models::Answer& answer) {
      answers.set(n, line.id, text_of_answer(coder, line, prompt, answer));
    };
    try {
      if (!line.length_given)
        request.sample.length =
            length_behind(model, std::ssize(request.prompt), {request.sample.length, false, o.whole_length});
      batcher.submit(std::move(request));
    } catch (const Error& error) {
      answers.set(n, line.id, failed(reader.refused(error)));
    }
  }
  while (!stop_requested() && batcher.step()) answers.print();
  answers.print();
  const models::Batcher::Stats stats = batcher.stats();
  if (o.stats)
    fmt::print(stderr,
               "{} steps, {} tokens read, {} of prompts shared, {} written, {} texts and {} bytes at most\n",
               stats.steps, stats.read, stats.shared, stats.written, stats.most_texts, stats.most_bytes);
  answers.end(o.output);
}

namespace {

// Lines whose texts are searched.
class SearchedLines {
 public:
  /// Says how long the text of a line may be, at least 1. Throws Error for a line that is too long.
  using LengthOf = std::function<std::int64_t(const Line& line)>;
  /// Whether texts go on with their prompts, or are translations of them.
  enum class Texts : std::uint8_t { continuations, translations };
  SearchedLines(const GenerateOptions& o, const Coder& coder, const ChatPrompts* chat, Texts kind,
                const LengthOf& length_of, std::ostream& out)
      : lines_(lines_of(o)), answers_(lines_.size(), out), output_(o.output) {
    texts_.reserve(lines_.size());  // the searches refer to them
    LineReader reader(o, coder, chat, LineReader::Writer::search);
    for (std::size_t n = 0; n < lines_.size(); ++n) {
      Line line;
      if (!answers_.read(reader, lines_[n], n, line)) continue;
      models::BeamOptions beams = beams_of(o, line.request.sample);
      try {
        beams.length = length_of(line);
        if (beams.length < 1)
          throw InvalidArgument("fovea generate", "length", "at least 1 of a search",
                                std::to_string(beams.length));
      } catch (const Error& error) {
        answers_.set(n, line.id, failed(reader.refused(error)));
        continue;
      }
      texts_.emplace_back(coder, kind == Texts::continuations ? line.request.prompt : Ids(), reader.stops())
          .end_at_stops(beams);
      places_.push_back({n, std::move(line.id)});
      requests_.push_back({std::move(line.request.prompt), std::move(beams)});
    }
  }

  const std::vector<models::BeamRequest>& requests() const { return requests_; }
  /// For the search.
  models::BeamsDone answering() {
    return [&](std::size_t n, const std::vector<models::BeamText>& found, const std::exception_ptr& error) {
      const auto& [number, id] = places_[n];
      if (error)
        answers_.set(number, id, {.text = {}, .finish = "failed", .error = message_of(error)});
      else if (!found.empty() && !stop_requested()) {
        const models::BeamText& best = found.front();
        answers_.set(number, id,
                     {texts_[n].text_of(best.ids), texts_[n].stopped(best.ids) ? "stop" : "length",
                      best.log_probabilities});
      }
      answers_.print();
    };
  }
  /// As Answers::end, behind the search.
  void end() {
    answers_.print();
    answers_.end(output_);
  }

 private:
  std::vector<text::CheckedLine> lines_;
  Answers answers_;
  const std::string& output_;
  std::vector<std::pair<std::size_t, json>> places_;  // of each request: its line, and its id
  std::vector<SearchedText> texts_;
  std::vector<models::BeamRequest> requests_;
};

}  // namespace

void search_many(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
                 const ChatPrompts* chat, std::ostream& out) {
  SearchedLines lines(
      o, coder, chat, SearchedLines::Texts::continuations,
      [&](const Line& line) {
        return length_behind(model, std::ssize(line.request.prompt),
                             {line.request.sample.length, line.length_given, o.whole_length});
      },
      out);
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = o.limit_mb << 20});
  models::beam_search(model, cache, lines.requests(), lines.answering(), {.limit_bytes = o.limit_mb << 20});
  lines.end();
}

void translate_many(const GenerateOptions& o, const models::ModelFolder& folder,
                    models::SequenceToSequence& model, const Coder& coder, std::ostream& out) {
  const std::int64_t positions = models::read_family(folder.config()).config.positions;
  SearchedLines lines(
      o, coder, nullptr, SearchedLines::Texts::translations,
      [&](const Line& line) {
        if (std::ssize(line.request.prompt) > positions)
          throw InvalidArgument("fovea generate", "the prompt",
                                fmt::format("at most the {} ids that the model reads", positions),
                                std::to_string(line.request.prompt.size()));
        if (line.request.sample.length > positions)
          throw InvalidArgument("fovea generate", "length",
                                fmt::format("at most {}, the positions of the model", positions),
                                std::to_string(line.request.sample.length));
        return line.request.sample.length;
      },
      out);
  constexpr std::int64_t batch = 16;  // prompts are longer than the sentences of fovea translate
  models::search_in_batches(model, lines.requests(), {folder.decoder_start(), false}, batch,
                            lines.answering());
  lines.end();
}

}  // namespace fovea::cli
