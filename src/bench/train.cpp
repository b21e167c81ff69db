#include "bench/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "bench/measure.h"
#include "bench/shares.h"
#include "bench/timing.h"
#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"
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
  struct Update {
    std::int64_t tokens = 0;     // that the loss counts
    double loss = 0.0;           // a token, nats
    double gradient_norm = 0.0;  // of that loss, by all parameters
  };
  Update update(autograd::Operands precision) {
    if (!adam_) adam_.emplace(parameters(), nn::AdamOptions{.beta2 = 0.98, .clip_norm = 1.0});
    autograd::Tape tape(precision);
    nn::Context context{&tape, static_cast<std::uint64_t>(adam_->steps()), 0};
    CrossEntropyStats stats;
    tape.backward(loss(context, &stats));
    const double norm = adam_->step(1e-4);
    const auto tokens = static_cast<double>(stats.tokens);
    return {stats.tokens, stats.loss / tokens, norm / (double{loss_scale} * tokens)};
  }
  /// What rivals prepare, who read the weights from a file in `folder`. A model without one has no weights
  /// there, and the script says that it knows no such model.
  virtual nlohmann::json rival_request(const std::filesystem::path&) { return nlohmann::json::object(); }

 protected:
  static constexpr float loss_scale = 1e-3f;

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

// A model without dropout has the same first weights, which depend on the seed and the names alone.
enum class Dropout : std::uint8_t { on, off };
float rate(Dropout dropout, float value) {
  return dropout == Dropout::on ? value : 0.0f;
}

class Translator final : public Contender {
 public:
  Translator(std::unique_ptr<models::SequenceToSequence> model, models::Batch batch)
      : model_(std::move(model)), batch_(std::move(batch)) {}
  nlohmann::json rival_request(const std::filesystem::path& folder) override {
    models::save_model(folder.string(), *model_);
    return {{"weights", (folder / "model.safetensors").string()},
            {"vocabulary", model_->vocabulary()},
            {"source", batch_.source},
            {"target", batch_.target_input},
            {"source_lengths", batch_.source_lengths},
            {"target_lengths", batch_.target_lengths}};
  }

 private:
  nn::ParameterSet& parameters() override { return model_->parameters(); }
  nn::Var loss(nn::Context& context, CrossEntropyStats* stats) override {
    return model_->loss(context, batch_, {.smoothing = 0.1f, .reduction = {.scale = loss_scale}}, stats);
  }
  std::unique_ptr<models::SequenceToSequence> model_;
  models::Batch batch_;
};

class Writer final : public Contender {
 public:
  Writer(std::int64_t words, Dropout dropout)
      : model_({.vocabulary = 256, .dropout = rate(dropout, 0.1f)}, 1) {
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
    return model_.loss(context, text_, {.reduction = {.scale = loss_scale}}, stats);
  }
  models::LanguageModel model_;
  models::Padded text_;
};

// The Transformer-Tiny of Wu et al. 2021 (arXiv 2105.14462), the RNN of experiments/multi30k.sh, and a
// language model of characters.
std::unique_ptr<Contender> contender(const std::string& name, const TrainBench& bench,
                                     Dropout dropout = Dropout::on) {
  if (name == "language") return std::make_unique<Writer>(bench.batch_words, dropout);
  models::Batch batch = sentences(bench.batch_words, bench.vocabulary);
  if (name == "transformer")
    return std::make_unique<Translator>(
        models::make_transformer({.vocabulary = bench.vocabulary, .dropout = rate(dropout, 0.2f)}, 1),
        std::move(batch));
  if (name == "base")
    return std::make_unique<Translator>(models::make_transformer({.vocabulary = bench.vocabulary,
                                                                  .dim = 512,
                                                                  .feed_forward = 2048,
                                                                  .heads = 8,
                                                                  .encoder_layers = 6,
                                                                  .decoder_layers = 6,
                                                                  .dropout = rate(dropout, 0.1f)},
                                                                 1),
                                        std::move(batch));
  if (name == "rnn")
    return std::make_unique<Translator>(
        models::make_rnn({.vocabulary = bench.vocabulary, .embedding = 128, .dropout = rate(dropout, 0.2f)},
                         1),
        std::move(batch));
  throw InvalidArgument("measure_training", "models", "transformer, base, rnn or language", name);
}

double seconds_of(Contender& model, autograd::Operands precision, std::int64_t updates,
                  std::int64_t* tokens) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t n = 0; n < updates; ++n) *tokens = model.update(precision).tokens;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(updates);
}

struct Turns {
  Peaks peaks;
  std::vector<double> seconds = {};  // of an update
  RivalTurns rivals = {};            // likewise
};

nlohmann::json request_of(const TrainBench& bench, const std::string& name, Contender& model,
                          const std::filesystem::path& folder) {
  nlohmann::json request = model.rival_request(folder);
  std::vector<std::string> precisions;
  for (const autograd::Operands one : bench.precisions) precisions.emplace_back(autograd::to_string(one));
  request.update({{"model", name}, {"threads", bench.threads}, {"precisions", precisions}});
  return request;
}

// Errors of a sum in f32 grow as the root of its length times the unit of rounding. The longest sums go over
// the vocabulary in a loss, and over the words of the batch in a gradient.
double rounding(const TrainBench& bench) {
  return std::numeric_limits<float>::epsilon() *
         std::sqrt(static_cast<double>(std::max(bench.vocabulary, bench.batch_words)));
}

// What of the rival's first update is not Fovea's, without dropout; "" if weights, batch and layers are the
// same.
std::string difference(const Contender::Update& ours, const nlohmann::json& theirs, double tolerance) {
  const auto other_number = [&](const char* what, double own, const char* key) -> std::string {
    const double other = theirs.contains(key) && theirs[key].is_number()
                             ? theirs[key].get<double>()
                             : std::numeric_limits<double>::quiet_NaN();
    if (std::abs(other - own) <= tolerance * std::abs(own)) return {};
    char text[192];
    std::snprintf(text, sizeof text,
                  "the %s of the first batch is %.8g, Fovea's is %.8g, by the same weights (tolerance %.1e)",
                  what, other, own, tolerance);
    return text;
  };
  const std::string loss = other_number("loss", ours.loss, "loss");
  return loss.empty() ? other_number("gradient norm", ours.gradient_norm, "gradient_norm") : loss;
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
    const WorkFolder folder;
    Contender::Update first;  // for those who are compared with it
    const Beside beside(
        rivals, options,
        [&] {
          first = contender(name, bench, Dropout::off)->update(autograd::Operands::f32);
          return request_of(bench, name, *model, folder.path());
        },
        [&](const nlohmann::json& prepared) { return difference(first, prepared, rounding(bench)); });
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
