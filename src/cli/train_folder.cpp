// What trainings of any model have in common: their folder, progress and end.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/train_options.h"
#include "fovea/core/error.h"

namespace fovea::cli {
namespace {

// What a training writes before its first checkpoint, or with it.
constexpr const char* files_before_checkpoint[] = {"spm.model", "vocab.json", "training.json", "config.json",
                                                   "model.safetensors"};

bool has_checkpoint(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "checkpoint.safetensors", error);
}

// The folder of a training. What a new one has put there is removed if it fails before its first checkpoint.
class TrainingFolder {
 public:
  explicit TrainingFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    std::filesystem::path at = std::filesystem::weakly_canonical(folder_, error);
    for (; !error && !std::filesystem::exists(at, error) && at.has_relative_path(); at = at.parent_path())
      made_.push_back(at);
    for (const char* name : files_before_checkpoint) {
      if (!std::filesystem::exists(folder_ / name, error)) new_files_.push_back(folder_ / name);
    }
  }
  ~TrainingFolder() {
    if (has_checkpoint(folder_)) return;
    std::error_code error;
    for (const std::filesystem::path& file : new_files_) std::filesystem::remove(file, error);
    // A folder with other files stays, because remove refuses it.
    for (const std::filesystem::path& folder : made_) std::filesystem::remove(folder, error);
  }
  TrainingFolder(const TrainingFolder&) = delete;
  TrainingFolder& operator=(const TrainingFolder&) = delete;

  void save(const text::Tokenizer& tokenizer) {
    std::filesystem::create_directories(folder_);
    tokenizer.save(folder_);
  }

 private:
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;       // this folder and those around it, the inner ones first
  std::vector<std::filesystem::path> new_files_;  // that may come before the first checkpoint
};

// The error of texts that are too short, by the option that named them.
InvalidArgument named(const TrainCommand& o, const InvalidArgument& error) {
  const bool of_train = error.argument() == "data.train", language = o.model == "language";
  const std::string& table = of_train ? o.train_tsv : o.valid_tsv;
  std::string option = of_train ? "--train-" : "--valid-";
  option += language ? "text" : table.empty() ? "source" : "tsv";
  if (!o.corpus.empty()) option = "--corpus";
  const std::string limit =
      language ? " (--window)" : fmt::format(" of at most {} pieces (--max-length)", o.max_length);
  return InvalidArgument("fovea train", option, error.expected() + limit, error.got());
}

}  // namespace

void check_output(const TrainCommand& o) {
  namespace fs = std::filesystem;
  if (o.output.empty()) throw InvalidArgument("fovea train", "--output", "a folder", "an empty text");
  std::error_code error;
  const bool trained = has_checkpoint(o.output);
  if (trained && !o.resume)
    throw InvalidArgument("fovea train", "--output",
                          "a folder without a training (or --resume to go on with it)", o.output);
  if (!trained && o.resume)
    throw InvalidArgument("fovea train", "--resume", "a training in --output to go on with",
                          o.output + ", which has no checkpoint.safetensors");
  for (const char* name : files_before_checkpoint) {
    if (!trained && fs::exists(fs::path(o.output) / name, error))
      throw InvalidArgument("fovea train", "--output", "a folder without a model or its tokenizer",
                            fmt::format("{}, which has {} but no checkpoint to go on from", o.output, name));
  }
  fs::path there = fs::absolute(o.output);  // or the folder in which it will be made
  while (!fs::exists(there, error) && there != there.parent_path()) there = there.parent_path();
  if (!fs::is_directory(there, error) || ::access(there.c_str(), W_OK) != 0)
    throw InvalidArgument("fovea train", "--output", "a folder that can be written to",
                          o.output + ", because of " + there.string());
}

std::unique_ptr<text::Tokenizer> resumed_tokenizer(const TrainCommand& o) {
  std::unique_ptr<text::Tokenizer> tokenizer = text::load_tokenizer(o.output);
  const auto* pieces = dynamic_cast<const text::SentencePieceTokenizer*>(tokenizer.get());
  const bool characters = pieces && pieces->piece_kind() == text::SentencePieceOptions::Pieces::characters;
  const std::string kind = !pieces ? "whitespace" : characters ? "characters" : "bpe";
  if (o.tokenizer_given && o.tokenizer != kind)
    throw InvalidArgument("fovea train", "--tokenizer", kind + ", as the training in --output has",
                          o.tokenizer);
  return tokenizer;
}

void run_training(const TrainCommand& o, const text::Tokenizer& tokenizer,
                  const std::function<train::Result(train::Start, train::Listener&)>& train,
                  const std::function<std::string(const train::Result&)>& figures) {
  TrainingFolder folder(o.output);
  if (!o.resume) folder.save(tokenizer);
  train::Result result;
  try {
    TerminalProgress progress(
        "[" + std::filesystem::path(o.output).filename().string() + "]",
        o.model == "language" ? TerminalProgress::Shows::perplexity_alone : TerminalProgress::Shows::bleu);
    result = train(o.resume ? train::Start::resume : train::Start::fresh, progress);
  } catch (const InvalidArgument& error) {
    if (error.argument() != "data.train" && error.argument() != "data.valid") throw;
    throw named(o, error);
  }
  if (result.ended == train::Ended::stopped) throw Stopped{"stopped and saved; go on with --resume"};
  fmt::print(stderr, "{}; best validation: {}; model in {}\n",
             result.ended == train::Ended::no_improvement ? "stopped early: no improvement" : "finished",
             figures(result), o.output);
}

}  // namespace fovea::cli
