// `fovea generate --input`: many texts at once.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/generate_ids.h"
#include "cli/generate_lines.h"
#include "cli/generate_options.h"
#include "cli/text_windows.h"
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
                 {"tokens", answer.log_probabilities.size()}};
  if (answer.error.empty())
    object["log_probability"] = log_probability;
  else
    object["error"] = answer.error;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

AnswerText text_of_answer(const Coder& coder, const Line& line, const Ids& prompt,
                          const models::Answer& answer, const std::string& model) {
  static constexpr const char* names[] = {"length", "stop", "cancelled", "failed"};
  return {line.stream ? *line.text + line.stream->rest() : text_of(coder, prompt, answer.generated.ids),
          names[static_cast<std::size_t>(answer.finish)], answer.generated.log_probabilities,
          message_of(answer.error, model)};
}

// Answers in the order of the lines, each printed once all before it are there. They are kept until then, and
// no longer.
class Answers {
 public:
  explicit Answers(std::ostream& out) : out_(out) {}
  /// A place behind those that there are, for a line of `bytes`.
  std::size_t add(std::size_t bytes) {
    open_.push_back({std::nullopt, bytes});
    bytes_ += bytes;
    return count() - 1;
  }
  void set(std::size_t number, const json& id, const AnswerText& answer) {
    if (!answer.error.empty() && failed_++ == 0) first_error_ = answer.error;
    open_[number - printed_].answer = answer_line(id, answer);
  }
  /// Reads line `number`, or answers it by what is wrong with it and returns false.
  bool read(RequestReader& reader, const text::CheckedLine& from, std::size_t number, Line& line) {
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
    for (; !open_.empty() && open_.front().answer; ++printed_) {
      out_ << *open_.front().answer << std::endl;
      bytes_ -= open_.front().bytes;
      open_.pop_front();
    }
  }
  /// Of places.
  std::size_t count() const { return printed_ + open_.size(); }
  /// Of those whose answers are not printed.
  std::size_t open() const { return open_.size(); }
  /// Of their lines.
  std::size_t bytes() const { return bytes_; }
  /// Throws Stopped after a signal, and Error if a line failed: its answer says why, and the others stand.
  void end(const std::string& output) const {
    checked(out_, output);
    if (stop_requested())
      throw Stopped{fmt::format("stopped; the answers to the first {} lines are written", printed_)};
    if (failed_ > 0)
      throw LinesFailed(fmt::format("{} of {} line{} failed{}. The first that failed: {}", failed_, count(),
                                    count() == 1 ? "" : "s",
                                    failed_ < count() ? ", and the others are written" : "", first_error_));
  }

 private:
  struct Place {
    std::optional<std::string> answer;
    std::size_t bytes;  ///< of the line
  };
  std::deque<Place> open_;
  std::size_t printed_ = 0, failed_ = 0, bytes_ = 0;
  std::string first_error_;
  std::ostream& out_;
};

TextWindows lines_of(const GenerateOptions& o, std::int64_t most_lines) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 26;  // of a line, such as a long chat
  return TextWindows(
      o.input,
      {.max_line_bytes = most_bytes, .most_lines = most_lines, .blank_lines = text::BlankLines::left_out});
}

// Lines that a batcher writes the texts of, as they come.
class BatchedLines {
 public:
  BatchedLines(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
               const ChatPrompts* chat, std::ostream& out)
      : o_(o),
        model_(model),
        coder_(coder),
        batcher_(model, {.limit_bytes = o.limit_mb << 20,
                         .prefix_bytes = (o.limit_mb << 20) / 4,
                         .step_tokens = o.step_tokens}),
        reader_(o, coder, chat, RequestReader::Writer::batcher),
        lines_(lines_of(o, window)),
        answers_(out) {}

  void write() {
    // A line that comes while texts are written joins them at the next step.
    using Waiting = TextWindows::Waiting;
    while (!stop_requested() && (batcher_.waiting() > 0 || !lines_.ended())) {
      if (has_room()) {
        for (const text::CheckedLine& line :
             lines_.next(batcher_.waiting() > 0 ? Waiting::refused : Waiting::allowed))
          submit(line);
      }
      batcher_.step();
      answers_.print();
    }
  }
  models::Batcher::Stats stats() const { return batcher_.stats(); }
  void end() const { answers_.end(o_.output); }

 private:
  static constexpr std::int64_t window = 64;                        // lines that are read between two steps
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;  // of lines whose answers are not printed

  // A long text holds back the answers behind it. Twice as many lines are taken as a step can have texts, so
  // that it has enough of them meanwhile. More would only fill memory.
  bool has_room() const {
    return static_cast<std::int64_t>(answers_.open()) < 2 * o_.step_tokens && answers_.bytes() < most_bytes;
  }

  void submit(const text::CheckedLine& from) {
    const std::size_t number = answers_.add(from.text.size());
    Line line;
    if (!answers_.read(reader_, from, number, line)) return;
    models::Request request = std::move(line.request);
    request.done = [this, number, line, prompt = request.prompt](const models::Answer& answer) {
      answers_.set(number, line.id, text_of_answer(coder_, line, prompt, answer, o_.model));
    };
    try {
      if (!line.length_given)
        request.sample.length = length_behind(model_, std::ssize(request.prompt),
                                              {request.sample.length, false, o_.whole_length});
      batcher_.submit(std::move(request));
    } catch (const Error& error) {
      answers_.set(number, line.id, failed(reader_.refused(error)));
    }
  }

