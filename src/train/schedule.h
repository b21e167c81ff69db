// Where the learning rate of a training ends.
#pragma once

#include <cstdint>

#include "fovea/nn/optimizer.h"

namespace fovea::train {

/// `schedule`; a WarmupCosine without an end gets `updates` as its end, where that is not 0.
inline nn::Schedule ending_at(nn::Schedule schedule, std::int64_t updates) {
  if (auto* cosine = std::get_if<nn::WarmupCosine>(&schedule); cosine && cosine->updates == 0)
    cosine->updates = updates;
  return schedule;
}

/// Whether `schedule` is a WarmupCosine without an end.
inline bool is_endless(const nn::Schedule& schedule) {
  const auto* cosine = std::get_if<nn::WarmupCosine>(&schedule);
  return cosine && cosine->updates == 0;
}

}  // namespace fovea::train
