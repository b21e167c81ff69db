// The choice among candidates of recurrences: the best one that this machine runs, or the one that a caller
// or FOVEA_ISA names. A candidate has a name and an instruction set.
#pragma once

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "fovea/core/error.h"
#include "fovea/core/kept_vector.h"
#include "kernels/candidate.h"
#include "plan/recurrence/refusals.h"

namespace fovea {

struct Choosing {
  const char* function;
  const std::string& kernel;  ///< RecurrenceOptions::kernel
  KeptVector<RecurrenceRefusal>& refusals;
};

template <class Candidate>
std::vector<std::string> names_of(std::span<const Candidate> candidates) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) names.push_back(candidate.name);
  return names;
}

/// The instruction set of that name, or that of the kernel of that name. FOVEA_ISA may name one of attention
/// alone. Null: there is none.
template <class Candidate>
const kernels::Isa* isa_named(std::span<const Candidate> candidates, const std::string& wanted) {
  for (const Candidate& candidate : candidates) {
    if (wanted == candidate.name || wanted == candidate.isa->name) return candidate.isa;
  }
  for (const kernels::Candidate& candidate : kernels::candidates()) {
    if (wanted == candidate.name || wanted == candidate.isa->name) return candidate.isa;
  }
  return nullptr;
}

/// The candidates that may run, best first: all, those of one instruction set and the sets it builds on, or
/// one.
template <class Candidate>
KeptVector<const Candidate*> order_of(const Choosing& choosing, std::span<const Candidate> candidates,
                                      const std::string& wanted, const char* argument) {
  KeptVector<const Candidate*> order;
  const kernels::Isa* isa = wanted.empty() ? nullptr : isa_named(candidates, wanted);
  if (!wanted.empty() && !isa) {
    std::string names;
    for (const std::string& name : names_of(candidates)) names += (names.empty() ? "" : ", ") + name;
    throw InvalidArgument(choosing.function, argument, "one of " + names + ", or an instruction set",
                          "'" + wanted + "'");
  }
  if (isa) {
    if (const char* absence = isa->absence())
      throw InvalidArgument(choosing.function, argument, "a kernel that can run on this machine",
                            wanted + ": " + absence);
  }
  for (const Candidate& candidate : candidates) {
    if (wanted.empty() || wanted == candidate.name) order.push_back(&candidate);
  }
  for (const bool one = !order.empty(); isa && !one; isa = isa->base) {
    for (const Candidate& candidate : candidates) {
      if (candidate.isa == isa) order.push_back(&candidate);
    }
  }
  return order;
}

/// The first candidate that this machine runs and for which `refuse(candidate, whether it is named)` gives no
/// reason. Those before it are added to the refusals.
template <class Candidate, class Refuse>
const Candidate* choose_candidate(const Choosing& choosing, std::span<const Candidate> candidates,
                                  Refuse refuse) {
  const char* environment = std::getenv("FOVEA_ISA");
  const bool forced = !choosing.kernel.empty();
  const std::string wanted = forced ? choosing.kernel : environment ? environment : "";
  const char* argument = forced ? "options.kernel" : "FOVEA_ISA";
  for (const Candidate* candidate : order_of(choosing, candidates, wanted, argument)) {
    const char* reason = candidate->isa->absence();
    if (!reason) reason = refuse(*candidate, wanted == candidate->name);
    if (!reason) return candidate;
    choosing.refusals.push_back({candidate->name, reason});
  }
  throw InvalidArgument(choosing.function, argument, "a kernel that takes this spec",
                        choosing.refusals.empty() ? wanted : text_of(choosing.refusals.front()));
}

}  // namespace fovea
