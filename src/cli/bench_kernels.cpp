#include <fmt/format.h>

#include <cmath>

#include "bench/report.h"
#include "bench/text.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/core/error.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

struct BenchKernelsCommand {
  bench::ReportOptions report{.rivals = {.script = "bench/rivals.py", .threads = 0}};
  bool quick = false, list = false;
  std::string json_path, from, markdown;
  std::vector<std::string> only;

  bool prints_table() const { return json_path != "-"; }
};

std::vector<bench::BenchCase> chosen_cases(const BenchKernelsCommand& o) {
  std::vector<bench::BenchCase> cases =
      bench::cases_named(o.quick ? bench::CaseSet::quick : bench::CaseSet::all, o.only);
  if (cases.empty())
    throw InvalidArgument("fovea bench kernels", "--only", "part of a row's name, as --list prints them",
                          o.only.at(0));
  return cases;
}

void write_json(const BenchKernelsCommand& o, const json& report) {
  if (o.json_path == "-")
    fmt::print("{}\n", report.dump(1));
  else if (!o.json_path.empty())
    bench::write_report(o.json_path, report);
}

void print_begin(const json& report, const std::string& rows) {
  fmt::print("{}{}{}", bench::peaks_text(report), rows, bench::header_text(report));
  std::fflush(stdout);
}

json measured(const BenchKernelsCommand& o) {
  const std::vector<bench::BenchCase> cases = chosen_cases(o);
  const auto begin = [&](const json& report, double seconds) {
    if (o.prints_table())
      print_begin(report, fmt::format("{} rows, about {:.0f} min.\n", cases.size(), std::ceil(seconds / 60)));
  };
  const auto row = [&](const json& report) {
    if (!o.prints_table()) return;
    fmt::print("{}", bench::row_text(report, report["rows"].back()));
    std::fflush(stdout);
    write_json(o, report);  // so that the rows so far are kept if the command is interrupted
  };
  return bench::measure_report(o.report, cases, {begin, row});
}

void run(BenchKernelsCommand o) {
  if (o.list) {
    for (const bench::BenchCase& c : chosen_cases(o)) fmt::print("{}\n", c.name());
    return;
  }
  if (o.quick) {
    o.report.seconds = 0.005;
    o.report.probe_seconds = 0.001;
    o.report.rounds = 2;
    o.report.pause_ms = 0;
    if (o.report.rivals.python.empty()) o.report.rivals.python = "none";
  }
  json report;
  if (o.from.empty()) {
    report = measured(o);
  } else {
    report = bench::read_report(o.from);
    if (o.prints_table()) {
      print_begin(report, "");
      for (const json& row : report["rows"]) fmt::print("{}", bench::row_text(report, row));
    }
  }
  if (o.prints_table()) fmt::print("{}", bench::refusals_text(report));
  write_json(o, report);
  if (!o.markdown.empty()) bench::write_markdown(o.markdown, report);
}

}  // namespace

void register_bench_kernels(Command bench) {
  auto o = std::make_shared<BenchKernelsCommand>();
  Command command = bench.add_subcommand(
      "kernels", "Every kernel compared with this machine's limit and with other libraries");
  command.add_option("--seconds", o->report.seconds, "time for a row, unless its rounds take longer")
      .check(in_range(0.001, 3600.0))
      .check(finite());
  command.add_option("--rounds", o->report.rounds, "the least number of turns for each row")
      .check(in_range(1, 1000));
  command.add_option("--probe-seconds", o->report.probe_seconds, "time for each peak, in every round")
      .check(in_range(0.0005, 10.0))
      .check(finite());
  command.add_option("--only", o->only, "rows whose names contain one of these");
  command.add_flag("--list", o->list, "print the names of the rows, and measure nothing");
  command.add_flag("--quick", o->quick,
                   "small shapes, short times, no rivals unless --rivals: to see that it works");
  command
      .add_option("--cpu-threads", o->report.rivals.threads,
                  "threads of Fovea, of the rivals and of the probes; 0: all")
      .check(in_range(0, 1024));
  command.add_option(
      "--kernel", o->report.kernel,
      "amx, avx512bf16, avx512, avx2, baseline, tiles or reference, or an algorithm of one such as "
      "'avx512 tiled'; default: the best");
  command.add_option(
      "--rivals", o->report.rivals.python,
      "the Python that has the rivals' packages, or none; default: .venv/bin/python, else python3");
  command.add_option("--rivals-script", o->report.rivals.script);
  command.add_option("--without", o->report.rivals.without, "rivals to leave out, such as 'torch flex'");
  command.add_option("--json", o->json_path, "a file for the report; -: standard output, and no table")
      .take_last()
      .check(file_name());
  command.add_option("--from", o->from, "print a report that --json wrote, and measure nothing")
      .check(file_name());
  command.add_option("--markdown", o->markdown, "a page; the tables go between its bench markers")
      .check(file_name());
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
