#include "fovea/models/sentence_encoder.h"

#include <algorithm>
#include <string>

#include "fovea/core/error.h"

namespace fovea::models {

SentenceEncoder::SentenceEncoder(const SentenceFolder& folder, ModelFolder::Packed weights)
    : folder_(folder) {
  const ModelFolder model(folder.model);
  const std::optional<FamilyKind> kind = family_kind(model.config());
  if (kind == FamilyKind::translator)
    throw FileError(config_path(folder.model).string(), -1,
                    "expected an encoder or a language model, got a translator");
  if (kind == FamilyKind::encoder) {
    encoder_ = std::make_unique<TextEncoder>(model.text_encoder(weights));
    const FamilyConfig config = read_family(model.config()).config;
    vocabulary_ = config.vocabulary;
    positions_ = config.positions;
  } else {
    language_model_ = std::make_unique<LanguageModel>(model.language_model(weights));
    vocabulary_ = language_model_->config().vocabulary;
    positions_ = language_model_->longest();
  }
}

Tensor SentenceEncoder::hidden(std::span<const std::vector<std::int32_t>> sequences) const {
  nn::Context inference;
  if (encoder_) return encoder_->hidden(inference, sequences).value();
  // One alone has no padding, whose rows would be computed for nothing.
  return language_model_->hidden(inference, pad(sequences)).value();
}

RowRange SentenceEncoder::pooled(std::int64_t begin, std::int64_t count, std::int64_t prompt_ids) const {
  const std::int64_t skipped = folder_.pools_prompt ? 0 : prompt_ids;
  if (skipped >= count)
    throw InvalidArgument("SentenceEncoder::vectors", "sequences",
                          "ids behind those of the prompt, which do not count", "none");
  return {begin + skipped, count - skipped};
}

Tensor SentenceEncoder::vectors(std::span<const std::vector<std::int32_t>> sequences, std::int64_t prompt_ids,
                                const std::function<bool(std::int64_t)>& before) const {
  constexpr std::size_t most_ids = 4096;  // at once: enough rows for products, and 50 MB of activations
  Tensor all;
  for (std::size_t begin = 0, end = 0; begin < sequences.size(); begin = end) {
    if (before && !before(static_cast<std::int64_t>(begin))) break;
    std::size_t ids = sequences[begin].size();
    end = begin + 1;
    for (; encoder_ && end < sequences.size() && ids + sequences[end].size() <= most_ids; ++end)
      ids += sequences[end].size();
    const auto texts = sequences.subspan(begin, end - begin);
    const Tensor rows = hidden(texts);
    std::vector<RowRange> read;
    for (std::int64_t row = 0; const std::vector<std::int32_t>& text : texts) {
      read.push_back(pooled(row, std::ssize(text), prompt_ids));
      row += std::ssize(text);
    }
    const Tensor vectors = folder_.pooling.apply(rows, read);
    const std::int64_t width = vectors.size(1), dim = std::min(folder_.truncate_dim.value_or(width), width);
    if (!all) all = Tensor::zeros(DType::f32, {std::ssize(sequences), dim});
    for (std::int64_t n = 0; n < vectors.size(0); ++n)
      std::copy_n(vectors.data<float>() + n * width, dim,
                  all.data<float>() + (static_cast<std::int64_t>(begin) + n) * dim);
  }
  return all;
}

}  // namespace fovea::models
