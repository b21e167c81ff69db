#include "bench/report.h"

#include <algorithm>
#include <memory>

#include "bench/measure.h"
#include "bench/probes.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/files/bytes.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {
namespace {

using nlohmann::json;

json peaks_of(const ReportOptions& o, int threads, Rates& all) {
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

// An estimate from the peaks. It takes Fovea to run at half its limit, the call beside it as long, and rivals
// three times as long, half of which refuse a row. Compiling FlexAttention adds its seconds.
double estimated_seconds(const ReportOptions& o, const json& rival_list, const Rates& peaks,
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
    BenchCase dense = c;  // what a rival computes if it is given the mask as a matrix
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

// The instruction sets that run here; a row names the algorithm.
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

}  // namespace

std::vector<BenchCase> cases_named(CaseSet set, const std::vector<std::string>& parts) {
  std::vector<BenchCase> cases = bench_cases(set);
  const auto wanted = [&parts](const std::string& name) {
    return parts.empty() || std::any_of(parts.begin(), parts.end(), [&name](const std::string& part) {
             return name.find(part) != std::string::npos;
           });
  };
  std::erase_if(cases, [&wanted](const BenchCase& c) { return !wanted(c.name()); });
  return cases;
}

json measure_report(const ReportOptions& o, const std::vector<BenchCase>& cases,
                    const ReportListener& listener) {
  const std::unique_ptr<Executor> pool =
      make_thread_pool(o.rivals.threads > 0 ? o.rivals.threads : default_executor().thread_count());
  const int threads = pool->thread_count();
  RivalsOptions rivals_options = o.rivals;
  rivals_options.threads = threads;
  Rivals rivals(rivals_options);
  const WorkFolder folder;
  const Measuring measuring{.executor = *pool,
                            .rivals = rivals,
                            .folder = folder,
                            .kernel = o.kernel,
                            .seconds = o.seconds,
                            .probe_seconds = o.probe_seconds,
                            .rounds = o.rounds,
                            .pause_ms = o.pause_ms};
  Rates peaks;
  json report{{"version", FOVEA_VERSION},
              {"threads", threads},
              {"machine", {{"cpu", cpu_name()}, {"kernels", kernel_names()}}},
              {"seconds_a_row", o.seconds},
              {"rivals", rivals.list()},
              {"rows", json::array()}};
  report["peaks"] = peaks_of(o, threads, peaks);
  listener.begin(report, estimated_seconds(o, rivals.list(), peaks, cases));
  for (const BenchCase& c : cases) {
    report["rows"].push_back(measure_row(measuring, c));
    listener.row(report);
  }
  return report;
}

json read_report(const std::string& path) {
  constexpr std::size_t longest_report = std::size_t{1} << 26;
  constexpr int depth = 8;
  json report = files::read_json_object(path, longest_report, depth);
  if (!report.contains("rows") || !report.contains("peaks"))
    throw FileError(path, 0, "is no report that fovea bench kernels --json wrote");
  return report;
}

void write_report(const std::string& path, const json& report) {
  files::write_file(path, report.dump(1) + "\n");
}

}  // namespace fovea::bench
