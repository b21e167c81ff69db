// fovea bench kernels: every kernel against the limits of this machine and against other libraries, in one
// run. Peaks are probed and all ways of a row run in turns, so that what else the machine does falls on all
// of them alike.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/cases.h"
#include "bench/measure.h"
#include "bench/probes.h"
#include "bench/rivals.h"
#include "bench/text.h"
#include "cli/bench.h"
#include "cli/commands.h"

namespace fovea::cli {
namespace {

using namespace bench;

using nlohmann::json;

struct Options {
  double seconds = 2.0, probe_seconds = 0.02;
  std::int64_t rounds = 3;
  int threads = 0;
  bool quick = false, list = false;
  std::string kernel, json_path, from, markdown, python, script = "bench/rivals.py";
  std::vector<std::string> only, without;
};

json peaks_of(const Options& o, int threads, Rates& all) {
  json peaks;
  for (const Probe probe : all_probes) {
    json& peak = peaks[to_string(probe)];
    peak["unit"] = unit_of(probe);
    if (const std::string reason = absence_of(probe); !reason.empty()) {
      peak["absent"] = reason;
      continue;
    }
    peak["one_thread"] = measure(probe, {.threads = 1, .seconds = o.probe_seconds});
    all.of[static_cast<std::size_t>(probe)] =
        measure(probe, {.threads = threads, .seconds = o.probe_seconds});
    peak["all_threads"] = all[probe];
  }
  return peaks;
}

// Guessed from the peaks: Fovea at half its limit, the way beside it as long, rivals, half of which refuse a
// row, three times as long; and so many seconds to compile FlexAttention.
double estimated_seconds(const Options& o, const json& rival_list, const Rates& peaks,
                         const std::vector<BenchCase>& cases) {
  std::int64_t rivals = 0;
  double compile = 0;
  for (const json& rival : rival_list) {
    if (rival.contains("absent")) continue;
    ++rivals;
    if (rival.at("name") == "torch flex") compile = 8;
  }
  double total = 0;
  for (const BenchCase& c : cases) {
    BenchCase dense = c;  // what a rival computes that is given a mask as a matrix
    if (c.mask != "causal") dense.mask = "everything";
    const double limit = limit_of(c, work_of(c), peaks).seconds(),
                 theirs = limit_of(dense, work_of(dense), peaks).seconds(),
                 turn =
                     2 * limit * (c.beside_name.empty() ? 1 : 2) + 3 * theirs * static_cast<double>(rivals);
    total += 2 * turn + std::max(o.seconds, static_cast<double>(o.rounds) * turn) +
             0.2 * static_cast<double>(rivals);
    if (c.pass == Pass::forward && c.score != "additive") total += compile;
  }
  return total;
}

bool wanted(const Options& o, const std::string& name) {
  return o.only.empty() || std::any_of(o.only.begin(), o.only.end(), [&name](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

std::vector<BenchCase> chosen_cases(const Options& o) {
  std::vector<BenchCase> cases = bench_cases(o.quick ? CaseSet::quick : CaseSet::all);
  std::erase_if(cases, [&o](const BenchCase& c) { return !wanted(o, c.name()); });
  if (cases.empty())
    throw InvalidArgument("fovea bench kernels", "--only", "part of a row's name, as --list prints them",
                          o.only.at(0));
  return cases;
}

json read_report(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw FileError(path, 0, "cannot be read");
  json report = json::parse(file, nullptr, false);
  if (!report.is_object() || !report.contains("rows") || !report.contains("peaks"))
    throw FileError(path, 0, "is no report that fovea bench kernels --json wrote");
  return report;
}

void write_report(const std::string& path, const json& report) {
  if (path == "-") {
    fmt::print("{}\n", report.dump(1));
    return;
  }
  std::ofstream file(path);
  file << report.dump(1) << "\n";
  file.close();
  if (!file) throw FileError(path, 0, "cannot be written");
}

// Of the instruction sets that run here; a row names the algorithm.
std::string kernel_names() {
  std::string names;
  std::string_view last;
  const std::vector<KernelInfo> kernels = list_kernels();
  for (const KernelInfo& kernel : kernels) {
    if (kernel.available && kernel.isa != last) names += (names.empty() ? "" : ", ") + kernel.isa;
    last = kernel.isa;
  }
  return names;
}

json measure_all(const Options& o, bool printing) {
  const std::vector<BenchCase> cases = chosen_cases(o);
  const std::unique_ptr<Executor> pool =
      make_thread_pool(o.threads > 0 ? o.threads : default_executor().thread_count());
  const int threads = pool->thread_count();
  Rivals rivals({.python = o.quick && o.python.empty() ? "none" : o.python,
                 .script = o.script,
                 .without = o.without,
                 .threads = threads});
  const WorkFolder folder;
  const Measuring measuring{.executor = *pool,
                            .rivals = rivals,
                            .folder = folder,
                            .kernel = o.kernel,
                            .seconds = o.seconds,
                            .probe_seconds = o.probe_seconds,
                            .rounds = o.rounds,
                            .pause_ms = o.quick ? 0 : 10};
  Rates peaks;
  json report{{"version", FOVEA_VERSION},
              {"threads", threads},
              {"machine", {{"cpu", cpu_name()}, {"kernels", kernel_names()}}},
              {"seconds_a_row", o.seconds},
              {"rivals", rivals.list()},
              {"rows", json::array()}};
  report["peaks"] = peaks_of(o, threads, peaks);
  if (printing) {
    fmt::print("{}{} rows, about {:.0f} min.\n{}", peaks_text(report), cases.size(),
               std::ceil(estimated_seconds(o, rivals.list(), peaks, cases) / 60), header_text(report));
    std::fflush(stdout);
  }
  for (const BenchCase& c : cases) {
    report["rows"].push_back(measure_row(measuring, c));
    if (printing) fmt::print("{}", row_text(report, report["rows"].back()));
    std::fflush(stdout);
    if (!o.json_path.empty() && o.json_path != "-")
      write_report(o.json_path, report);  // what there is, if it is ended
  }
  return report;
}

void run(Options o) {
  if (o.list) {
    for (const BenchCase& c : chosen_cases(o)) fmt::print("{}\n", c.name());
    return;
  }
  if (o.quick) {
    o.seconds = 0.005;
    o.probe_seconds = 0.001;
    o.rounds = 2;
  }
  const bool printing = o.json_path != "-";
  json report;
  if (o.from.empty()) {
    report = measure_all(o, printing);
  } else {
    report = read_report(o.from);
    if (printing) {
      fmt::print("{}{}", peaks_text(report), header_text(report));
      for (const json& row : report["rows"]) fmt::print("{}", row_text(report, row));
    }
  }
  if (printing) fmt::print("{}", refusals_text(report));
  if (!o.json_path.empty()) write_report(o.json_path, report);
  if (!o.markdown.empty()) write_markdown(o.markdown, report);
}

}  // namespace

void register_bench_kernels(CLI::App& bench) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "kernels", "Every kernel as a share of this machine's limit and beside other libraries");
  command->add_option("--seconds", o->seconds, "to measure a row for, where its rounds do not take longer")
      ->check(CLI::Range(0.001, 3600.0) & finite());
  command->add_option("--rounds", o->rounds, "turns of all ways of a row, at least")
      ->check(CLI::Range(1, 1000));
  command->add_option("--probe-seconds", o->probe_seconds, "for each peak, beside every round")
      ->check(CLI::Range(0.0005, 10.0) & finite());
  command->add_option("--only", o->only, "rows whose names contain one of these");
  command->add_flag("--list", o->list, "print the names of the rows, and measure nothing");
  command->add_flag("--quick", o->quick,
                    "small shapes, short times, no rivals unless --rivals: to see that it works");
  command->add_option("--cpu-threads", o->threads, "of Fovea, of the rivals and of the probes; 0: all")
      ->check(CLI::Range(0, 1024));
  command->add_option(
      "--kernel", o->kernel,
      "amx, avx512bf16, avx512, avx2, baseline, tiles or reference, or an algorithm of one such as "
      "'avx512 tiled'; default: the best");
  command->add_option(
      "--rivals", o->python,
      "the Python that has the rivals' packages, or none; default: .venv/bin/python, else python3");
  command->add_option("--rivals-script", o->script);
  command->add_option("--without", o->without, "rivals to leave out, such as 'torch flex'");
  command->add_option("--json", o->json_path, "a file for the report; -: standard output, and no table")
      ->take_last();
  command->add_option("--from", o->from, "print such a report again, and measure nothing");
  command->add_option("--markdown", o->markdown, "a page into whose bench markers the tables go");
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
