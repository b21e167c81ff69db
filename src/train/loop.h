// What the training of any model does besides its batches: updates, limits, validations, checkpoints and
// stops.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/record.h"

namespace fovea::train {

class Loop {
 public:
  struct Parts {
    nn::ParameterSet& parameters;
    const TrainOptions& options;
    Listener& listener;
    const std::function<bool()>& should_stop;
  };
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  virtual ~Loop() = default;
  Result run(Start start);

 protected:
  /// Makes the folder of the options. The parts must outlive the loop. Throws InvalidArgument for a schedule
  /// that never ends.
  explicit Loop(const Parts& parts);
  /// Says what a checkpoint must be of. Called once, before run.
  void identify(TrainingRecord record, std::string fingerprint);

  /// All updates, until a limit, a stop or the end of patience.
  virtual Ended updates() = 0;
  /// The figures of a validation but those that the loop itself knows: losses of training, seconds.
  virtual Validation measure() = 0;
  /// Writes the model, which is the best so far.
  virtual void save_model() = 0;
  /// Called in a validation before its checkpoint is saved.
  virtual void validated() {}
  /// Called behind it, once no checkpoint names older files any more.
  virtual void validation_saved() {}
  /// Where a resumed training stands besides its update, such as ", epoch 2".
  virtual std::string place() const { return {}; }
  virtual Result finish(Ended ended) = 0;

  struct Update {
    std::function<nn::Var(nn::Context&, autograd::CrossEntropyStats*)> loss;
    std::optional<std::int64_t> words;  ///< for the speed; absent: the tokens of the loss
    std::int64_t batches = 0;           ///< of the epoch
  };
  /// One step of Adam. Throws TrainingError where a number is not finite.
  void update(const Update& one);
  /// Validates or saves if it is due after this number of updates. True: patience has run out.
  bool after_update();
  /// True: patience has run out.
  bool validate();
  void save();
  bool limit_reached() const;
  bool stop_wanted() const { return parts_.should_stop(); }
  /// For measure: calls should_stop, and leaves the validation if it says so.
  void between() const;
  /// The result of the best validation.
  Result best(Ended ended) const;

  const TrainOptions& options() const noexcept { return parts_.options; }
  TrainState& state() noexcept { return state_; }
  const TrainState& state() const noexcept { return state_; }

 private:
  struct StopRequested {};  // thrown by `between`, caught in run
  Result stopped(bool to_save);
  bool out_of_patience() const;
  std::optional<double> seconds_left(std::int64_t batches) const;
  std::int64_t updates_in_time() const;

  Parts parts_;
  nn::Adam adam_;
  nn::Schedule schedule_;
  TrainState state_;
  TrainingRecord record_;
  std::string fingerprint_;
  double started_ = 0.0, speed_ = 0.0;
};

/// The figures of a cross-entropy over held-out tokens. Throws TrainingError unless it is finite.
Validation validation_of(const autograd::CrossEntropyStats& stats, const TrainState& state);

}  // namespace fovea::train
