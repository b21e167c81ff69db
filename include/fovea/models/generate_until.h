// Generation up to a place that the caller finds in what is written, such as a stop string
// (text::StopStrings).
#pragma once

#include <functional>
#include <span>

#include "fovea/models/language_model.h"

namespace fovea::models {

/// Called behind each token with all that are written: true ends the text.
using EndsText = std::function<bool(std::span<const std::int32_t> written)>;

/// `generate` until `ends` returns true, or options.length tokens are written. The token behind which the
/// text ended is the last one. Throws what `generate` throws, and what `ends` throws.
Generated generate_until(LanguageModel& model, std::span<const std::int32_t> prompt,
                         const SampleOptions& options, const EndsText& ends);
/// The same behind what `sequence` has read.
Generated generate_until(LanguageModel& model, KvCache& cache, Sequence& sequence,
                         std::span<const std::int32_t> prompt, const SampleOptions& options,
                         const EndsText& ends);

}  // namespace fovea::models
