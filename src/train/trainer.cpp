#include "fovea/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "fovea/core/philox.h"
#include "fovea/models/decoding.h"
#include "fovea/models/model_folder.h"
#include "train/checkpoint.h"
#include "train/early_stopping.h"
#include "train/record.h"

namespace fovea::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// FNV-1a over the ids, to check that a checkpoint belongs to the data.
std::uint64_t hash_of(const std::vector<Example>& examples) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u;
  };
  for (const Example& example : examples) {
    for (const auto* side : {&example.source, &example.target}) {
      mix(static_cast<std::int64_t>(side->size()));
      for (const std::int32_t id : *side) mix(id);
    }
  }
  return hash;
}

// A new dropout seed every step, a function of seed and step alone.
std::uint64_t dropout_seed(std::uint64_t seed, std::int64_t update) {
  const auto words =
      philox4x32({static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32), 1, 0}, seed);
  return words[0] | (std::uint64_t{words[1]} << 32);
}

class Trainer {
 public:
  Trainer(models::SequenceToSequence& model, const Data& data, const TrainOptions& options,
          Listener& listener, const std::function<bool()>& should_stop)
      : model_(model),
        data_(data),
        options_(options),
        listener_(listener),
        should_stop_(should_stop),
        adam_(model.parameters(), options.adam) {
    if (data.train.empty()) throw InvalidArgument("train", "data.train", "at least one pair", "none");
    if (data.valid.empty()) throw InvalidArgument("train", "data.valid", "at least one pair", "none");
    std::error_code error;
    std::filesystem::create_directories(options.folder, error);
    if (error) throw FileError(options.folder, -1, "cannot be made: " + error.message());
    record_ = record_of(options, hash_of(data.train), hash_of(data.valid));
    fingerprint_ = "data " + std::to_string(hash_of(data.train)) + ", seed " + std::to_string(options.seed) +
                   ", batch words " + std::to_string(options.batch_words) + ", model " + model.config();
  }

  Result run(Start start) {
    // Written before the first checkpoint, so that every checkpoint has its record, wherever a training is
    // killed.
    if (start == Start::fresh) save_record(options_.folder, record_, state_);
    if (start == Start::resume) {
      for (const std::string& change : check_record(options_.folder, record_)) listener_.on_message(change);
      state_ = load_checkpoint(options_.folder, fingerprint_, model_.parameters(), adam_);
      listener_.on_message("resumed at update " + std::to_string(state_.update) + ", epoch " +
                           std::to_string(state_.epoch + 1));
    }
    started_ = now() - state_.seconds;
    try {
      if (state_.validation_due) validate();
      // The process was killed while finishing after patience had run out: finish again, without further
      // training.
      const Ended ended = out_of_patience() ? Ended::no_improvement : loop();
      if (ended == Ended::stopped) return stopped(true);
      if (state_.curve.empty() || state_.curve.back().update != state_.update) validate();
      return finish(ended);
    } catch (const StopRequested&) {
      return stopped(state_.validation_due);
    }
  }

 private:
  // Thrown out of a validation, caught in run.
  struct StopRequested {};

  // While finishing, the parameters may be averages. Everything else was saved by the last validation.
  Result stopped(bool to_save) {
    if (to_save) save();
    return {Ended::stopped, state_.curve, state_.curve.empty() ? Validation{} : state_.curve.back(), false};
  }

  bool out_of_patience() const {
    return options_.patience > 0 && state_.without_improvement >= options_.patience;
  }

  Ended loop() {
    for (; !limit_reached(); ++state_.epoch, state_.batch = 0) {
      const auto batches = make_batches(data_.train, options_.batch_words, options_.seed, state_.epoch);
      for (; state_.batch < static_cast<std::int64_t>(batches.size());) {
        if (limit_reached()) return Ended::finished;
        if (should_stop_()) return Ended::stopped;
        step(gather_batch(data_.train, batches[static_cast<std::size_t>(state_.batch)]),
             static_cast<std::int64_t>(batches.size()));
        const bool due = options_.validate_every > 0 && state_.update % options_.validate_every == 0;
        if (due && validate()) return Ended::no_improvement;
        if (!due && options_.save_every > 0 && state_.update % options_.save_every == 0) save();
      }
      if (options_.validate_every == 0) {
        ++state_.epoch;  // the checkpoint of an epoch's end stands at the next one's beginning
        state_.batch = 0;
        const bool stop = validate();  // and where a stop comes out of it, the state stands there too
        --state_.epoch;
        if (stop) return Ended::no_improvement;
      }
    }
    return Ended::finished;
  }

