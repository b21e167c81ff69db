// The process's peak resident size, which Linux keeps and resets on request. And separate processes, for
// measurements that must not see what earlier ones left in memory.
#pragma once

#include <functional>
#include <vector>

namespace fovea::bench {

void reset_peak_memory();
/// The peak in megabytes (10^6 bytes) since the last reset, of the whole process; negative where the system
/// does not tell.
double peak_memory();

/// Returns the result of `body`, which runs in a process forked for it: memory that it leaves is gone, and
/// threads that it starts end. The caller must not have run anything in parallel before, since a child has
/// none of its threads. Throws Error where the child fails, with the text of the child's exception.
std::vector<double> in_own_process(const std::function<std::vector<double>()>& body);

}  // namespace fovea::bench
