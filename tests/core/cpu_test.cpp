#include "core/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace fovea {
namespace {

// Linux's names of the features of the first CPU. Empty where the system does not list them.
std::set<std::string> listed_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(Cpu, HasWhatTheSystemLists) {
  const std::set<std::string> listed = listed_features();
  if (listed.empty()) GTEST_SKIP() << "this system lists no features of the CPU in /proc/cpuinfo";
  const auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!listed.contains(name)) return false;
    }
    return true;
  };
  const bool avx2 = has({"avx2", "fma", "bmi1", "bmi2", "f16c", "abm"});
  const bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
  EXPECT_EQ(cpu_has_sse42(), has({"sse4_2"}));
  EXPECT_EQ(cpu_has_avx2(), avx2);
  EXPECT_EQ(cpu_has_avx512(), avx512);
  EXPECT_EQ(cpu_has_avx512_bf16(), avx512 && has({"avx512_bf16"}));
  EXPECT_EQ(cpu_has_avx512_vnni(), avx512 && has({"avx512_vnni"}));
}

}  // namespace
}  // namespace fovea