  bool limit_reached() const {
    return (options_.max_updates > 0 && state_.update >= options_.max_updates) ||
           (options_.max_epochs > 0 && state_.epoch >= options_.max_epochs) ||
           (options_.max_minutes > 0 && now() - started_ >= options_.max_minutes * 60.0);
  }

  void step(const models::Batch& batch, std::int64_t batches) {
    const double begin = now();
    const std::int64_t target =
        std::accumulate(batch.target_lengths.begin(), batch.target_lengths.end(), std::int64_t{0});
    const std::int64_t source =
        std::accumulate(batch.source_lengths.begin(), batch.source_lengths.end(), std::int64_t{0});
    autograd::Tape tape;
    nn::Context context{&tape, dropout_seed(options_.seed, state_.update), 0};
    autograd::CrossEntropyStats stats;
    const nn::Var loss =
        model_.loss(context, batch, {options_.smoothing, 1.0f / static_cast<float>(target)}, &stats);
    tape.backward(loss);
    ++state_.update;
    ++state_.batch;
    const double rate = nn::learning_rate(options_.schedule, state_.update);
    const double norm = std::isfinite(stats.loss) ? adam_.step(rate) : stats.loss;
    if (!std::isfinite(norm)) {
      const std::string layer = adam_.first_bad_gradient();
      throw TrainingError(state_.update, layer.empty() ? "the loss" : layer);
    }
    state_.loss_sum += stats.loss;
    state_.loss_tokens += stats.tokens;
    const double elapsed = now() - begin;
    speed_ = speed_ == 0.0 ? static_cast<double>(source + target) / elapsed
                           : 0.95 * speed_ + 0.05 * static_cast<double>(source + target) / elapsed;
    state_.seconds = now() - started_;
    listener_.on_step({state_.update, state_.epoch + 1, state_.batch, batches,
                       stats.loss / static_cast<double>(stats.tokens), rate, norm, speed_, state_.seconds,
                       seconds_left(batches)});
  }

  std::optional<double> seconds_left(std::int64_t batches) const {
    std::optional<double> left;
    const auto consider = [&](double seconds) { left = left ? std::min(*left, seconds) : seconds; };
    if (options_.max_minutes > 0) consider(std::max(0.0, options_.max_minutes * 60.0 - state_.seconds));
    if (options_.max_updates > 0 && state_.update > 0) {
      consider(state_.seconds / static_cast<double>(state_.update) *
               static_cast<double>(options_.max_updates - state_.update));
    }
    if (options_.max_epochs > 0 && state_.update > 0) {
      const double done = static_cast<double>(state_.epoch) +
                          static_cast<double>(state_.batch) / static_cast<double>(batches);
      consider(state_.seconds / done * std::max(0.0, static_cast<double>(options_.max_epochs) - done));
    }
    return left;
  }

  Validation measure() {
    const auto between = [this] {
      if (should_stop_()) throw StopRequested{};
    };
    const autograd::CrossEntropyStats stats = evaluate(model_, data_.valid, options_.batch_words, between);
    if (!std::isfinite(stats.log_likelihood))
      throw TrainingError(state_.update, "the loss of the validation");
    std::vector<std::vector<std::int32_t>> sources;
    for (const Example& example : data_.valid) sources.push_back(example.source);
    const auto hypotheses = translate_all(model_, sources, *data_.tokenizer, 1, 1.0, between);
    Validation v{.update = state_.update, .epoch = state_.epoch};
    v.cross_entropy = -stats.log_likelihood / static_cast<double>(std::max<std::int64_t>(stats.tokens, 1));
    v.perplexity = std::exp(v.cross_entropy);
    v.bleu = text::bleu(hypotheses, data_.valid_references, data_.bleu).score;
    return v;
  }

  // True: patience has run out.
  bool validate() {
    state_.validation_due = true;
    Validation v = measure();
    state_.validation_due = false;
    v.train_loss = state_.loss_tokens > 0 ? state_.loss_sum / static_cast<double>(state_.loss_tokens) : 0.0;
    v.seconds = state_.seconds = now() - started_;
    state_.loss_sum = 0.0;
    state_.loss_tokens = 0;
    state_.without_improvement =
        count_validation(state_.curve, state_.without_improvement, options_.metric, v);
    state_.curve.push_back(v);
    if (v.improved) models::save_model(options_.folder, model_);
    snapshot();
    save();
    listener_.on_validation(v);
    return out_of_patience();
  }

