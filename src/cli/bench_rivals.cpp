#include "cli/bench_rivals.h"

#include <fmt/format.h>

#include <cstdio>

namespace fovea::cli {

std::string parts_text(const std::vector<std::pair<std::string, double>>& parts) {
  std::string text;
  for (const auto& [name, share] : parts) {
    if (share >= 0.005) text += fmt::format("{}{} {:.0f}", text.empty() ? "" : ", ", name, 100.0 * share);
  }
  return text;
}

void add_rivals(Command command, bench::RivalsOptions& options, const std::string& libraries) {
  options.python.clear();
  command.add_option(
      "--rivals", options.python,
      "the Python that has " + libraries + ", or none; default: .venv/bin/python, else python3");
  command.add_option("--rivals-script", options.script);
}

void RivalLines::print(const std::string& model, double seconds,
                       const std::vector<bench::RivalTime>& rivals) {
  for (const bench::RivalTime& rival : rivals) {
    if (rival.refused.empty())
      fmt::print("  {:<18} {:>10.2f} ms, {:.2f} times Fovea's{}{}\n", rival.name, 1e3 * rival.seconds,
                 rival.seconds / seconds, rival.note.empty() ? "" : "; ", rival.note);
    else if (told_.insert(model + ' ' + rival.name + ' ' + rival.refused).second)
      fmt::print("  {:<18} {}\n", rival.name, rival.refused);
  }
  std::fflush(stdout);
}

}  // namespace fovea::cli
