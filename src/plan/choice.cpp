#include "plan/choice.h"

#include <algorithm>
#include <limits>

#include "fovea/core/error.h"

namespace fovea {
namespace {

using kernels::Candidate;
using kernels::Duty;
using kernels::Isa;
using kernels::QueryCounts;
using kernels::Request;

constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void refuse(const char* argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument("make_plan", argument, expected, got);
}

std::string known_names() {
  std::string names;
  const Isa* last = nullptr;
  for (const Candidate& candidate : kernels::candidates()) {
    if (candidate.isa != last) names += (names.empty() ? "" : ", ") + std::string(candidate.isa->name);
    last = candidate.isa;
  }
  return names;
}

// The candidate with that name first, if there is one; then the other candidates of its instruction set; then
// those of the base instruction sets.
std::vector<const Candidate*> order_of(const std::string& wanted, const char* argument,
                                       const Candidate*& forced) {
  std::vector<const Candidate*> order;
  order.reserve(kernels::candidates().size());
  const Isa* isa = nullptr;
  for (const Candidate& candidate : kernels::candidates()) {
    if (wanted.empty()) order.push_back(&candidate);
    if (wanted == candidate.name) forced = &candidate;
    if (wanted == candidate.name || wanted == candidate.isa->name) isa = candidate.isa;
  }
  if (wanted.empty()) return order;
  if (!isa)
    refuse(argument,
           "one of " + known_names() + ", or one of their algorithms, such as '" +
               kernels::candidates().front().name + "'",
           "'" + wanted + "'");
  if (const char* absence = isa->absence())
    refuse(argument, "a kernel that can run on this machine", wanted + ": " + absence);
  if (forced) order.push_back(forced);
  for (; isa; isa = isa->base) {
    for (const Candidate& candidate : kernels::candidates()) {
      if (candidate.isa == isa && &candidate != forced) order.push_back(&candidate);
    }
  }
  return order;
}

std::string range_text(const QueryCounts& counts) {
  if (counts.first > 1) return "for calls of at least " + std::to_string(counts.first) + " queries";
  return "for calls of at most " + std::to_string(counts.last) + " queries";
}

}  // namespace

Choice::Choice(const Requests& requests, std::int64_t most_queries, const std::string& wanted,
               const char* argument)
    : order_(order_of(wanted, argument, forced_)),
      main_(requests[0].values ? Duty::forward : Duty::weights_alone) {
  if (forced_) {
    if (const char* reason = forced_->refuse(requests[static_cast<std::size_t>(main_)]))
      refuse(argument, "a kernel that takes this spec", wanted + ": " + reason);
  }
  for (std::size_t duty = 0; duty < kernels::duty_count; ++duty)
    rules_[duty] = rule_for(requests[duty], most_queries);
}

QueryCounts Choice::counts(const Candidate& candidate, const Request& request) const {
  return &candidate == forced_ || !candidate.best_for ? QueryCounts() : candidate.best_for(request);
}

std::int64_t Choice::most_keys(const Candidate& candidate) const {
  return &candidate == forced_ ? 0 : candidate.most_keys;
}

// For each range of query counts: the first candidate in the order that is best for this range and can run
// the request. One for few keys that comes before it has a step of its own.
Rule Choice::rule_for(const Request& request, std::int64_t most_queries) const {
  Rule rule;
  for (std::int64_t last = 0; last < no_end;) {
    const Candidate *chosen = nullptr, *few_keys = nullptr;
    const std::int64_t first = last + 1;
    last = no_end;
    for (const Candidate* candidate : order_) {
      const QueryCounts best = counts(*candidate, request);
      if (best.last < first || best.first > std::min(last, std::max<std::int64_t>(most_queries, 1))) continue;
      // absence() of AMX asks the system to give this process the AMX registers. So absence() is tested last,
      // and never for a call that would not use these registers.
      if (candidate->refuse(request) || candidate->isa->absence()) continue;
      if (best.first > first) {
        last = best.first - 1;
        continue;
      }
      if (most_keys(*candidate) > 0) {
        if (!few_keys) few_keys = candidate;
        continue;
      }
      chosen = candidate;
      last = std::min(last, best.last);
      break;
    }
    if (few_keys) rule.add({std::min(last, counts(*few_keys, request).last), most_keys(*few_keys), few_keys});
    if (last >= most_queries) last = no_end;
    rule.add(
        {last, 0, chosen, chosen->in_16_bits ? chosen->in_16_bits(request) : kernels::In16Bits::nothing});
  }
  return rule;
}

// AMX, whose absence() asks the system for its registers, comes first in the order, and dot products of bf16
// say the same.
bool Choice::multiplies_bf16(const Request& request) const {
  return std::any_of(order_.rbegin(), order_.rend(), [&](const Candidate* candidate) {
    return candidate->isa->multiplies_bf16 && !candidate->refuse(request) && !candidate->isa->absence();
  });
}

std::string Choice::text(Duty duty) const {
  const Rule& rule = this->rule(duty);
  std::string text = rule.largest().candidate->name;
  for (const Step& step : rule.steps()) {
    if (step.last == no_end) break;
    text += ", " + step.candidate->name + " up to " + std::to_string(step.last) +
            (&step != &rule.steps().front() && step.most_keys == 0 ? ""
             : step.last == 1                                      ? " query"
                                                                   : " queries");
    if (step.most_keys > 0) text += " of " + std::to_string(step.most_keys) + " keys";
  }
  return text;
}

std::vector<Refusal> Choice::refusals(const Requests& requests, std::int64_t most_queries, Duty duty) const {
  const Request& request = requests[static_cast<std::size_t>(duty)];
  const std::span<const Step> steps = rule(duty).steps();
  std::vector<Refusal> refusals;
  for (const Candidate* candidate : order_) {
    if (candidate == steps.back().candidate) break;
    if (std::any_of(steps.begin(), steps.end(),
                    [candidate](const Step& step) { return step.candidate == candidate; }))
      continue;
    if (is_backward(duty) && !candidate->f32.backward && !candidate->f64.backward) continue;
    const QueryCounts best = counts(*candidate, request);
    const char* reason = candidate->refuse(request);
    if (!reason && best.first <= most_queries) reason = candidate->isa->absence();
    refusals.push_back({candidate, reason ? reason : range_text(best)});
  }
  return refusals;
}

}  // namespace fovea
