#include "cli/head_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "fovea/core/error.h"
#include "fovea/train/coder.h"

namespace fovea::cli {
namespace {

using models::FamilyHead;

const char* name_of(FamilyHead head) {
  switch (head) {
    case FamilyHead::none:
      return "no head";
    case FamilyHead::language:
      return "a head for the next id";
    case FamilyHead::masked:
      return "a head for masked ids";
    case FamilyHead::sequence_labels:
      return "a head for labels of texts";
    case FamilyHead::token_labels:
      return "a head for labels of ids";
    case FamilyHead::answer:
      return "a head for answers";
  }
  return "";
}

// The config of a folder with one of `heads`. Its problems are those of the model, which names them better.
models::FamilyConfig config_of(const models::ModelFolder& folder, std::initializer_list<FamilyHead> heads) {
  models::FolderReport report = models::report_on(folder);
  const std::string path = models::config_path(folder.path()).string();
  if (!report.config && report.refused.empty())  // a model of ours
    throw FileError(
        path, -1,
        fmt::format("expected a model with {}, got {}", name_of(*heads.begin()), report.model_type));
  if (!report.config || !report.problems.empty()) throw FileError(path, -1, report.refused);
  const FamilyHead head = report.config->head;
  if (std::find(heads.begin(), heads.end(), head) == heads.end())
    throw FileError(
        path, -1,
        fmt::format("expected a model with {}, got {}, which has {}", name_of(*heads.begin()),
                    report.config->architecture.empty() ? report.model_type : report.config->architecture,
                    name_of(head)));
  return std::move(*report.config);
}

}  // namespace

void add_head_options(Command command, HeadOptions& options, const std::string& texts) {
  add_text_options(command, options, texts);
  add_weights_option(command, options.weights);
}

void add_truncate(Command command, HeadOptions& options) {
  options.has_truncate = true;
  command.add_flag("--truncate", options.truncate,
                   "cut texts that are too long, which are refused otherwise");
}

HeadModel::HeadModel(const HeadOptions& options, std::string command,
                     std::initializer_list<models::FamilyHead> heads)
    : command_(std::move(command)),
      model_(options.model),
      truncate_(options.truncate),
      has_truncate_(options.has_truncate),
      config_(config_of(models::ModelFolder(options.model), heads)),
      read_(text::read_folder_tokenizer(options.model)),
      encoder_(models::ModelFolder(options.model).text_encoder(autograd::parse_weight_type(options.weights))),
      longest_(std::min(read_.max_length.value_or(config_.positions), config_.positions)) {
  nn::use_threads(options.threads);
}

void HeadModel::check_end(const text::Encoding& encoding) const {
  if (!config_.head_layers.at_eos) return;
  const std::int64_t end = config_.eos_ids.front();
  if (std::ranges::find(encoding.ids, end) == encoding.ids.end())
    throw InvalidArgument(
        command_, "text",
        fmt::format("a text that the tokenizer ends with the id {}, whose row the head reads", end),
        "one without it");
}

text::Encoding HeadModel::encode(const std::string& text) const {
  text::EncodeOptions options{.cut_side = read_.cut_side};
  if (truncate_) options.max_length = longest_;
  text::Encoding encoding = tokenizer().encode(text, options);
  if (encoding.size() == 0) throw InvalidArgument(command_, "text", "at least one id", "none");
  if (static_cast<std::int64_t>(encoding.size()) > config_.positions)
    throw InvalidArgument(command_, "text",
                          fmt::format("at most the {} ids that the model reads{}", config_.positions,
                                      has_truncate_ ? ", or --truncate" : ""),
                          std::to_string(encoding.size()));
  check_end(encoding);
  train::check_ids(command_, "text", encoding.ids, config_.vocabulary,
                   [this](std::int32_t id) { return tokenizer().token(id); });
  return encoding;
}

text::Encoding HeadModel::encode_pair(const std::string& first, const std::string& second) const {
  text::Encoding encoding =
      tokenizer().encode(first, second, {.max_length = longest_, .cut_side = read_.cut_side});
  check_end(encoding);
  return encoding;
}

namespace {

// The texts of a window: their sequences behind one another, and why some have none.
struct EncodedWindow {
  std::vector<text::Encoding> sequences;
  std::vector<std::size_t> text_of;  // of each sequence
  std::vector<std::string> reasons;  // of each text
};

EncodedWindow encoded(const std::vector<text::CheckedLine>& window, const HeadModel::Answering& answering) {
  EncodedWindow all;
  for (const text::CheckedLine& line : window) {
    std::string& reason = all.reasons.emplace_back(line.problem);
    if (!reason.empty()) continue;
    try {
      for (text::Encoding& sequence : answering.encode(line.text)) {
        all.sequences.push_back(std::move(sequence));
        all.text_of.push_back(all.reasons.size() - 1);
      }
    } catch (const Error&) {
      reason = reason_of(std::current_exception());
    }
  }
  return all;
}

}  // namespace

void HeadModel::answer(const HeadOptions& options, const Answering& answering) const {
  TextWindows windows = text_windows_of(options, command_);
  FailedTexts failed;
  std::int64_t count = 0;
  for (auto window = windows.next(); !window.empty(); window = windows.next()) {
    const EncodedWindow all = encoded(window, answering);
    std::size_t next = 0;  // text without an answer
    const auto fail_until = [&](std::size_t end) {
      for (; next < end; ++next) {
        failed.add(windows.place(window[next].number), all.reasons[next]);
        if (options.json)
          print_line({{"line", window[next].number}, {"error", all.reasons[next]}});
        else
          fmt::print("\n");
      }
    };
    std::vector<Tensor> logits;
    run(
        all.sequences,
        [&](std::size_t n, const Tensor& of_sequence) {
          logits.push_back(of_sequence);
          const std::size_t text = all.text_of[n], begin = n + 1 - logits.size();
          if (n + 1 < all.text_of.size() && all.text_of[n + 1] == text) return;
          fail_until(text);
          next = text + 1;
          answering.print(window[text], std::span(all.sequences).subspan(begin, logits.size()), logits);
          logits.clear();
        },
        answering.rows);
    if (!stop_requested()) fail_until(window.size());
    std::fflush(stdout);
    count += std::ssize(window);
  }
  end_of_texts();
  failed.end(count);
}

void HeadModel::run(const std::vector<text::Encoding>& encodings, const Use& use, const Rows& rows) const {
  for (const text::Encoding& encoding : encodings)
    train::check_ids(command_, "text", encoding.ids, config_.vocabulary,
                     [this](std::int32_t id) { return tokenizer().token(id); });
  constexpr std::size_t most_ids = 4096;  // at once: enough rows for products, and 50 MB of activations
  for (std::size_t begin = 0, end = 0; begin < encodings.size() && !stop_requested(); begin = end) {
    std::size_t ids = encodings[begin].size();
    for (end = begin + 1; end < encodings.size() && ids + encodings[end].size() <= most_ids; ++end)
      ids += encodings[end].size();
    run_batch(std::span(encodings).subspan(begin, end - begin), begin, use, rows);
  }
}

void HeadModel::run_batch(std::span<const text::Encoding> batch, std::size_t first, const Use& use,
                          const Rows& rows) const {
  std::vector<std::vector<std::int32_t>> sequences;
  std::vector<std::int32_t> types;
  std::vector<std::int64_t> wanted, counts;  // rows, of all sequences together
  for (const text::Encoding& encoding : batch) {
    const auto begin = static_cast<std::int64_t>(types.size());
    types.insert(types.end(), encoding.types.begin(), encoding.types.end());
    sequences.push_back(encoding.ids);
    if (config_.head_layers.pooling) {
      counts.push_back(1);
    } else if (rows) {
      const std::vector<std::int64_t> chosen = rows(encoding);
      for (const std::int64_t row : chosen) wanted.push_back(begin + row);
      counts.push_back(std::ssize(chosen));
    } else {
      counts.push_back(static_cast<std::int64_t>(encoding.size()));
    }
  }
  if (config_.token_types < 2 || !read_.gives_types) types.clear();
  nn::Context inference;
  const nn::Var hidden = encoder_.hidden(inference, sequences, types);
  const bool chosen = rows && !config_.head_layers.pooling;
  // A text of which no row is wanted, such as an empty one, has no numbers.
  const Tensor none(DType::f32, {0, encoder_.spec().head->outputs});
  nn::Var logits = none;
  if (!chosen)
    logits = encoder_.logits(encoder_.head_rows(hidden, sequences));
  else if (!wanted.empty())
    logits = encoder_.logits(autograd::gather_rows(hidden, wanted, std::ssize(wanted)));
  std::int64_t row = 0;
  expect_numbers(logits.value(), model_, "a text");
  for (std::size_t i = 0; i < batch.size(); row += counts[i++])
    use(first + i, counts[i] > 0 ? autograd::slice(logits, 0, row, counts[i]).value() : none);
}

}  // namespace fovea::cli
