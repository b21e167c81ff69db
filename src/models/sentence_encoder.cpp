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

Tensor SentenceEncoder::pooled(const Tensor& rows, std::int64_t begin, std::int64_t count,
                               std::int64_t prompt_ids) const {
  const std::int64_t skipped = folder_.pools_prompt ? 0 : prompt_ids;
  if (skipped >= count)
    throw InvalidArgument("SentenceEncoder::vectors", "sequences",
                          "ids behind those of the prompt, which do not count", "none");
  return folder_.pooling.apply(autograd::slice(nn::Var(rows), 1, begin + skipped, count - skipped).value());
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
    const Tensor rows = hidden(sequences.subspan(begin, end - begin));
    for (std::int64_t row = 0; begin < end; ++begin) {
      const std::int64_t count = std::ssize(sequences[begin]);
      const Tensor vector = pooled(rows, row, count, prompt_ids);
      const std::int64_t dim = std::min(folder_.truncate_dim.value_or(vector.count()), vector.count());
      if (!all) all = Tensor::zeros(DType::f32, {std::ssize(sequences), dim});
      std::copy_n(vector.data<float>(), dim, all.data<float>() + static_cast<std::int64_t>(begin) * dim);
      row += count;
    }
  }
  return all;
}

}  // namespace fovea::models
