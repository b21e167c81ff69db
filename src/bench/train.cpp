#include "bench/train.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "bench/shares.h"
#include "bench/timing.h"
#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/models/language_model.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/nn/optimizer.h"

namespace fovea::bench {
namespace {

using autograd::CrossEntropyStats;

// A model that is trained on one batch again and again, so reading data costs no time.
class Contender {
 public:
  virtual ~Contender() = default;
  /// One update; returns the tokens that its loss counts.
  std::int64_t update(autograd::Operands precision) {
    if (!adam_) adam_.emplace(parameters(), nn::AdamOptions{.beta2 = 0.98, .clip_norm = 1.0});
    autograd::Tape tape(precision);
    nn::Context context{&tape, static_cast<std::uint64_t>(adam_->steps()), 0};
    CrossEntropyStats stats;
    tape.backward(loss(context, &stats));
    adam_->step(1e-4);
    return stats.tokens;
  }

 private:
  virtual nn::ParameterSet& parameters() = 0;
  virtual nn::Var loss(nn::Context& context, CrossEntropyStats* stats) = 0;
  std::optional<nn::Adam> adam_;
};

// Sentences of 8 to 20 tokens in both languages, as Multi30k's are (mean 14), in one batch.
models::Batch sentences(std::int64_t words, std::int64_t vocabulary) {
  models::Batch batch;
  const std::int64_t mean = 14;
  batch.size = std::max<std::int64_t>(words / mean, 1);
  for (std::int64_t n = 0; n < batch.size; ++n) {
    batch.source_lengths.push_back(drawn(1, n, 8, 20));
    batch.target_lengths.push_back(drawn(2, n, 8, 20));
  }
  batch.source_len = *std::max_element(batch.source_lengths.begin(), batch.source_lengths.end());
  batch.target_len = *std::max_element(batch.target_lengths.begin(), batch.target_lengths.end());
  for (std::int64_t n = 0; n < batch.size; ++n) {
    const auto entry = static_cast<std::size_t>(n);
    for (std::int64_t t = 0; t < batch.source_len; ++t)
      batch.source.push_back(t < batch.source_lengths[entry]
                                 ? static_cast<std::int32_t>(drawn(3, n * 64 + t, 4, vocabulary - 1))
                                 : 0);
    for (std::int64_t t = 0; t < batch.target_len; ++t) {
      const bool there = t < batch.target_lengths[entry];
      const auto id = static_cast<std::int32_t>(drawn(4, n * 64 + t, 4, vocabulary - 1));
      batch.target_input.push_back(there ? id : 0);
      batch.target_output.push_back(there ? id : -1);
    }
  }
  return batch;
}

class Translator final : public Contender {
 public:
  Translator(std::unique_ptr<models::SequenceToSequence> model, models::Batch batch)
      : model_(std::move(model)), batch_(std::move(batch)) {}

 private:
  nn::ParameterSet& parameters() override { return model_->parameters(); }
  nn::Var loss(nn::Context& context, CrossEntropyStats* stats) override {
    return model_->loss(context, batch_, {.smoothing = 0.1f, .reduction = {.scale = 1e-3f}}, stats);
  }
  std::unique_ptr<models::SequenceToSequence> model_;
  models::Batch batch_;
};

class Writer final : public Contender {
 public:
  explicit Writer(std::int64_t words) : model_({.vocabulary = 256, .dropout = 0.1f}, 1) {
    constexpr std::int64_t length = 256;
    text_.size = std::max<std::int64_t>(words / length, 1);
    text_.length = length;
    text_.lengths.assign(static_cast<std::size_t>(text_.size), length);
    for (std::int64_t n = 0; n < text_.size * length; ++n)
      text_.ids.push_back(static_cast<std::int32_t>(drawn(5, n, 0, 255)));
  }

