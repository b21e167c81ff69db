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
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <system_error>

#include "fovea/core/error.h"

namespace fovea::bench {
namespace {

std::string read_all(int from) {
  std::string bytes;
  char piece[4096];
  for (;;) {
    const ssize_t got = read(from, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return bytes;
    bytes.append(piece, static_cast<std::size_t>(got));
  }
}

bool write_all(int to, const void* data, std::size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(to, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

// Sends the numbers and exits with 0, or sends the text of an exception and exits with 1.
[[noreturn]] void run_child(int to, const std::function<std::vector<double>()>& body) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  int status = 1;
  try {
    const std::vector<double> numbers = body();
    if (write_all(to, numbers.data(), numbers.size() * sizeof(double))) status = 0;
  } catch (const std::exception& error) {
    write_all(to, error.what(), std::strlen(error.what()));
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
  std::fflush(nullptr);  // else the child would write buffered output again
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], body);
  }
  close(ends[1]);
  const std::string bytes = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status))
    throw Error("a measurement's own process was ended by signal " + std::to_string(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) throw Error("a measurement's own process failed: " + bytes);
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

}  // namespace fovea::bench
