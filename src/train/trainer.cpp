#include "fovea/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "core/fnv1a.h"
#include "fovea/core/executor.h"
#include "fovea/core/profile.h"
#include "fovea/models/batches.h"
#include "fovea/models/decoding.h"
#include "fovea/models/model_folder.h"
#include "train/early_stopping.h"
#include "train/loop.h"
#include "train/validation_batches.h"

namespace fovea::train {
namespace {

// To check that a checkpoint belongs to the data.
std::uint64_t hash_of(const std::vector<Example>& examples) {
  static constexpr ProfileLabel label{"hash of the data", ProfilePart::data};
  const ProfileSpan span(label);
  Fnv1a hash;
  for (const Example& example : examples) {
    for (const auto* side : {&example.source, &example.target}) {
      hash.mix(std::uint64_t{side->size()});
      for (const std::int32_t id : *side) hash.mix(static_cast<std::uint64_t>(id));  // with its sign
    }
  }
  return hash.value();
}

// Throws InvalidArgument for data without a pair, before anything is written.
const Data& checked(const Data& data) {
  if (data.train.empty()) throw InvalidArgument("train", "data.train", "at least one pair", "none");
  if (data.valid.empty()) throw InvalidArgument("train", "data.valid", "at least one pair", "none");
  return data;
}

// Weights in the order in which decoding reads them, while a validation translates.
class PackedWeights {
 public:
  explicit PackedWeights(nn::ParameterSet& parameters) : parameters_(parameters) { parameters.pack(); }
  ~PackedWeights() { parameters_.unpack(); }
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

 private:
  nn::ParameterSet& parameters_;
};

class Trainer final : public Loop {
 public:
  Trainer(models::SequenceToSequence& model, const Data& data, const TrainOptions& options,
          Listener& listener, const std::function<bool()>& should_stop)
      : Loop({model.parameters(), options, listener, should_stop}), model_(model), data_(data) {
    identify(record_of(options, hash_of(data.train), hash_of(data.valid)),
             "data " + std::to_string(hash_of(data.train)) + ", seed " + std::to_string(options.seed) +
                 ", batch words " + std::to_string(options.batch_words) + ", model " + model.config());
  }

 private:
  std::string place() const override { return ", epoch " + std::to_string(state().epoch + 1); }

  Ended updates() override {
    TrainState& at = state();
    for (; !limit_reached(); ++at.epoch, at.batch = 0) {
      const auto batches = make_batches(data_.train, options().batch_words, options().seed, at.epoch);
      for (; at.batch < static_cast<std::int64_t>(batches.size());) {
        if (limit_reached()) return Ended::finished;
        if (stop_wanted()) return Ended::stopped;
        step(gather_batch(data_.train, batches[static_cast<std::size_t>(at.batch)]),
             static_cast<std::int64_t>(batches.size()));
        if (after_update()) return Ended::no_improvement;
      }
      if (options().validate_every == 0) {
        ++at.epoch;  // the checkpoint of an epoch's end stands at the next one's beginning
        at.batch = 0;
        const bool stop = validate();  // and where a stop comes out of it, the state stands there too
        --at.epoch;
        if (stop) return Ended::no_improvement;
      }
    }
    return Ended::finished;
  }

  void step(const models::Batch& batch, std::int64_t batches) {
    const auto sum = [](const std::vector<std::int64_t>& lengths) {
      return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    };
    const std::int64_t target = sum(batch.target_lengths);
    update({.loss =
                [&](nn::Context& context, autograd::CrossEntropyStats* stats) {
                  return model_.loss(context, batch,
                                     {options().smoothing, {.scale = 1.0f / static_cast<float>(target)}},
                                     stats);
                },
            .words = sum(batch.source_lengths) + target,
            .batches = batches});
  }

  Validation measure() override {
    const auto stop = [this] { between(); };
    const autograd::CrossEntropyStats stats = evaluate(model_, data_.valid, options().batch_words, stop);
    Validation v = validation_of(stats, state());
    std::vector<std::vector<std::int32_t>> sources;
    for (const Example& example : data_.valid) sources.push_back(example.source);
    const PackedWeights packed(model_.parameters());
    const auto hypotheses = translate_all(model_, sources, *data_.tokenizer, 1, 1.0, stop);
    v.bleu = text::bleu(hypotheses, data_.valid_references, data_.bleu).score;
    return v;
  }

  void save_model() override { models::save_model(options().folder, model_); }