 private:
  nn::ParameterSet& parameters() override { return model_.parameters(); }
  nn::Var loss(nn::Context& context, CrossEntropyStats* stats) override {
    return model_.loss(context, text_, {.reduction = {.scale = 1e-3f}}, stats);
  }
  models::LanguageModel model_;
  models::Padded text_;
};

// The Transformer-Tiny of Wu et al. 2021 (arXiv 2105.14462), the RNN of experiments/multi30k.sh, and a
// language model of characters.
std::unique_ptr<Contender> contender(const std::string& name, const TrainBench& bench) {
  if (name == "language") return std::make_unique<Writer>(bench.batch_words);
  models::Batch batch = sentences(bench.batch_words, bench.vocabulary);
  if (name == "transformer")
    return std::make_unique<Translator>(
        models::make_transformer({.vocabulary = bench.vocabulary, .dropout = 0.2f}, 1), std::move(batch));
  if (name == "base")
    return std::make_unique<Translator>(models::make_transformer({.vocabulary = bench.vocabulary,
                                                                  .dim = 512,
                                                                  .feed_forward = 2048,
                                                                  .heads = 8,
                                                                  .encoder_layers = 6,
                                                                  .decoder_layers = 6,
                                                                  .dropout = 0.1f},
                                                                 1),
                                        std::move(batch));
  if (name == "rnn")
    return std::make_unique<Translator>(
        models::make_rnn({.vocabulary = bench.vocabulary, .embedding = 128, .dropout = 0.2f}, 1),
        std::move(batch));
  throw InvalidArgument("measure_training", "models", "transformer, base, rnn or language", name);
}

double seconds_of(Contender& model, autograd::Operands precision, std::int64_t updates,
                  std::int64_t* tokens) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t n = 0; n < updates; ++n) *tokens = model.update(precision);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(updates);
}

struct Turns {
  Peaks peaks;
  std::vector<double> seconds = {};  // of an update
  RivalTurns rivals = {};            // likewise
};

nlohmann::json request_of(const TrainBench& bench, const std::string& model) {
  const models::Batch batch = sentences(bench.batch_words, bench.vocabulary);
  std::vector<std::string> precisions;
  for (const autograd::Operands one : bench.precisions) precisions.emplace_back(autograd::to_string(one));
  return {{"model", model},
          {"vocabulary", bench.vocabulary},
          {"source_lengths", batch.source_lengths},
          {"target_lengths", batch.target_lengths},
          {"threads", bench.threads},
          {"precisions", precisions}};
}

void describe(Contender& model, const TrainBench& bench, TrainRow& row, const Peaks& peaks) {
  Profile profile(0);
  std::int64_t tokens = 0;
  seconds_of(model, row.precision, bench.updates, &tokens);
  profile.stop();
  Shares shares = shares_of(profile, row.threads);
  row.parts = std::move(shares.parts);
  row.share = peaks.least_seconds(shares) / static_cast<double>(bench.updates) / row.seconds;
}

}  // namespace

std::vector<std::string> train_models() {
  return {"transformer", "base", "rnn", "language"};
}

void measure_training(const TrainBench& bench, const std::function<void(const TrainRow&)>& tell) {
  RivalsOptions options = bench.rivals;
  options.threads = *std::max_element(bench.threads.begin(), bench.threads.end());
  Rivals rivals(options);
  for (const std::string& name : bench.models) {
    const std::unique_ptr<Contender> model = contender(name, bench);
    const Beside beside(rivals, options, request_of(bench, name));
    std::map<std::pair<int, autograd::Operands>, Turns> turns;
    std::int64_t tokens = 0;
    for (const autograd::Operands precision : bench.precisions)
      model->update(precision);  // memory, threads and code are warm after it
    for (std::int64_t round = 0; round < bench.rounds; ++round) {
      for (const int threads : bench.threads) {
        nn::use_threads(threads);
        for (const autograd::Operands precision : bench.precisions) {
          Turns& turn = turns.try_emplace({threads, precision}, Turns{Peaks(products_of(precision), threads)})
                            .first->second;
          turn.seconds.push_back(seconds_of(*model, precision, bench.updates, &tokens));
          turn.peaks.measure();
          beside.run(bench.updates, {{"threads", threads}, {"precision", autograd::to_string(precision)}},
                     turn.rivals);
        }
      }
    }
    for (const int threads : bench.threads) {
      nn::use_threads(threads);
      for (const autograd::Operands precision : bench.precisions) {
        const Turns& turn = turns.at({threads, precision});
        TrainRow row{.model = name,
                     .precision = precision,
                     .threads = threads,
                     .seconds = median(turn.seconds),
                     .rivals = beside.times(turn.rivals),
                     .parts = {}};
        row.tokens_per_second = static_cast<double>(tokens) / row.seconds;
        describe(*model, bench, row, turn.peaks);
        tell(row);
      }
    }
  }
  nn::use_threads(0);
}

}  // namespace fovea::bench
