// `fovea bench train`: updates of small models, by the number of threads, with the share of each part of the
// work and of the machine's peak.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fovea::bench {

struct TrainBench {
  std::vector<std::string> models{"transformer", "rnn", "language"};
  std::vector<int> threads{1, 2};
  std::int64_t vocabulary = 9712;   ///< of the translators: that of Multi30k in 10k sub-words
  std::int64_t batch_words = 2048;  ///< of a side of the translators' batches, and of the language model's
  std::int64_t rounds = 5;          ///< turns of each number of threads
  std::int64_t updates = 6;         ///< of a turn
};
/// The names that TrainBench::models may have.
std::vector<std::string> train_models();

struct TrainRow {
  std::string model;
  int threads = 1;
  double seconds = 0.0;            ///< of an update: the median of all turns
  double tokens_per_second = 0.0;  ///< that the loss counts
  double share = 0.0;  ///< the time of the layers' products, without those of attention, at the measured peak of these threads, over the time of
                       ///< an update
  std::vector<std::pair<std::string, double>>
      parts;  ///< of an update's time, largest first; they add up to 1
};

/// Calls `tell` for each model and number of threads. The numbers of threads run in turns, so that other work
/// of the machine slows all of them alike. Throws InvalidArgument for an unknown model.
void measure_training(const TrainBench& bench, const std::function<void(const TrainRow&)>& tell);

}  // namespace fovea::bench
