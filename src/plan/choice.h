// Decides which candidate runs which calls. A candidate is an algorithm for an instruction set, and a duty is
// one kind of call, such as forward (kernels/candidate.h). make_plan chooses once for each duty. The number
// of queries comes with each call, so the choice is a rule by that number. explain prints the rule.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/candidate.h"

namespace fovea {

/// The candidate for calls of at most `last` queries, and of at most `most_keys` keys if that is not 0, that
/// no step before takes.
struct Step {
  std::int64_t last = 0, most_keys = 0;
  const kernels::Candidate* candidate = nullptr;
  kernels::In16Bits stored = kernels::In16Bits::nothing;
};

/// The steps of one duty, in the order of their query counts; the last one serves all larger counts. Five
/// steps are enough: no list of candidates makes more of their counts, and the longest, that of "amx", makes
/// three, and one more for few keys.
class Rule {
 public:
  const Step& of(std::int64_t queries, std::int64_t keys) const {
    const Step* step = steps_.data();
    while (step->last < queries || (step->most_keys > 0 && step->most_keys < keys)) ++step;
    return *step;
  }
  std::span<const Step> steps() const { return {steps_.data(), count_}; }
  const Step& largest() const { return steps().back(); }
  void add(const Step& step) { steps_.at(count_++) = step; }

 private:
  std::array<Step, 5> steps_;
  std::size_t count_ = 0;
};

/// One request for each duty, in the order of the duties.
using Requests = std::array<kernels::Request, kernels::duty_count>;

/// A candidate that does not run, and why.
struct Refusal {
  const kernels::Candidate* candidate = nullptr;
  std::string reason;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

class Choice {
 public:
  Choice() = default;
  /// Chooses for calls of up to `most_queries`. `wanted` is the name of an instruction set or of a candidate,
  /// or empty for the best. Errors call it `argument`. Throws InvalidArgument if the name is unknown or
  /// cannot run here.
  Choice(const Requests& requests, std::int64_t most_queries, const std::string& wanted,
         const char* argument);

  const Rule& rule(kernels::Duty duty) const { return rules_[static_cast<std::size_t>(duty)]; }
  /// The duty that a plan mainly has: the output, or weights if there are no values.
  kernels::Duty main() const { return main_; }
  /// "avx512 tiled, avx512 split up to 8 queries".
  std::string text(kernels::Duty duty) const;
  /// The candidates that would be better for this duty than the one for most queries, but cannot run. For a
  /// backward duty, candidates without a backward are left out.
  std::vector<Refusal> refusals(const Requests& requests, std::int64_t most_queries,
                                kernels::Duty duty) const;
  /// Whether some candidate that may run such calls, of any number of queries, multiplies bf16.
  bool multiplies_bf16(const kernels::Request& request) const;
  /// The instruction set whose code of mods runs.
  ModIsa mods() const { return rule(main_).largest().candidate->isa->mods; }

 private:
  kernels::QueryCounts counts(const kernels::Candidate& candidate, const kernels::Request& request) const;
  std::int64_t most_keys(const kernels::Candidate& candidate) const;
  Rule rule_for(const kernels::Request& request, std::int64_t most_queries) const;

  const kernels::Candidate* forced_ = nullptr;    // runs whatever it can; set together with order_
  std::vector<const kernels::Candidate*> order_;  // the candidates that may run, best first
  std::array<Rule, kernels::duty_count> rules_;
  kernels::Duty main_ = kernels::Duty::forward;
};

}  // namespace fovea
