// fovea bench kernels: every kernel against the limits of this machine and against other libraries, in one
// run. Peaks are probed and all ways of a row run in turns, so that what else the machine does falls on all
// of them alike.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/bench.h"
#include "cli/bench_call.h"
#include "cli/bench_cases.h"
#include "cli/bench_print.h"
#include "cli/commands.h"
#include "cli/probes.h"
#include "cli/rivals.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

struct Options {
  double seconds = 2.0, probe_seconds = 0.02;
  std::int64_t rounds = 3;
  int threads = 0;
  bool quick = false, list = false;
  std::string kernel, json_path, from, markdown, python, script = "bench/rivals.py";
  std::vector<std::string> only, without;
};

// Removed with all that is in it.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fovea-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) throw FileError(name, 0, "cannot be made");
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Bench {
  const Options& options;
  Executor& executor;
  Rivals& rivals;
  const WorkFolder& folder;
  Rates peaks = {};  // of all threads, at the start
};

// One of the ways that a row's numbers are computed in.
struct Way {
  std::string name;
  std::function<std::vector<double>(std::int64_t)> run;
  double estimate = 0;
  std::vector<double> samples = {};
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

json request_of(const BenchCase& c, const BenchCall& call, const std::filesystem::path& folder) {
  json tensors;
  for (const auto& [name, tensor] : call.tensors()) {
    const std::filesystem::path path = folder / (name + ".raw");
    write_raw(path, tensor);
    json shape = json::array();
    for (const std::int64_t size : tensor.shape().sizes()) shape.push_back(size);
    tensors[name] = {{"file", path.string()}, {"dtype", to_string(tensor.dtype())}, {"shape", shape}};
  }
  return {{"do", "prepare"},
          {"pass", to_string(c.pass)},
          {"score", c.score},
          {"mask", c.mask},
          {"dtype", to_string(c.dtype)},
          {"shape",
           {c.shape.batch, c.shape.query_heads, c.shape.kv_heads, c.shape.query_len, c.shape.key_len,
            c.shape.head_dim}},
          {"tensors", tensors}};
}

// Relative Frobenius norm of the difference that two right computations may have: some roundings of the
// dtype.
double tolerance_of(DType dtype) {
  return dtype == DType::f32 ? 256 * 0x1p-24 : dtype == DType::bf16 ? 8 * 0x1p-8 : 8 * 0x1p-11;
}

// Those that agree become ways; the row keeps why the others did not.
json take_rivals(const Bench& b, const BenchCase& c, const BenchCall& call, std::vector<Way>& ways) {
  json all = json::array();
  if (!b.rivals.any()) return all;
  for (json rival : b.rivals.prepare(request_of(c, call, b.folder.path()))) {
    const auto name = rival.at("name").get<std::string>();
    if (!rival.contains("refused") && !(rival.at("error").get<double>() <= tolerance_of(c.dtype)))
      rival["refused"] = fmt::format("disagrees: relative error above {:.1e}", tolerance_of(c.dtype));
    if (!rival.contains("refused")) {
      ways.push_back({name, [&b, name](std::int64_t count) { return b.rivals.run(name, count); },
                      rival.at("seconds").get<double>()});
    }
    rival.erase("seconds");
    all.push_back(rival);
  }
  return all;
}

// A turn of every probe and every way, over and over. Ways of more than one process never run at once; the
// pause lets threads of the one before stop spinning.
void interleave(const Bench& b, const BenchCase& c, std::int64_t footprint, std::vector<Way>& ways,
                std::vector<Rates>& rates) {
  double turn = 0;
  for (const Way& way : ways) turn += way.estimate;
  const std::int64_t rounds =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(b.options.seconds / turn), b.options.rounds,
                               std::max<std::int64_t>(9, b.options.rounds));
  const double burst =
      b.options.seconds / static_cast<double>(rounds * static_cast<std::int64_t>(ways.size()));
  const auto pause = [&b] {
    std::this_thread::sleep_for(std::chrono::milliseconds(b.options.quick ? 0 : 10));
  };
  for (std::int64_t round = 0; round < rounds; ++round) {
    Rates& now = rates.emplace_back();
    pause();
    for (const Probe probe : probes_of(c)) {
      now.of[static_cast<std::size_t>(probe)] = measure(
          probe,
          {.threads = b.executor.thread_count(), .seconds = b.options.probe_seconds, .footprint = footprint});
    }
    for (std::size_t n = 0; n < ways.size(); ++n) {
      Way& way = ways[(n + static_cast<std::size_t>(round)) % ways.size()];
      pause();
      const auto count = std::clamp<std::int64_t>(static_cast<std::int64_t>(burst / way.estimate), 1, 2000);
      const std::vector<double> seconds = way.run(count);
      way.samples.insert(way.samples.end(), seconds.begin(), seconds.end());
    }
  }
}

Rates median_of(const std::vector<Rates>& rates) {
  Rates middle;
  for (std::size_t probe = 0; probe < std::size(all_probes); ++probe) {
    std::vector<double> values;
    for (const Rates& each : rates) values.push_back(each.of[probe]);
    middle.of[probe] = median(values);
  }
  return middle;
}

