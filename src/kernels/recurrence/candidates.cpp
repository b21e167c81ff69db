#include <vector>

#include "kernels/recurrence/chunked.h"
#include "kernels/recurrence/reference.h"

namespace fovea::kernels {

std::span<const RecurrenceCandidate> recurrence_candidates() {
  static const std::vector<RecurrenceCandidate> list = [] {
    std::vector<RecurrenceCandidate> all = bf16_recurrence_candidates();
    for (const auto& more : {chunked_recurrence_candidates(), portable_bf16_recurrence_candidates()})
      all.insert(all.end(), more.begin(), more.end());
    all.push_back(recurrence_reference_candidate());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
