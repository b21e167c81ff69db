#include "cli/memory.h"

#include <fstream>
#include <string>

namespace fovea::cli {

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0.0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024 / 1e6;
  }
  return -1.0;
}

}  // namespace fovea::cli
