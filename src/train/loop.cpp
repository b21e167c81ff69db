#include "train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "fovea/core/philox.h"
#include "train/early_stopping.h"
#include "train/schedule.h"

namespace fovea::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A new dropout seed every step, a function of seed and step alone.
std::uint64_t dropout_seed(std::uint64_t seed, std::int64_t update) {
  const auto words =
      philox4x32({static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32), 1, 0}, seed);
  return words[0] | (std::uint64_t{words[1]} << 32);
}

}  // namespace

Validation validation_of(const autograd::CrossEntropyStats& stats, const TrainState& state) {
  if (!std::isfinite(stats.log_likelihood)) throw TrainingError(state.update, "the loss of the validation");
  Validation v{.update = state.update, .epoch = state.epoch};
  v.cross_entropy = -stats.log_likelihood / static_cast<double>(std::max<std::int64_t>(stats.tokens, 1));
  v.perplexity = std::exp(v.cross_entropy);
  return v;
}

Loop::Loop(const Parts& parts)
    : parts_(parts),
      adam_(parts.parameters, parts.options.adam),
      schedule_(ending_at(parts.options.schedule, parts.options.max_updates)) {
  if (is_endless(schedule_) && options().max_minutes <= 0.0) {
    throw InvalidArgument("train", "options.schedule",
                          "an end of the cosine: its updates, options.max_updates or options.max_minutes",
                          "none");
  }
  std::error_code error;
  std::filesystem::create_directories(options().folder, error);
  if (error) throw FileError(options().folder, -1, "cannot be made: " + error.message());
}

void Loop::identify(TrainingRecord record, std::string fingerprint) {
  record_ = std::move(record);
  fingerprint_ = std::move(fingerprint);
}

Result Loop::run(Start start) {
  // Written before the first checkpoint, so that every checkpoint has its record, wherever a training is
  // killed.
  if (start == Start::fresh) save_record(options().folder, record_, state_);
  if (start == Start::resume) {
    for (const std::string& change : check_record(options().folder, record_))
      parts_.listener.on_message(change);
    state_ = load_checkpoint(options().folder, fingerprint_, parts_.parameters, adam_);
    // A training that was killed behind its checkpoint has left an older record, or one half written.
    save_record(options().folder, record_, state_);
    parts_.listener.on_message("resumed at update " + std::to_string(state_.update) + place());
  }
  started_ = now() - state_.seconds;
  try {
    if (state_.validation_due) validate();
    // The process was killed while finishing after patience had run out: finish again, without further
    // training.
    const Ended ended = out_of_patience() ? Ended::no_improvement : updates();
    if (ended == Ended::stopped) return stopped(true);
    if (state_.curve.empty() || state_.curve.back().update != state_.update) validate();
    return finish(ended);
  } catch (const StopRequested&) {
    return stopped(state_.validation_due);
  }
}

// While finishing, the parameters may be averages. Everything else was saved by the last validation.
Result Loop::stopped(bool to_save) {
  if (to_save) save();
  return {Ended::stopped, state_.curve, state_.curve.empty() ? Validation{} : state_.curve.back(), false};
}

Result Loop::best(Ended ended) const {
  return {ended, state_.curve, *best_of(state_.curve), false};
}

bool Loop::out_of_patience() const {
  return options().patience > 0 && state_.without_improvement >= options().patience;
}

bool Loop::limit_reached() const {
  const TrainOptions& o = options();
  return (o.max_updates > 0 && state_.update >= o.max_updates) ||
         (o.max_epochs > 0 && state_.epoch >= o.max_epochs) ||
         (o.max_minutes > 0 && now() - started_ >= o.max_minutes * 60.0);
}

void Loop::between() const {
  if (stop_wanted()) throw StopRequested{};
}

void Loop::update(const Update& one) {
  const double begin = now();
  autograd::Tape tape(options().precision);
  nn::Context context{.tape = &tape,
                      .dropout_seed = dropout_seed(options().seed, state_.update),
                      .activations = options().activations};
  autograd::CrossEntropyStats stats;
  tape.backward(one.loss(context, &stats));
  ++state_.update;
  ++state_.batch;
  const double rate = nn::learning_rate(
      is_endless(schedule_) ? ending_at(schedule_, updates_in_time()) : schedule_, state_.update);
  const double norm = std::isfinite(stats.loss) ? adam_.step(rate) : stats.loss;
  if (!std::isfinite(norm)) {
    const std::string layer = adam_.first_bad_gradient();
    throw TrainingError(state_.update, layer.empty() ? "the loss" : layer);
  }
  state_.loss_sum += stats.loss;
  state_.loss_tokens += stats.tokens;
  const double speed = static_cast<double>(one.words.value_or(stats.tokens)) / (now() - begin);
  speed_ = speed_ == 0.0 ? speed : 0.95 * speed_ + 0.05 * speed;
  state_.seconds = now() - started_;
  parts_.listener.on_step({state_.update, state_.epoch + 1, state_.batch, one.batches,
                           stats.loss / static_cast<double>(stats.tokens), rate, norm, speed_, state_.seconds,
                           seconds_left(one.batches)});
}

// How many updates the training has if the rest of its minutes goes as fast as they went so far, validations
// included. The estimate meets the number of the last update, so a cosine that ends there falls to 0 however
// the speed of the machine changes. A number that is measured once, at the beginning, was off by a third.
std::int64_t Loop::updates_in_time() const {
  constexpr double least_seconds = 1e-6, most_updates = 1e15;
  const double updates = static_cast<double>(state_.update) * options().max_minutes * 60.0 /
                         std::max(now() - started_, least_seconds);
  return std::max(state_.update, static_cast<std::int64_t>(std::min(updates, most_updates)));
}

std::optional<double> Loop::seconds_left(std::int64_t batches) const {
  const TrainOptions& o = options();
  std::optional<double> left;
  const auto consider = [&](double seconds) { left = left ? std::min(*left, seconds) : seconds; };
  if (o.max_minutes > 0) consider(std::max(0.0, o.max_minutes * 60.0 - state_.seconds));
  if (o.max_updates > 0 && state_.update > 0) {
    consider(state_.seconds / static_cast<double>(state_.update) *
             static_cast<double>(o.max_updates - state_.update));
  }
  if (o.max_epochs > 0 && state_.update > 0) {
    const double done =
        static_cast<double>(state_.epoch) + static_cast<double>(state_.batch) / static_cast<double>(batches);
    consider(state_.seconds / done * std::max(0.0, static_cast<double>(o.max_epochs) - done));
  }
  return left;
}

bool Loop::after_update() {
  const TrainOptions& o = options();
  const bool due = o.validate_every > 0 && state_.update % o.validate_every == 0;
  if (due) return validate();
  if (o.save_every > 0 && state_.update % o.save_every == 0) save();
  return false;
}

bool Loop::validate() {
  state_.validation_due = true;
  Validation v = measure();
  state_.validation_due = false;
  v.train_loss = state_.loss_tokens > 0 ? state_.loss_sum / static_cast<double>(state_.loss_tokens) : 0.0;
  v.seconds = state_.seconds = now() - started_;
  state_.loss_sum = 0.0;
  state_.loss_tokens = 0;
  state_.without_improvement =
      count_validation(state_.curve, state_.without_improvement, options().metric, v);
  state_.curve.push_back(v);
  if (v.improved) save_model();
  validated();
  save();
  validation_saved();
  parts_.listener.on_validation(v);
  return out_of_patience();
}

void Loop::save() {
  save_checkpoint(options().folder, state_, fingerprint_, parts_.parameters, adam_);
  save_record(options().folder, record_, state_);
}

}  // namespace fovea::train
