// `fovea bench translate` and `fovea bench generate`: small models at work, by the number of threads and the
// type of their weights. A row says the share of each part of the work, and of the machine's limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/beside.h"
#include "fovea/autograd/packed.h"

namespace fovea::bench {

/// What both benches have. Every combination of threads, weights and width runs in each round.
struct InferenceBench {
  std::vector<std::string> models;
  std::vector<int> threads{1, 2};
  std::vector<autograd::WeightType> weights{autograd::WeightType::f32};
  /// Of translation: hypotheses of a beam, 1 for greedy search. Of generation: texts that are written at
  /// once.
  std::vector<std::int64_t> widths;
  std::int64_t rounds = 5;
  std::int64_t vocabulary = 9712;  ///< of translators: that of Multi30k in 10k sub-words
  std::int64_t sentences = 256;    ///< to translate; 8 to 20 tokens each, as those of Multi30k
  std::int64_t batch = 32;         ///< sentences of a batch
  std::int64_t prompt = 64;        ///< tokens that a text begins with
  std::int64_t tokens = 192;       ///< tokens that are written behind them
  /// Who takes a turn behind each of Fovea's with the same weights and texts: CTranslate2, and transformers
  /// (generation_rivals). An RNN has no rival.
  RivalsOptions rivals{.python = "none",
                       .script = "bench/translate_rivals.py",
                       .names = {"ctranslate2 f32", "ctranslate2 int8"},
                       .without = {}};
};
/// Those of generation, without a Python.
RivalsOptions generation_rivals();
/// The names that InferenceBench::models may have.
std::vector<std::string> translation_models();
std::vector<std::string> generation_models();

struct InferenceRow {
  std::string model;
  autograd::WeightType weights = autograd::WeightType::f32;
  std::int64_t width = 1;
  int threads = 1;
  double seconds = 0.0;            ///< of the whole task: the median of all rounds
  double tokens_per_second = 0.0;  ///< written
  double per_second = 0.0;         ///< sentences, or texts
  /// The time of all multiply-adds at the measured peaks of these threads (Peaks), over the time of the task.
  double share = 0.0;
  std::vector<RivalTime> rivals = {};
  std::vector<std::pair<std::string, double>> parts;  ///< of the time of all threads, largest first
};

/// Translates random sentences by untrained models: the time does not depend on the values of the weights. A
/// translation is as long as the longest sentence of its batch. Batches run side by side, each on one thread,
/// as in `fovea translate`. Throws InvalidArgument for an unknown model.
void measure_translation(const InferenceBench& bench, const std::function<void(const InferenceRow&)>& tell);
/// Writes texts by untrained language models, greedily, with a cache. One text is written by
/// models::generate, several by a models::Batcher. Throws InvalidArgument for an unknown model.
void measure_generation(const InferenceBench& bench, const std::function<void(const InferenceRow&)>& tell);

}  // namespace fovea::bench