  // A snapshot, for the average at the end.
  void validated() override {
    if (options().average < 2) return;
    files::TensorFile file;
    for (const nn::Parameter& parameter : model_.parameters().all())
      file.tensors.push_back({parameter.name, parameter.value});
    files::save_safetensors(snapshot_path(options().folder, state().update), file);
    std::vector<std::int64_t>& snapshots = state().snapshots;
    snapshots.push_back(state().update);
    while (snapshots.size() > static_cast<std::size_t>(options().average)) {
      outdated_.push_back(snapshots.front());
      snapshots.erase(snapshots.begin());
    }
  }
  // The checkpoint before named these.
  void validation_saved() override {
    for (const std::int64_t update : std::exchange(outdated_, {})) {
      std::error_code ignored;
      std::filesystem::remove(snapshot_path(options().folder, update), ignored);
    }
  }

  // The mean of the snapshots, if it is better than the best single one.
  Result finish(Ended ended) override {
    Result result = best(ended);
    if (state().snapshots.size() >= 2) {
      average_snapshots();
      Validation v = measure();
      v.seconds = state().seconds;
      if (better(v, result.final, options().metric)) {
        save_model();
        result.final = v;
        result.averaged = true;
      }
    }
    const std::filesystem::path weights = files::find_weights(options().folder);
    models::assign_parameters(weights.string(), files::load_weights(weights), "", model_.parameters());
    return result;
  }

  // The parameters stay as they are where a snapshot cannot be read.
  void average_snapshots() {
    const auto count = static_cast<float>(state().snapshots.size());
    auto& parameters = model_.parameters().all();
    std::vector<Tensor> means;
    for (const nn::Parameter& parameter : parameters)
      means.push_back(Tensor::zeros(DType::f32, parameter.value.shape()));
    for (const std::int64_t update : state().snapshots) {
      const std::string path = snapshot_path(options().folder, update);
      const files::TensorFile file = files::load_safetensors(path);
      default_executor().parallel_for(std::ssize(means), [&](std::int64_t unit, int) {
        const auto p = static_cast<std::size_t>(unit);
        const Tensor& tensor = tensor_like(means[p], path, file, parameters[p].name);
        float* sum = means[p].data<float>();
        for (std::int64_t i = 0; i < tensor.count(); ++i) sum[i] += tensor.data<float>()[i] / count;
      });
    }
    for (std::size_t p = 0; p < parameters.size(); ++p)
      std::copy_n(means[p].data<float>(), means[p].count(), parameters[p].value.data<float>());
  }

  models::SequenceToSequence& model_;
  const Data& data_;
  std::vector<std::int64_t> outdated_;  // snapshots that the last checkpoint names no more
};

}  // namespace

TrainingError::TrainingError(std::int64_t update, const std::string& layer)
    : Error("training stopped at update " + std::to_string(update) +
            ": a value that is not finite, first in " + layer +
            "; a checkpoint, where one was written before, is kept. A lower learning rate or gradient "
            "clipping usually helps") {}

Result train(models::SequenceToSequence& model, const Data& data, const TrainOptions& options, Start start,
             Listener& listener, const std::function<bool()>& should_stop) {
  return Trainer(model, checked(data), options, listener, should_stop).run(start);
}

autograd::CrossEntropyStats evaluate(models::SequenceToSequence& model, const std::vector<Example>& examples,
                                     std::int64_t batch_words, const std::function<void()>& between) {
  const auto batches = make_batches(examples, batch_words, 0, 0);
  return sum_over_batches(
      std::ssize(batches), between, [&](std::int64_t n, autograd::CrossEntropyStats* stats) {
        nn::Context context;
        model.loss(context, gather_batch(examples, batches[static_cast<std::size_t>(n)]), {}, stats);
      });
}

std::vector<std::string> translate_all(models::SequenceToSequence& model,
                                       const std::vector<std::vector<std::int32_t>>& sources,
                                       const text::Tokenizer& tokenizer, int beam_size, double normalize,
                                       const std::function<void()>& between) {
  std::vector<std::string> result(sources.size());
  std::vector<std::int64_t> lengths;
  for (const auto& source : sources) lengths.push_back(std::ssize(source));
  const BetweenBatches stop(between);
  stop();
  models::for_batches(lengths, 64, [&](std::span<const std::size_t> texts) {
    stop();
    std::vector<std::vector<std::int32_t>> batch;
    for (const std::size_t i : texts) batch.push_back(sources[i]);
    const auto decoded = models::decode(
        model, batch,
        {.beam_size = beam_size, .normalize = normalize, .alignments = false, .log_probabilities = false});
    for (std::size_t n = 0; n < texts.size(); ++n) {
      if (!decoded[n].empty()) result[texts[n]] = tokenizer.decode(decoded[n][0].ids);
    }
  });
  return result;
}

}  // namespace fovea::train
