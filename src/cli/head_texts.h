// What the commands that read texts with a head have in common: the model, and texts in batches.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "cli/texts.h"
#include "fovea/models/model_folder.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {

struct HeadOptions : TextOptions {
  bool truncate = false, has_truncate = false;  // has_truncate: whether the command has the option
  std::string weights = "f32";
};

/// Adds the options of add_text_options and --weights.
void add_head_options(Command command, HeadOptions& options, const std::string& texts);
/// Adds --truncate.
void add_truncate(Command command, HeadOptions& options);

/// The model of a folder with one of `heads`, and its tokenizer.
class HeadModel {
 public:
  /// Throws FileError for a folder without such a head.
  HeadModel(const HeadOptions& options, std::string command, std::initializer_list<models::FamilyHead> heads);

  const models::FamilyConfig& config() const noexcept { return config_; }
  const text::FolderTokenizer& read() const noexcept { return read_; }
  const text::JsonTokenizer& tokenizer() const noexcept { return read_.tokenizer; }
  /// Ids of a sequence at most: what the model and the tokenizer's config allow.
  std::int64_t longest() const noexcept { return longest_; }

  /// The ids of a text. Throws InvalidArgument for a text without ids, for one that is too long where none
  /// are cut, and for ids that the model does not have.
  text::Encoding encode(const std::string& text) const;
  /// The ids of a pair, cut at the longer text.
  text::Encoding encode_pair(const std::string& first, const std::string& second) const;

  /// Which rows of a sequence the head shall read; all of them where it pools.
  using Rows = std::function<std::vector<std::int64_t>(const text::Encoding& encoding)>;
  /// Gets the number of each sequence and what the head makes of it, [rows, outputs].
  using Use = std::function<void(std::size_t number, const Tensor& logits)>;
  /// Runs the model over the sequences, many at once, in their order. Ends early if a signal asks for it.
  void run(const std::vector<text::Encoding>& encodings, const Use& use, const Rows& rows = {}) const;

  /// How a command answers a text. `encode` may throw what `encode` above throws. `print` gets what the head
  /// makes of each sequence.
  struct Answering {
    std::function<std::vector<text::Encoding>(const std::string& text)> encode;
    std::function<void(const text::CheckedLine& line, std::span<const text::Encoding> sequences,
                       std::span<const Tensor> logits)>
        print;
    Rows rows = {};
  };
  /// Answers the texts of the options as they come. One that fails is named on standard error and answered
  /// by an empty line, or a JSON object with "error". Throws Error behind them, and Stopped after a signal.
  void answer(const HeadOptions& options, const Answering& answering) const;

 private:
  void check_end(const text::Encoding& encoding) const;
  void run_batch(std::span<const text::Encoding> batch, std::size_t first, const Use& use,
                 const Rows& rows) const;

  std::string command_, model_;
  bool truncate_, has_truncate_;
  models::FamilyConfig config_;
  text::FolderTokenizer read_;
  models::TextEncoder encoder_;
  std::int64_t longest_;
};

}  // namespace fovea::cli
