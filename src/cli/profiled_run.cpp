#include "cli/profiled_run.h"

#include <fmt/format.h>

#include "bench/limits.h"
#include "cli/commands.h"
#include "core/replace_file.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::cli {
namespace {

void print_parts(const Profile& profile, int threads) {
  const double whole = threads * profile.seconds();
  fmt::print(stderr, "profile: {:.3f} s on {} thread{}, {:.3f} s in all\n", profile.seconds(), threads,
             threads == 1 ? "" : "s", whole);
  for (const auto& [part, seconds] : profile.parts(threads))
    fmt::print(stderr, "  {:<13} {:>8.3f} s {:>5.1f} %\n", to_string(part), seconds, 100.0 * seconds / whole);
  if (profile.dropped() > 0)
    fmt::print(stderr, "  {} events are counted here but are not in the trace, which had no room for them\n",
               profile.dropped());
}

}  // namespace

void ProfiledRun::add_to(Command app, const std::string& name) {
  Command command = app.subcommand(name);
  command
      .add_option("--profile", file_,
                  "write where the time goes into FILE, a trace for ui.perfetto.dev or chrome://tracing")
      .check(file_name());
  // Between the parsing of the options and the command itself.
  command.when_read([this, command] {
    if (file_.empty()) return;
    for (const auto& [option, value] : command.given_values()) {
      if (option != "--profile" && !value.empty() && same_file(value, file_))
        throw InvalidArgument("fovea", "--profile", "a file that no other option names",
                              file_ + ", as " + option);
    }
    // A trace is written at the end, so a path that cannot be written is refused now.
    check_replaceable(file_);
    profile_.emplace();
  });
}

void ProfiledRun::finish() {
  if (!profile_) return;
  profile_->stop();
  print_parts(*profile_, default_executor().thread_count());
  profile_->write_chrome_trace(file_, bench::profile_limits);
  profile_.reset();
}

}  // namespace fovea::cli