  const GenerateOptions& o_;
  models::LanguageModel& model_;
  const Coder& coder_;
  models::Batcher batcher_;
  RequestReader reader_;
  TextWindows lines_;
  Answers answers_;
};

}  // namespace

void write_many(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
                const ChatPrompts* chat, std::ostream& out) {
  BatchedLines lines(o, model, coder, chat, out);
  lines.write();
  const models::Batcher::Stats stats = lines.stats();
  if (o.stats)
    fmt::print(stderr,
               "{} steps, {} tokens read, {} of prompts shared, {} written, {} texts and {} bytes at most\n",
               stats.steps, stats.read, stats.shared, stats.written, stats.most_texts, stats.most_bytes);
  lines.end();
}

namespace {

// Lines whose texts are searched, window by window.
class SearchedLines {
 public:
  /// Says how long the text of a line may be, at least 1. Throws Error for a line that is too long.
  using LengthOf = std::function<std::int64_t(const Line& line)>;
  /// Whether texts go on with their prompts, or are translations of them.
  enum class Texts : std::uint8_t { continuations, translations };
  /// Searches for all requests, and hands on what is found.
  using Search = std::function<void(const std::vector<models::BeamRequest>&, const models::BeamsDone&)>;
  SearchedLines(const GenerateOptions& o, RequestReader reader, Texts kind, LengthOf length_of,
                std::ostream& out)
      : o_(o), reader_(std::move(reader)), kind_(kind), length_of_(std::move(length_of)), answers_(out) {}

  void write(std::int64_t window, const Search& search) {
    TextWindows lines = lines_of(o_, window);
    for (auto some = lines.next(); !some.empty(); some = lines.next()) {
      texts_.clear();
      places_.clear();
      texts_.reserve(some.size());  // the searches refer to them
      std::vector<models::BeamRequest> requests;
      for (const text::CheckedLine& line : some) add(line, requests);
      search(requests, answering());
      answers_.print();
    }
    answers_.end(o_.output);
  }

 private:
  void add(const text::CheckedLine& from, std::vector<models::BeamRequest>& requests) {
    const std::size_t number = answers_.add(from.text.size());
    Line line;
    if (!answers_.read(reader_, from, number, line)) return;
    models::BeamOptions beams = beams_of(o_, line.request.sample);
    try {
      beams.length = length_of_(line);
      if (beams.length < 1)
        throw InvalidArgument("fovea generate", "length", "at least 1 of a search",
                              std::to_string(beams.length));
    } catch (const Error& error) {
      answers_.set(number, line.id, failed(reader_.refused(error)));
      return;
    }
    texts_
        .emplace_back(reader_.coder(), kind_ == Texts::continuations ? line.request.prompt : Ids(),
                      reader_.stops())
        .end_at_stops(beams);
    places_.push_back({number, std::move(line.id)});
    requests.push_back({std::move(line.request.prompt), std::move(beams)});
  }

  models::BeamsDone answering() {
    return [&](std::size_t n, const std::vector<models::BeamText>& found, const std::exception_ptr& error) {
      const auto& [number, id] = places_[n];
      if (error)
        answers_.set(number, id, {.text = {}, .finish = "failed", .error = message_of(error, o_.model)});
      else if (!found.empty() && !stop_requested()) {
        const models::BeamText& best = found.front();
        answers_.set(number, id,
                     {texts_[n].text_of(best.ids), texts_[n].stopped(best.ids) ? "stop" : "length",
                      best.log_probabilities});
      }
      answers_.print();
    };
  }

  const GenerateOptions& o_;
  RequestReader reader_;
  Texts kind_;
  LengthOf length_of_;
  Answers answers_;
  // Of the window.
  std::vector<std::pair<std::size_t, json>> places_;  // of each request: its line, and its id
  std::vector<SearchedText> texts_;
};

}  // namespace

void search_many(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
                 const ChatPrompts* chat, std::ostream& out) {
  SearchedLines lines(
      o, RequestReader(o, coder, chat, RequestReader::Writer::search), SearchedLines::Texts::continuations,
      [&](const Line& line) {
        return length_behind(model, std::ssize(line.request.prompt),
                             {line.request.sample.length, line.length_given, o.whole_length});
      },
      out);
  constexpr std::int64_t window = 256;
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = o.limit_mb << 20});
  lines.write(window, [&](const std::vector<models::BeamRequest>& requests, const models::BeamsDone& done) {
    models::beam_search(model, cache, requests, done, {.limit_bytes = o.limit_mb << 20});
  });
}

void translate_many(const GenerateOptions& o, const models::ModelFolder& folder,
                    models::SequenceToSequence& model, const Coder& coder, std::ostream& out) {
  const std::int64_t positions = models::read_family(folder.config()).config.positions;
  SearchedLines lines(
      o, RequestReader(o, coder, nullptr, RequestReader::Writer::search), SearchedLines::Texts::translations,
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
  // As many lines as search_in_batches sorts together.
  lines.write(16 * batch,
              [&](const std::vector<models::BeamRequest>& requests, const models::BeamsDone& done) {
                models::search_in_batches(model, requests, {folder.decoder_start(), false}, batch, done);
              });
}

}  // namespace fovea::cli
