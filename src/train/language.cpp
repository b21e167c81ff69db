#include "fovea/train/language.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/fnv1a.h"
#include "fovea/core/philox.h"
#include "fovea/core/profile.h"
#include "fovea/models/model_folder.h"
#include "models/configs.h"
#include "train/loop.h"
#include "train/validation_batches.h"

namespace fovea::train {
namespace {

std::uint64_t hash_of(std::span<const std::int32_t> ids) {
  Fnv1a hash;
  for (const std::int32_t id : ids) hash.mix(std::uint64_t{static_cast<std::uint32_t>(id)});
  return hash.value();
}

void check(const LanguageData& data, const LanguageOptions& options) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("train", argument, expected, got);
  };
  for (const auto& [name, value] :
       {std::pair{"options.window", options.window}, std::pair{"options.batch", options.batch},
        std::pair{"options.validate_every", options.validate_every}}) {
    if (value < 1) refuse(name, "at least 1", std::to_string(value));
  }
  const std::int64_t least = options.window + 1;
  for (const auto& [name, ids] : {std::pair{"data.train", data.train}, std::pair{"data.valid", data.valid}}) {
    if (std::ssize(ids) < least)
      refuse(name, "at least " + std::to_string(least) + " ids, a window and the token before it",
             std::to_string(ids.size()));
  }
  if (options.max_updates == 0 && options.max_minutes == 0.0 && options.patience == 0)
    refuse("options.max_updates", "a limit of updates or minutes, or a patience", "none");
}

TrainOptions as_train_options(const LanguageOptions& o) {
  return {.batch_words = o.batch * o.window,
          .schedule = o.schedule,
          .adam = o.adam,
          .smoothing = o.smoothing,
          .precision = o.precision,
          .activations = o.activations,
          .max_updates = o.max_updates,
          .max_minutes = o.max_minutes,
          .validate_every = o.validate_every,
          .save_every = o.save_every,
          .patience = o.patience,
          .metric = Metric::perplexity,
          .seed = o.seed,
          .folder = o.folder};
}

class LanguageTrainer final : public Loop {
 public:
  LanguageTrainer(models::LanguageModel& model, const LanguageData& data, const LanguageOptions& options,
                  const TrainOptions& common, Listener& listener, const std::function<bool()>& should_stop)
      : Loop({model.parameters(), common, listener, should_stop}),
        model_(model),
        data_(data),
        language_(options) {
    TrainingRecord record = record_of(common, hash_of(data.train), hash_of(data.valid));
    record.fixed["window"] = std::to_string(options.window);
    record.fixed["batch"] = std::to_string(options.batch);
    identify(std::move(record), "data " + std::to_string(hash_of(data.train)) + ", seed " +
                                    std::to_string(options.seed) + ", window " +
                                    std::to_string(options.window) + ", model " +
                                    models::write_config(model.config()));
  }

 private:
  Ended updates() override {
    const float scale = 1.0f / static_cast<float>(language_.batch * language_.window);
    while (!limit_reached()) {
      if (stop_wanted()) return Ended::stopped;
      const models::Padded batch = batch_of(state().update + 1);
      update({.loss =
                  [&](nn::Context& context, autograd::CrossEntropyStats* stats) {
                    return model_.loss(context, batch, {language_.smoothing, {.scale = scale}}, stats);
                  },
              .words = std::nullopt,
              .batches = language_.max_updates});
      if (after_update()) return Ended::no_improvement;
    }
    return Ended::finished;
  }

  // Its windows depend on the seed and the update alone.
  models::Padded batch_of(std::int64_t update) const {
    static constexpr ProfileLabel label{"windows of the text", ProfilePart::data};
    const ProfileSpan span(label);
    PhiloxStream random(language_.seed, static_cast<std::uint64_t>(update) << 20);
    const auto places = static_cast<std::uint32_t>(std::ssize(data_.train) - language_.window);
    std::vector<std::vector<std::int32_t>> windows(static_cast<std::size_t>(language_.batch));
    for (std::vector<std::int32_t>& window : windows) {
      const auto from = data_.train.begin() + random.next_below(places);
      window.assign(from, from + language_.window + 1);
    }
    return models::pad(windows);
  }

  Validation measure() override {
    const auto stop = [this] { between(); };
    return validation_of(evaluate(model_, data_.valid, language_.window, language_.batch, stop), state());
  }

  void save_model() override { models::save_model(options().folder, model_); }

  // The folder may hold the parameters under other names and in another scale, so the model is read.
  Result finish(Ended ended) override {
    const models::LanguageModel read = models::load_language_model(options().folder);
    auto from = read.parameters().all().begin();
    for (nn::Parameter& parameter : model_.parameters().all()) {
      std::copy_n(from->value.data<float>(), parameter.value.count(), parameter.value.data<float>());
      ++from;
    }
    return best(ended);
  }

  models::LanguageModel& model_;
  const LanguageData& data_;
  const LanguageOptions& language_;
};

}  // namespace

Result train(models::LanguageModel& model, const LanguageData& data, const LanguageOptions& options,
             Start start, Listener& listener, const std::function<bool()>& should_stop) {
  check(data, options);
  const TrainOptions common = as_train_options(options);
  return LanguageTrainer(model, data, options, common, listener, should_stop).run(start);
}

autograd::CrossEntropyStats evaluate(models::LanguageModel& model, std::span<const std::int32_t> ids,
                                     std::int64_t window, std::int64_t batch,
                                     const std::function<void()>& between) {
  for (const auto& [name, value] : {std::pair{"window", window}, std::pair{"batch", batch}}) {
    if (value < 1) throw InvalidArgument("evaluate", name, "at least 1", std::to_string(value));
  }
  // The last window may be shorter, and its length may decide its rotary frequencies.
  if (window > model.longest_kept()) batch = 1;
  const std::int64_t predicted = std::max<std::int64_t>(std::ssize(ids) - 1, 0),
                     windows = (predicted + window - 1) / window;
  return sum_over_batches((windows + batch - 1) / batch, between,
                          [&](std::int64_t n, autograd::CrossEntropyStats* stats) {
                            std::vector<std::vector<std::int32_t>> texts;
                            for (std::int64_t w = n * batch; w < std::min(windows, (n + 1) * batch); ++w) {
                              const auto begin = ids.begin() + w * window;
                              texts.emplace_back(begin, begin + std::min(window + 1, ids.end() - begin));
                            }
                            nn::Context context;
                            model.loss(context, models::pad(texts), {}, stats);
                          });
}

}  // namespace fovea::train
