// What trainings of any model have in common: the folder that they write to, and the names of their texts.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/train_options.h"
#include "fovea/core/error.h"

namespace fovea::cli {

namespace {
// What a training writes before its first checkpoint, or with it.
constexpr const char* files_before_checkpoint[] = {"spm.model", "vocab.json", "training.json", "config.json",
                                                   "model.safetensors"};
}  // namespace

void check_output(const TrainCommand& o) {
  namespace fs = std::filesystem;
  if (o.output.empty()) throw InvalidArgument("fovea train", "--output", "a folder", "an empty text");
  std::error_code error;
  const bool trained = fs::exists(fs::path(o.output) / "checkpoint.safetensors", error);
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

NewTraining::NewTraining(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::weakly_canonical(folder_, error);
  for (; !error && !std::filesystem::exists(at, error) && at.has_relative_path(); at = at.parent_path())
    made_.push_back(at);
  for (const char* name : files_before_checkpoint) {
    if (!std::filesystem::exists(folder_ / name, error)) new_files_.push_back(folder_ / name);
  }
}

NewTraining::~NewTraining() {
  std::error_code error;
  if (std::filesystem::exists(folder_ / "checkpoint.safetensors", error)) return;
  for (const std::filesystem::path& file : new_files_) std::filesystem::remove(file, error);
  // Unless they have other files.
  for (const std::filesystem::path& folder : made_) std::filesystem::remove(folder, error);
}

train::Result run_named(const TrainCommand& o, const std::function<train::Result()>& train) {
  const bool language = o.model == "language";
  try {
    return train();
  } catch (const InvalidArgument& error) {
    const bool of_train = error.argument() == "data.train";
    if (!of_train && error.argument() != "data.valid") throw;
    const std::string& table = of_train ? o.train_tsv : o.valid_tsv;
    std::string option = of_train ? "--train-" : "--valid-";
    option += language ? "text" : table.empty() ? "source" : "tsv";
    if (!o.corpus.empty()) option = "--corpus";
    const std::string limit =
        language ? " (--window)" : fmt::format(" of at most {} pieces (--max-length)", o.max_length);
    throw InvalidArgument("fovea train", option, error.expected() + limit, error.got());
  }
}

void NewTraining::save(const text::Tokenizer& tokenizer) {
  std::filesystem::create_directories(folder_);
  tokenizer.save(folder_);
}

}  // namespace fovea::cli
