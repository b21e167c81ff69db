#include "cli/profiled_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "bench/probes.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::cli {
namespace {

// The shares of the time of all threads' outermost spans. Where one thread starts all work, that is the time
// of the command.
void print_parts(const Profile& profile) {
  std::map<ProfilePart, double> own;
  double all = 0.0;
  for (const ProfileTotal& total : profile.totals()) {
    own[total.label->part] += total.own;
    all += total.own;
  }
  if (all < profile.seconds()) own[ProfilePart::other] += profile.seconds() - all;
  std::vector<std::pair<ProfilePart, double>> parts(own.begin(), own.end());
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  fmt::print(stderr, "profile: {:.2f} s\n", profile.seconds());
  for (const auto& [part, seconds] : parts)
    fmt::print(stderr, "  {:<13} {:>8.3f} s {:>5.1f} %\n", to_string(part), seconds,
               100.0 * seconds / std::max(all, profile.seconds()));
}

}  // namespace

void ProfiledRun::add_to(Command app, const std::string& name) {
  Command command = app.subcommand(name);
  command.add_option("--profile", file_,
                     "write where the time goes into FILE, a trace for ui.perfetto.dev or chrome://tracing");
  // Between the parsing of the options and the command itself.
  command.when_read([this] {
    if (file_.empty()) return;
    // A trace is written at the end, so a path that cannot be written is refused now.
    if (!std::ofstream(file_, std::ios::app)) throw FileError(file_, -1, "cannot be opened for writing");
    profile_.emplace();
  });
}

void ProfiledRun::finish() {
  if (!profile_) return;
  profile_->stop();
  print_parts(*profile_);
  const bench::ProbeOptions machine{.threads = default_executor().thread_count()};
  ProfileLimits limits{.multiply_adds_per_second = bench::measure(bench::Probe::fma_f32, machine) / 2.0,
                       .bytes_per_second = bench::measure(bench::Probe::read, machine)};
  if (bench::absence_of(bench::Probe::dot_bf16).empty())
    limits.bf16_multiply_adds_per_second = bench::measure(bench::Probe::dot_bf16, machine) / 2.0;
  profile_->write_chrome_trace(file_, limits);
  profile_.reset();
}

}  // namespace fovea::cli
