// The search of beam_search.h for one text: which texts go on with which ids. A model is not needed: its
// logits come in, and what to read next goes out.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fovea/models/beam_search.h"

namespace fovea::models {

/// An open text of the next step: the open text of this step that it goes on with, and its next id.
struct BeamStep {
  std::size_t parent = 0;
  std::int32_t id = 0;
};

/// An ended text, best first, and of each of its ids the row of the step that wrote it (Beams::take).
struct EndedBeam {
  BeamText text;
  std::vector<std::int64_t> rows;
};

class Beams {
 public:
  /// `prompt` and `options` must outlive it. Throws InvalidArgument for options outside their ranges.
  Beams(std::span<const std::int32_t> prompt, const BeamOptions& options);

  /// How many texts are open: 0 where the search has ended.
  std::size_t open() const { return open_.size(); }
  /// Takes the logits [open, vocabulary] of the next ids of all open texts. They are rows of a step from
  /// `first_row` on. Returns the texts that are open now.
  std::vector<BeamStep> take(const float* logits, std::int64_t vocabulary, std::int64_t first_row);
  std::vector<EndedBeam>& ended() { return ended_; }

 private:
  struct Open {
    std::vector<std::int32_t> ids = {};
    std::vector<double> log_probabilities = {};  ///< of each id, before the rules
    double log_probability = 0.0;
    std::vector<std::int64_t> rows = {};
  };
  /// A way to go on: an open text and its next id.
  struct Candidate {
    std::size_t open = 0;
    std::int32_t id = 0;
    double log_probability = 0.0;
    double of_id = 0.0;  ///< the id's own log-probability, before the rules
    double value = 0.0;  ///< by which candidates are chosen
    bool ends = false;
  };

  bool single() const { return options_.beams == 1; }
  bool draws() const { return options_.draws && options_.draws->temperature > 0.0; }
  /// Beside options.draws, what `choices` takes.
  SampleOptions sample_options() const;
  bool goes_on(std::int64_t written) const;
  double score(double log_probability, std::int64_t length) const;
  std::string rule_without_choice(const float* logits, std::int64_t vocabulary) const;
  /// Best first, or in the order in which they are drawn.
  std::vector<Candidate> candidates_of(const float* logits, std::int64_t vocabulary) const;
  static bool before(const Candidate& a, const Candidate& b);
  static void keep_best(std::vector<Candidate>& candidates, std::size_t most);
  std::vector<Candidate> best_of_row(std::size_t open, std::span<const float> row,
                                     std::span<const float> unchanged, std::size_t most) const;
  /// The rows of all open texts, [open, vocabulary]: behind the rules, and before them.
  struct Rows {
    std::vector<std::vector<float>> ruled = {};  ///< empty if nothing is changed
    Tensor unchanged;
    std::span<const float> before(std::size_t open) const;
    std::span<const float> behind(std::size_t open) const {
      return ruled.empty() ? before(open) : ruled[open];
    }
  };
  Rows rows_of(const float* logits, std::int64_t vocabulary) const;
  std::vector<Candidate> drawn(const Rows& rows, std::size_t most) const;
  bool ends(const Candidate& candidate) const;
  Open longer(const Candidate& candidate, std::int64_t first_row) const;
  void end_texts(const std::vector<Candidate>& candidates, std::int64_t length, std::int64_t first_row);

  std::span<const std::int32_t> prompt_;
  const BeamOptions& options_;
  std::vector<Open> open_;        // best first
  std::vector<EndedBeam> ended_;  // best first
  std::int64_t written_ = 0;
  bool improvable_ = true;
};

}  // namespace fovea::models
