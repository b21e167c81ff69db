#include "bench/memory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace fovea::bench {
namespace {

// Numbers until the other end closes.
std::vector<double> read_numbers(int from) {
  std::vector<double> numbers;
  double number = 0.0;
  std::size_t filled = 0;
  for (;;) {
    const ssize_t got = read(from, reinterpret_cast<char*>(&number) + filled, sizeof(number) - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return numbers;
    filled += static_cast<std::size_t>(got);
    if (filled < sizeof(number)) continue;
    numbers.push_back(number);
    filled = 0;
  }
}

[[noreturn]] void run_child(int to, const std::function<std::vector<double>()>& body) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  int status = 1;
  try {
    const std::vector<double> numbers = body();
    const auto bytes = static_cast<ssize_t>(numbers.size() * sizeof(double));  // less than a pipe holds
    if (write(to, numbers.data(), static_cast<std::size_t>(bytes)) == bytes) status = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fovea: %s\n", error.what());
  }
  std::_Exit(status);
}

}  // namespace

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

std::vector<double> in_own_process(const std::function<std::vector<double>()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  std::fflush(nullptr);  // or the child would write it once more
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], body);
  }
  close(ends[1]);
  std::vector<double> numbers = read_numbers(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error("a measurement's own process failed");
  return numbers;
}

}  // namespace fovea::bench
