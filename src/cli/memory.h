// The process's peak resident size, which Linux keeps and forgets on request.
#pragma once

namespace fovea::cli {

void reset_peak_memory();
/// Megabytes (10^6 bytes) since the last reset, of the whole process; negative where the system does not
/// tell.
double peak_memory();

}  // namespace fovea::cli
