// Which candidate runs which calls. make_plan chooses, once, for each duty; lengths come with each call, so
// what it chooses is a rule by the count of queries, which explain prints.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/candidate.h"

namespace fovea {

/// Calls of at most `last` queries, and of more than the step before it.
struct Step {
  std::int64_t last = 0;
  const kernels::Candidate* candidate = nullptr;
  kernels::In16Bits stored = kernels::In16Bits::nothing;
};

/// For one duty, in the order of their counts; the last is for all that are left. As many as candidates'
/// counts can make of an order, whose largest, that of "amx", has three.
class Rule {
 public:
  const Step& of(std::int64_t queries) const {
    const Step* step = steps_.data();
    while (step->last < queries) ++step;
    return *step;
  }
  std::span<const Step> steps() const { return {steps_.data(), count_}; }
  const Step& largest() const { return steps().back(); }
  void add(const Step& step) { steps_.at(count_++) = step; }

 private:
  std::array<Step, 4> steps_;
  std::size_t count_ = 0;
};

/// One for each duty, in their order.
using Requests = std::array<kernels::Request, kernels::duty_count>;

class Choice {
 public:
  Choice() = default;
  /// For calls of up to `most_queries`. `wanted`: the name of an instruction set or of a
  /// candidate, empty for the best; `argument` is what an error calls it. Throws InvalidArgument where it is
  /// unknown or cannot run here.
  Choice(const Requests& requests, std::int64_t most_queries, const std::string& wanted,
         const char* argument);

  const Rule& rule(kernels::Duty duty) const { return rules_[static_cast<std::size_t>(duty)]; }
  /// What a plan is asked for in the first place: the output, or weights where there are no values.
  kernels::Duty main() const { return main_; }
  /// "avx512 tiled, avx512 split up to 8 queries".
  std::string text(kernels::Duty duty) const;
  /// "refused amx tiles: f32 at Precision::full": of the main duty, what stands before the candidate of the
  /// most queries and does not run, each reason once.
  std::vector<std::string> refusals(const Requests& requests, std::int64_t most_queries) const;
  /// Which code of mods runs.
  ModIsa mods() const { return rule(main_).largest().candidate->isa->mods; }

 private:
  kernels::QueryCounts counts(const kernels::Candidate& candidate, const kernels::Request& request) const;
  Rule rule_for(const kernels::Request& request, std::int64_t most_queries) const;

  const kernels::Candidate* forced_ = nullptr;    // whatever it is best for; set with the order below
  std::vector<const kernels::Candidate*> order_;  // of what may run, best first
  std::array<Rule, kernels::duty_count> rules_;
  kernels::Duty main_ = kernels::Duty::forward;
};

}  // namespace fovea
