#include "fovea/train/language.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "fovea/core/philox.h"
#include "fovea/models/model_folder.h"
#include "models/configs.h"
#include "train/checkpoint.h"
#include "train/early_stopping.h"
#include "train/record.h"

namespace fovea::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// FNV-1a.
std::uint64_t hash_of(std::span<const std::int32_t> ids) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int32_t id : ids)
    hash = (hash ^ static_cast<std::uint64_t>(static_cast<std::uint32_t>(id))) * 0x100000001b3u;
  return hash;
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
  TrainOptions options{.batch_words = o.batch * o.window,
                       .schedule = o.schedule,
                       .adam = o.adam,
                       .smoothing = o.smoothing,
                       .max_updates = o.max_updates,
                       .max_minutes = o.max_minutes,
                       .validate_every = o.validate_every,
                       .save_every = o.save_every,
                       .patience = o.patience,
                       .metric = Metric::perplexity,
                       .seed = o.seed,
                       .folder = o.folder};
  if (auto* cosine = std::get_if<nn::WarmupCosine>(&options.schedule); cosine && cosine->updates == 0)
    cosine->updates = o.max_updates;
  return options;
}

class LanguageTrainer {
 public:
  LanguageTrainer(models::LanguageModel& model, const LanguageData& data, const LanguageOptions& options,
                  Listener& listener, const std::function<bool()>& should_stop)
      : model_(model),
        data_(data),
        options_(options),
        common_(as_train_options(options)),
        listener_(listener),
        should_stop_(should_stop),
        adam_(model.parameters(), options.adam) {
    std::error_code error;
    std::filesystem::create_directories(options.folder, error);
    if (error) throw FileError(options.folder, -1, "cannot be made: " + error.message());
    record_ = record_of(common_, hash_of(data.train), hash_of(data.valid));
    record_.fixed["window"] = std::to_string(options.window);
    record_.fixed["batch"] = std::to_string(options.batch);
    fingerprint_ = "data " + std::to_string(hash_of(data.train)) + ", seed " + std::to_string(options.seed) +
                   ", window " + std::to_string(options.window) + ", model " +
                   models::write_config(model.config());
  }

  Result run(Start start) {
    if (start == Start::fresh) {
      save_record(options_.folder, record_, state_);
    } else {
      for (const std::string& change : check_record(options_.folder, record_)) listener_.on_message(change);
      state_ = load_checkpoint(options_.folder, fingerprint_, model_.parameters(), adam_);
      listener_.on_message("resumed at update " + std::to_string(state_.update));
    }
    started_ = now() - state_.seconds;
    try {
      const Ended ended = loop();
      if (ended == Ended::stopped) return stopped();
      if (state_.curve.empty() || state_.curve.back().update != state_.update) validate();
      return finish(ended);
    } catch (const StopRequested&) {
      return stopped();
    }
  }

 private:
  // Thrown out of a validation, caught in run.
  struct StopRequested {};

  Result stopped() {
    save();
    return {Ended::stopped, state_.curve, state_.curve.empty() ? Validation{} : state_.curve.back(), false};
  }

  Ended loop() {
    if (state_.validation_due) validate();
    while (!limit_reached()) {
      if (options_.patience > 0 && state_.without_improvement >= options_.patience)
        return Ended::no_improvement;
      if (should_stop_()) return Ended::stopped;
      step();
      if (state_.update % options_.validate_every == 0)
        validate();
      else if (options_.save_every > 0 && state_.update % options_.save_every == 0)
        save();
    }
    return Ended::finished;
  }

  bool limit_reached() const {
    return (options_.max_updates > 0 && state_.update >= options_.max_updates) ||
           (options_.max_minutes > 0 && now() - started_ >= options_.max_minutes * 60.0);
  }

  // Its windows depend on the seed and the update alone.
  models::Padded batch_of(std::int64_t update) const {
    PhiloxStream random(options_.seed, static_cast<std::uint64_t>(update) << 20);
    const auto places = static_cast<std::uint32_t>(std::ssize(data_.train) - options_.window);
    std::vector<std::vector<std::int32_t>> windows(static_cast<std::size_t>(options_.batch));
    for (std::vector<std::int32_t>& window : windows) {
      const auto from = data_.train.begin() + random.next_below(places);
      window.assign(from, from + options_.window + 1);
    }
    return models::pad(windows);
  }