json spread_of(const std::vector<double>& samples) {
  return {{"median", median(samples)},
          {"lower_quartile", quantile(samples, 0.25)},
          {"upper_quartile", quantile(samples, 0.75)},
          {"runs", samples.size()}};
}

void fill_row(const BenchCase& c, const Work& work, const std::vector<Way>& ways,
              const std::vector<Rates>& rates, json& row) {
  const Rates middle = median_of(rates);
  const Limit limit = limit_of(c, work, middle);
  const double seconds = median(ways[0].samples);
  row["seconds"] = spread_of(ways[0].samples);
  for (const Probe probe : probes_of(c)) row["probes"][to_string(probe)] = middle[probe];
  row["limit"] = {{"seconds", limit.seconds()},
                  {"bound", limit.bound()},
                  {"product_seconds", limit.product},
                  {limit.tanh ? "tanh_seconds" : "exponential_seconds", limit.exponential},
                  {"byte_seconds", limit.bytes}};
  row["share"] = limit.seconds() / seconds;
  for (const Way& way : ways) {
    if (way.name == "beside")
      row["beside"] = {
          {"name", c.beside_name}, {"shape", to_string(c.beside)}, {"ratio", seconds / median(way.samples)}};
    for (json& rival : row["rivals"]) {
      if (rival.at("name") != way.name) continue;
      if (way.samples.empty()) {
        rival["refused"] = "failed while it was timed";
      } else {
        rival["seconds"] = spread_of(way.samples);
        rival["ratio"] = median(way.samples) / seconds;
      }
    }
  }
}

json measure_row(const Bench& b, const BenchCase& c) {
  const Work work = work_of(c);
  json row{{"name", c.name()},
           {"group", c.group},
           {"dtype", to_string(c.dtype)},
           {"pass", to_string(c.pass)},
           {"score", c.score},
           {"mask", c.mask},
           {"shape", to_string(c.shape)},
           {"pairs", work.pairs},
           {"flops", work.flops},
           {"bytes", work.bytes},
           {"rivals", json::array()}};
  try {
    BenchCall call(c, b.options.kernel, b.executor);
    row["kernel"] = call.kernel();
    call.run(1);
    std::vector<Way> ways{{"fovea", [&call](std::int64_t count) { return call.run(count); }, call.run(1)[0]}};
    std::optional<BenchCall> beside;
    if (!c.beside_name.empty()) {
      BenchCase other = c;
      other.shape = c.beside;
      other.mask = "everything";
      beside.emplace(other, b.options.kernel, b.executor);
      beside->run(1);
      ways.push_back(
          {"beside", [&beside](std::int64_t count) { return beside->run(count); }, beside->run(1)[0]});
    }
    row["rivals"] = take_rivals(b, c, call, ways);
    std::vector<Rates> rates;
    interleave(b, c, static_cast<std::int64_t>(work.bytes), ways, rates);
    fill_row(c, work, ways, rates, row);
  } catch (const InvalidArgument& refusal) {
    row["absent"] = refusal.what();
  }
  b.rivals.drop();
  return row;
}

// Guessed from the peaks: Fovea at half its limit, the way beside it as long, each rival three times as long.
double estimated_seconds(const Bench& b, const std::vector<BenchCase>& cases) {
  std::int64_t rivals = 0;
  for (const json& rival : b.rivals.list()) rivals += !rival.contains("absent");
  double total = 0;
  for (const BenchCase& c : cases) {
    const double limit = limit_of(c, work_of(c), b.peaks).seconds(),
                 turn = 2 * limit * (c.beside_name.empty() ? 1 : 2) + 6 * limit * static_cast<double>(rivals);
    total += 2 * turn + std::max(b.options.seconds, static_cast<double>(b.options.rounds) * turn) +
             static_cast<double>(rivals);
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

std::string kernel_names() {
  std::string names;
  for (const KernelInfo& kernel : list_kernels()) {
    if (kernel.available) names += (names.empty() ? "" : ", ") + kernel.name;
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
  Bench bench{.options = o, .executor = *pool, .rivals = rivals, .folder = folder};
  json report{{"version", FOVEA_VERSION},
              {"threads", threads},
              {"machine", {{"cpu", cpu_name()}, {"kernels", kernel_names()}}},
              {"seconds_a_row", o.seconds},
              {"rivals", rivals.list()},
              {"rows", json::array()}};
  report["peaks"] = peaks_of(o, threads, bench.peaks);
  if (printing) {
    fmt::print("{}{} rows, about {:.0f} minutes (compiling FlexAttention not counted).\n{}",
               peaks_text(report), cases.size(), std::ceil(estimated_seconds(bench, cases) / 60),
               header_text(report));
    std::fflush(stdout);
  }
  for (const BenchCase& c : cases) {
    report["rows"].push_back(measure_row(bench, c));
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
  command->add_option("--kernel", o->kernel, "avx512, avx2, baseline or reference; default: the best");
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
