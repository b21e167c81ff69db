#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/profiled_run.h"
#include "core/excerpt.h"

namespace fovea::cli {
namespace {

std::atomic<int> caught{0};
int caught_event = -1;  // can be read once a signal is caught; poll passes over -1

// The process ends the way it would have without us.
[[noreturn]] void end_by(int signal) {
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace

void add_weights_option(Command command, std::string& weights) {
  command
      .add_option("--weights", weights,
                  "numbers of the matrices; int8: a quarter of the bytes to read, bf16: half; both with "
                  "coarser products")
      .check(one_of({"f32", "int8", "bf16"}));
}

void add_threads_option(Command command, int& threads) {
  command.add_option("--cpu-threads", threads, "0: all").check(in_range(0, 1024));
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  const auto whole = [](const std::string& path) {
    // A pipe such as /dev/fd/63 has no canonical path, and is no file that is written.
    std::error_code no_path;
    const std::filesystem::path canonical =
        std::filesystem::weakly_canonical(std::filesystem::absolute(path), no_path);
    return no_path ? std::filesystem::path(path) : canonical;
  };
  return whole(a) == whole(b);
}

bool stop_requested() noexcept {
  return caught != 0;
}

bool wait_for_input(int descriptor) {
  pollfd polled[] = {{descriptor, POLLIN, 0}, {caught_event, POLLIN, 0}};
  while (!stop_requested()) {
    if (::poll(polled, std::size(polled), -1) < 0 && errno != EINTR) return true;  // the read says why
    if (polled[0].revents != 0) return !stop_requested();
  }
  return false;
}

// In the order of `fovea --help`, where each group has a heading.
struct NamedCommand {
  std::string_view name;
  const char* group;
  void (*add)(Command app);
  bool profiled = false;
};
constexpr const char *train_group = "Train models", *run_group = "Run models",
                     *folder_group = "Model folders", *look_group = "Look inside and measure";
constexpr NamedCommand commands[] = {{"train", train_group, register_train, true},
                                     {"corpus", train_group, register_corpus},
                                     {"shortlist", train_group, register_shortlist},
                                     {"demo", train_group, register_demo},
                                     {"translate", run_group, register_translate, true},
                                     {"summarize", run_group, register_summarize, true},
                                     {"generate", run_group, register_generate, true},
                                     {"embed", run_group, register_embed, true},
                                     {"classify", run_group, register_classify, true},
                                     {"tag", run_group, register_tag, true},
                                     {"answer", run_group, register_answer, true},
                                     {"fill", run_group, register_fill, true},
                                     {"rank", run_group, register_rank, true},
                                     {"tokenize", run_group, register_tokenize},
                                     {"show", folder_group, register_show},
                                     {"convert", folder_group, register_convert},
                                     {"inspect", look_group, register_inspect},
                                     {"score", look_group, register_score},
                                     {"attend", look_group, register_attend},
                                     {"bench", look_group, register_bench}};

// Adds the command that the first argument names, or all of them if it names none. With all of them
// `perf stat -r 200 fovea convert --help` took 8.2 to 10.2 ms of a Zen 3, with one 5.5 to 7.0.
static void add_commands(Command app, std::string_view first, ProfiledRun& profiled) {
  const bool is_named = std::ranges::find(commands, first, &NamedCommand::name) != std::end(commands);
  for (const NamedCommand& command : commands) {
    if (is_named && command.name != first) continue;
    command.add(app);
    const std::string name(command.name);
    app.subcommand(name).group(command.group);
    if (command.profiled) profiled.add_to(app, name);
  }
}

// FOVEA_ISA is set by the user, who need not know which function reads it.
static std::string message_of(const InvalidArgument& error) {
  const std::string message = error.what(), read_by = error.function() + ": argument 'FOVEA_ISA'";
  return message.starts_with(read_by) ? "environment variable FOVEA_ISA" + message.substr(read_by.size())
                                      : message;
}

// Prints a single line, even if a file's content put line breaks into the message. A message that names its
// command, such as "fovea attend: argument ...", says so itself.
static void print_error(const std::string& message, bool is_named = false) {
  std::fprintf(stderr, "%s%s\n", is_named ? "" : "fovea: ", fovea::printable(message).c_str());
}

// Output that could not be written, such as on a full disk, is a failure.
static int end_of_output() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
  std::fprintf(stderr, "fovea: standard output cannot be written\n");
  return 1;
}

// No signal handler is installed: it could call almost nothing, wherever it interrupts a thread. Threads
// inherit the blocked signals, so they are blocked before the first thread starts. One thread waits for them.
static void wait_for_signals(std::function<void(int)> take) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  for (const int signal : {SIGINT, SIGTERM}) {
    // A shell lets what it starts in the background ignore SIGINT. Blocked, it would reach us nevertheless.
    struct sigaction now = {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) sigdelset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set, take = std::move(take)] {
    for (int signal = 0;;) {
      if (sigwait(&set, &signal) == 0) take(signal);
    }
  }).detach();
}

void catch_signals() {
  caught_event = ::eventfd(0, EFD_CLOEXEC);
  wait_for_signals([](int signal) {
    if (caught.exchange(signal) != 0) end_by(signal);
    ::eventfd_write(caught_event, 1);
  });
}

void end_on_signals(void (*before_end)()) {
  wait_for_signals([before_end](int signal) {
    before_end();
    end_by(signal);
  });
}

}  // namespace fovea::cli

// A file that is opened takes the place of a closed standard stream, and would be read or written in its
// name. Read-only, so that writing to a closed output still fails.
static void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) == -1) (void)!::open("/dev/null", O_RDONLY);
  }
}

int main(int argc, char** argv) {
  open_standard_streams();
  fovea::cli::CommandLine command_line(
      "Train, run and look inside attention models; attention on NumPy files", "fovea " FOVEA_VERSION);
  const fovea::cli::Command app = command_line.command();
  fovea::cli::ProfiledRun profiled;
  fovea::cli::add_commands(app, argc > 1 ? argv[1] : "", profiled);
  const auto finish_profile = [&] {
    try {
      profiled.finish();
    } catch (const std::exception& error) {
      fovea::cli::print_error(error.what());
    }
  };
  try {
    const std::optional<int> status = command_line.run({argv, argv + argc});
    if (status) return *status == 0 ? fovea::cli::end_of_output() : *status;
    profiled.finish();
    return fovea::cli::end_of_output();
  } catch (const fovea::cli::Stopped& stopped) {
    std::fprintf(stderr, "%s\n", stopped.message.c_str());
    finish_profile();
    return 128 + fovea::cli::caught;
  } catch (const fovea::cli::LinesFailed& failed) {
    fovea::cli::print_error(failed.what());
    finish_profile();
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {
    fovea::cli::print_error(error.path1().string() + ": " + error.code().message());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "fovea: memory ran out\n");
  } catch (const fovea::InvalidArgument& error) {
    fovea::cli::print_error(fovea::cli::message_of(error),
                            error.function() == "fovea" || error.function().starts_with("fovea "));
  } catch (const std::exception& error) {
    fovea::cli::print_error(error.what());
  }
  return 1;
}
