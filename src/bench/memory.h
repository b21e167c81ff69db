// The process's peak resident size, which Linux keeps and forgets on request, and processes of one's own for
// measurements that must not see what earlier ones left.
#pragma once

#include <functional>
#include <vector>

namespace fovea::bench {

void reset_peak_memory();
/// Megabytes (10^6 bytes) since the last reset, of the whole process; negative where the system does not
/// tell.
double peak_memory();

/// What `body` gives in a process forked for it: memory that it frees is gone, threads that it starts end.
/// The caller must not have run anything in parallel before, since a child has none of its threads. Throws
/// Error where the child fails, with what the child's exception said.
std::vector<double> in_own_process(const std::function<std::vector<double>()>& body);

}  // namespace fovea::bench