  void step() {
    const double begin = now();
    const std::int64_t update = state_.update + 1;
    autograd::Tape tape;
    // Seeds of neighbouring trainings must not share the dropout of neighbouring updates.
    nn::Context context{.tape = &tape,
                        .dropout_seed = (options_.seed << 32) + static_cast<std::uint64_t>(update)};
    autograd::CrossEntropyStats stats;
    const float scale = 1.0f / static_cast<float>(options_.batch * options_.window);
    tape.backward(model_.loss(context, batch_of(update), {options_.smoothing, scale}, &stats));
    state_.update = update;
    const double rate = nn::learning_rate(common_.schedule, update);
    const double norm = std::isfinite(stats.loss) ? adam_.step(rate) : stats.loss;
    if (!std::isfinite(norm)) {
      const std::string layer = adam_.first_bad_gradient();
      throw TrainingError(update, layer.empty() ? "the loss" : layer);
    }
    state_.loss_sum += stats.loss;
    state_.loss_tokens += stats.tokens;
    state_.seconds = now() - started_;
    const double speed = static_cast<double>(stats.tokens) / (now() - begin);
    speed_ = speed_ == 0.0 ? speed : 0.95 * speed_ + 0.05 * speed;
    listener_.on_step({.update = update,
                       .epoch = 1,
                       .batch = update,
                       .batches = options_.max_updates,
                       .loss = stats.loss / static_cast<double>(stats.tokens),
                       .learning_rate = rate,
                       .gradient_norm = norm,
                       .tokens_per_second = speed_,
                       .seconds = state_.seconds,
                       .seconds_left = seconds_left()});
  }

  std::optional<double> seconds_left() const {
    std::optional<double> left;
    if (options_.max_minutes > 0) left = std::max(0.0, options_.max_minutes * 60.0 - state_.seconds);
    if (options_.max_updates > 0) {
      const double by_updates = state_.seconds / static_cast<double>(state_.update) *
                                static_cast<double>(options_.max_updates - state_.update);
      left = left ? std::min(*left, by_updates) : by_updates;
    }
    return left;
  }

  void validate() {
    state_.validation_due = true;
    const autograd::CrossEntropyStats stats =
        evaluate(model_, data_.valid, options_.window, options_.batch, [this] {
          if (should_stop_()) throw StopRequested{};
        });
    if (!std::isfinite(stats.log_likelihood))
      throw TrainingError(state_.update, "the loss of the validation");
    state_.validation_due = false;
    Validation v{.update = state_.update};
    v.cross_entropy = -stats.log_likelihood / static_cast<double>(stats.tokens);
    v.perplexity = std::exp(v.cross_entropy);
    v.train_loss = state_.loss_tokens > 0 ? state_.loss_sum / static_cast<double>(state_.loss_tokens) : 0.0;
    v.seconds = state_.seconds = now() - started_;
    state_.loss_sum = 0.0;
    state_.loss_tokens = 0;
    state_.without_improvement =
        count_validation(state_.curve, state_.without_improvement, Metric::perplexity, v);
    state_.curve.push_back(v);
    if (v.improved) models::save_model(options_.folder, model_);
    save();
    listener_.on_validation(v);
  }

  void save() {
    save_checkpoint(options_.folder, state_, fingerprint_, model_.parameters(), adam_);
    save_record(options_.folder, record_, state_);
  }

  Result finish(Ended ended) {
    const models::LanguageModel best = models::load_language_model(options_.folder);
    auto from = best.parameters().all().begin();
    for (nn::Parameter& parameter : model_.parameters().all()) {
      std::copy_n(from->value.data<float>(), parameter.value.count(), parameter.value.data<float>());
      ++from;
    }
    return {ended, state_.curve, *best_of(state_.curve), false};
  }

  models::LanguageModel& model_;
  const LanguageData& data_;
  const LanguageOptions& options_;
  TrainOptions common_;
  Listener& listener_;
  const std::function<bool()>& should_stop_;
  nn::Adam adam_;
  TrainState state_;
  std::string fingerprint_;
  TrainingRecord record_;
  double started_ = 0.0, speed_ = 0.0;
};

}  // namespace

Result train(models::LanguageModel& model, const LanguageData& data, const LanguageOptions& options,
             Start start, Listener& listener, const std::function<bool()>& should_stop) {
  check(data, options);
  return LanguageTrainer(model, data, options, listener, should_stop).run(start);
}

autograd::CrossEntropyStats evaluate(models::LanguageModel& model, std::span<const std::int32_t> ids,
                                     std::int64_t window, std::int64_t batch,
                                     const std::function<void()>& between) {
  autograd::CrossEntropyStats total;
  std::vector<std::vector<std::int32_t>> windows;
  const auto count = [&] {
    if (windows.empty()) return;
    if (between) between();
    nn::Context context;
    autograd::CrossEntropyStats stats;
    model.loss(context, models::pad(windows), {}, &stats);
    total.loss += stats.loss;
    total.log_likelihood += stats.log_likelihood;
    total.tokens += stats.tokens;
    total.correct += stats.correct;
    windows.clear();
  };
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<std::size_t>(window)) {
    const auto part = ids.subspan(begin, std::min(static_cast<std::size_t>(window) + 1, ids.size() - begin));
    windows.emplace_back(part.begin(), part.end());
    if (std::ssize(windows) == batch) count();
  }
  count();
  return total;
}

}  // namespace fovea::train