  void snapshot() {
    if (options_.average < 2) return;
    files::TensorFile file;
    for (const nn::Parameter& parameter : model_.parameters().all())
      file.tensors.push_back({parameter.name, parameter.value});
    files::save_safetensors(snapshot_path(options_.folder, state_.update), file);
    state_.snapshots.push_back(state_.update);
    while (state_.snapshots.size() > static_cast<std::size_t>(options_.average)) {
      std::error_code ignored;
      std::filesystem::remove(snapshot_path(options_.folder, state_.snapshots.front()), ignored);
      state_.snapshots.erase(state_.snapshots.begin());
    }
  }

  void save() {
    save_checkpoint(options_.folder, state_, fingerprint_, model_.parameters(), adam_);
    save_record(options_.folder, record_, state_);
  }

  // The mean of the snapshots, if it is better than the best single one.
  Result finish(Ended ended) {
    Result result{ended, state_.curve, *best_of(state_.curve), false};
    if (state_.snapshots.size() >= 2) {
      average_snapshots();
      Validation v = measure();
      v.seconds = state_.seconds;
      if (better(v, result.final, options_.metric)) {
        models::save_model(options_.folder, model_);
        result.final = v;
        result.averaged = true;
      }
    }
    const std::filesystem::path weights = files::find_weights(options_.folder);
    models::assign_parameters(weights.string(), files::load_weights(weights), "", model_.parameters());
    return result;
  }

  void average_snapshots() {
    const auto count = static_cast<float>(state_.snapshots.size());
    for (nn::Parameter& parameter : model_.parameters().all()) parameter.value.fill(0.0);
    for (const std::int64_t update : state_.snapshots) {
      const std::string path = snapshot_path(options_.folder, update);
      const files::TensorFile file = files::load_safetensors(path);
      for (nn::Parameter& parameter : model_.parameters().all()) {
        const Tensor* tensor = file.find(parameter.name);
        if (!tensor || !(tensor->shape() == parameter.value.shape()))
          throw FileError(path, -1, "tensor '" + parameter.name + "' is missing");
        float* sum = parameter.value.data<float>();
        for (std::int64_t i = 0; i < tensor->count(); ++i) sum[i] += tensor->data<float>()[i] / count;
      }
    }
  }

  models::SequenceToSequence& model_;
  const Data& data_;
  const TrainOptions& options_;
  Listener& listener_;
  const std::function<bool()>& should_stop_;
  nn::Adam adam_;
  TrainState state_;
  std::string fingerprint_;
  TrainingRecord record_;
  double started_ = 0.0, speed_ = 0.0;
};

}  // namespace

TrainingError::TrainingError(std::int64_t update, const std::string& layer)
    : Error("training stopped at update " + std::to_string(update) +
            ": a value that is not finite, first in " + layer +
            "; a checkpoint, where one was written before, is kept. A lower learning rate or gradient "
            "clipping usually helps") {}

Result train(models::SequenceToSequence& model, const Data& data, const TrainOptions& options, Start start,
             Listener& listener, const std::function<bool()>& should_stop) {
  return Trainer(model, data, options, listener, should_stop).run(start);
}

autograd::CrossEntropyStats evaluate(models::SequenceToSequence& model, const std::vector<Example>& examples,
                                     std::int64_t batch_words, const std::function<void()>& between) {
  autograd::CrossEntropyStats total;
  for (const auto& indices : make_batches(examples, batch_words, 0, 0)) {
    if (between) between();
    nn::Context context;
    autograd::CrossEntropyStats stats;
    model.loss(context, gather_batch(examples, indices), {0.0f, 1.0f}, &stats);
    total.loss += stats.loss;
    total.log_likelihood += stats.log_likelihood;
    total.tokens += stats.tokens;
    total.correct += stats.correct;
  }
  return total;
}

std::vector<std::string> translate_all(models::SequenceToSequence& model,
                                       const std::vector<std::vector<std::int32_t>>& sources,
                                       const text::Tokenizer& tokenizer, int beam_size, double normalize,
                                       const std::function<void()>& between) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].empty()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() < sources[b].size(); });
  std::vector<std::string> result(sources.size());
  constexpr std::size_t rows = 64;
  for (std::size_t begin = 0; begin < order.size(); begin += rows) {
    if (between) between();
    std::vector<std::vector<std::int32_t>> batch;
    const std::size_t end = std::min(order.size(), begin + rows);
    for (std::size_t i = begin; i < end; ++i) batch.push_back(sources[order[i]]);
    const auto decoded = models::decode(model, batch, {.beam_size = beam_size, .normalize = normalize});
    for (std::size_t i = begin; i < end; ++i) {
      if (!decoded[i - begin].empty()) result[order[i]] = tokenizer.decode(decoded[i - begin][0].ids);
    }
  }
  return result;
}

}  // namespace fovea::train
