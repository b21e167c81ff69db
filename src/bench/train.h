// `fovea bench train`: updates of small models, by the number of threads, with the share of each part of the
// work and of the machine's peak.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/beside.h"
#include "fovea/autograd/operands.h"

namespace fovea::bench {

struct TrainBench {
  std::vector<std::string> models{"transformer", "rnn", "language"};
  std::vector<int> threads{1, 2};
  std::vector<autograd::Operands> precisions{autograd::Operands::f32};  ///< they run in turns too
  std::int64_t vocabulary = 9712;   ///< of the translators: that of Multi30k in 10k sub-words
  std::int64_t batch_words = 2048;  ///< of a side of the translators' batches, and of the language model's
  std::int64_t rounds = 5;          ///< turns of each number of threads
  std::int64_t updates = 6;         ///< of a turn
  /// PyTorch, which takes a turn behind each of Fovea's: the same layers, weights and batch.
  RivalsOptions rivals{.python = "none",
                       .script = "bench/train_rivals.py",
                       .names = {"torch eager", "torch compiled"},
                       .without = {}};
};
/// The names that TrainBench::models may have.
std::vector<std::string> train_models();

struct TrainRow {
  std::string model;
  autograd::Operands precision = autograd::Operands::f32;
  int threads = 1;
  double seconds = 0.0;            ///< of an update: the median of all turns
  double tokens_per_second = 0.0;  ///< that the loss counts
  /// The time of all multiply-adds at the measured peaks of these threads (Peaks), over the time of an
  /// update.
  double share = 0.0;
  std::vector<RivalTime> rivals = {};
  std::vector<std::pair<std::string, double>>
      parts;  ///< of the time of all threads, largest first; they add up to 1
};

/// Calls `tell` for each model, number of threads and precision. These run in turns, so that other work
/// of the machine slows all of them alike. A rival's loss and gradient norm of the first batch are compared
/// with Fovea's before, without dropout in f32. Where rounding does not explain a difference, it is refused.
/// Throws InvalidArgument for an unknown model.
void measure_training(const TrainBench& bench, const std::function<void(const TrainRow&)>& tell);

}  // namespace fovea::bench
