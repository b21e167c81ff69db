// Why a plan of a recurrence, a scan or a convolution does not run a better kernel.
#pragma once

#include <string>
#include <string_view>

#include "fovea/core/kept_vector.h"

namespace fovea {

/// A candidate that would be better but does not run, and why. Both texts last as long as the program, so a
/// plan asks for no memory to hold them.
struct RecurrenceRefusal {
  std::string_view name;
  const char* reason = nullptr;
};

/// "refused avx512 chunked: this CPU lacks the instructions".
inline std::string text_of(const RecurrenceRefusal& refusal) {
  return "refused " + std::string(refusal.name) + ": " + refusal.reason;
}

/// "; " and that text, for each.
inline std::string text_of(const KeptVector<RecurrenceRefusal>& refusals) {
  std::string text;
  for (const RecurrenceRefusal& refusal : refusals) text += "; " + text_of(refusal);
  return text;
}

}  // namespace fovea
