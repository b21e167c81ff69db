#include "fovea/train/sentence_embedder.h"

#include <algorithm>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/models/model_folder.h"
#include "fovea/train/coder.h"

namespace fovea::train {
namespace {

models::SentenceFolder folder_of(const std::filesystem::path& path) {
  std::optional<models::SentenceFolder> folder = models::read_sentence_folder(path);
  if (!folder) {
    const models::ModelFolder model(path);  // says what the path is if it is no folder of a model
    throw FileError(path.string(), -1, "has no modules.json, which says how vectors of sentences are made");
  }
  return std::move(*folder);
}

}  // namespace

SentenceEmbedder::SentenceEmbedder(const std::filesystem::path& folder, autograd::WeightType weights)
    : folder_(folder_of(folder)), encoder_(folder_, weights) {}

const text::FolderTokenizer& SentenceEmbedder::read() {
  if (!read_) read_ = text::read_folder_tokenizer(folder_.model);
  return *read_;
}

text::Encoding SentenceEmbedder::encoding(const std::string& text) {
  const std::int64_t longest = folder_.longest(read().max_length, encoder_.positions());
  text::Encoding encoding =
      read().tokenizer.encode(text, {.max_length = longest, .cut_side = read().cut_side});
  check_ids("the tokenizer", "text", encoding.ids, encoder_.vocabulary(),
            [this](std::int32_t id) { return read().tokenizer.token(id); });
  return encoding;
}

std::vector<std::int32_t> SentenceEmbedder::ids(const std::string& text, const std::string& prompt) {
  return encoding(prompt + text).ids;
}

// As sentence-transformers counts them: the ids of the prompt alone, without a special one at their end.
std::int64_t SentenceEmbedder::prompt_ids(const std::string& prompt) {
  if (prompt.empty()) return 0;
  const text::Encoding alone = encoding(prompt);
  const bool ends =
      alone.size() > 0 && (alone.special.back() != 0 || read().tokenizer.is_special(alone.ids.back()));
  return std::ssize(alone.ids) - (ends ? 1 : 0);
}

Tensor SentenceEmbedder::vectors(std::span<const std::string> texts, const std::string& prompt,
                                 const std::function<bool(std::int64_t)>& before) {
  std::vector<std::vector<std::int32_t>> sequences;
  for (const std::string& text : texts) {
    sequences.push_back(ids(text, prompt));
    const std::int64_t count = std::ssize(sequences.back());
    const auto refuse = [&](std::string expected) {
      throw InvalidArgument("SentenceEmbedder", "text " + std::to_string(sequences.size()),
                            std::move(expected), std::to_string(count));
    };
    if (count == 0) refuse("at least one id");
    if (count > encoder_.positions())
      refuse("at most the " + std::to_string(encoder_.positions()) + " ids that the model reads");
  }
  return encoder_.vectors(sequences, prompt_ids(prompt), before);
}

}  // namespace fovea::train
