// `fovea bench recurrence`: recurrences forward and backward, compared with the limits of this machine and
// with causal attention.
#include <fmt/format.h>

#include "bench/recurrence.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::cli {
namespace {

void print_row(const bench::RecurrenceRow& row) {
  fmt::print("{:<20} {:>4} {:>9.2f} {:>6.1f} {:>9.2f} {:>6.1f} {:>8.2f}", row.name, row.dim,
             1e3 * row.forward, 100.0 * row.forward_limit / row.forward, 1e3 * row.backward,
             100.0 * row.backward_limit / row.backward, row.backward / row.forward);
  if (row.saving > 0.0) fmt::print(" {:>9.2f} {:>9.2f}", 1e3 * row.saving, 1e3 * row.again);
  fmt::print("\n");
  std::fflush(stdout);
}

// The time of a recurrence grows with its tokens, that of attention with their square. So the time of a
// recurrence at other lengths follows from the measured one.
void print_crossovers(const bench::RecurrenceBench& bench, const std::vector<bench::RecurrenceRow>& rows) {
  fmt::print("\nCausal attention, forward, ms; and the recurrences that take less.\n");
  for (const std::int64_t dim : bench.dims) {
    for (const std::int64_t len :
         {std::int64_t{256}, std::int64_t{512}, std::int64_t{1024}, std::int64_t{2048}}) {
      const double attention = bench::measure_causal_attention(bench, dim, len);
      std::string faster;
      for (const bench::RecurrenceRow& row : rows) {
        const double seconds = row.forward * static_cast<double>(len) / static_cast<double>(bench.len);
        if (row.dim == dim && seconds < attention) faster += (faster.empty() ? "" : "; ") + row.name;
      }
      fmt::print("d {:>3}, {:>5} tokens {:>9.2f}  {}\n", dim, len, 1e3 * attention, faster);
      std::fflush(stdout);
    }
  }
}

void print_steps(const bench::RecurrenceBench& bench) {
  if (bench.step_layers == 0) return;
  fmt::print(
      "\nOne token, {} heads, {} layers with states of their own; share of reading and writing them.\n",
      bench.step_heads, bench.step_layers);
  bench::measure_recurrence_steps(bench, [](const bench::RecurrenceStepRow& row) {
    fmt::print("{:<20} {:>4} {:>9.2f} {:>6.1f}\n", row.name, row.dim, 1e3 * row.seconds,
               100.0 * row.limit / row.seconds);
    std::fflush(stdout);
  });
}

void check_only(const bench::RecurrenceBench& bench) {
  std::string names;
  for (const bench::NamedRecurrence& one : bench::measured_recurrences()) {
    if (bench::is_asked(bench, one.name)) return;
    names += one.name + "; ";
  }
  if (!bench::is_asked(bench, "selective scan"))
    throw InvalidArgument("fovea bench recurrence", "--only", "part of a name: " + names + "selective scan",
                          bench.only);
}

void run(bench::RecurrenceBench bench) {
  check_only(bench);
  if (bench.threads == 0) bench.threads = default_executor().thread_count();
  fmt::print(
      "Recurrences in {}, batch {}, {} heads, {} tokens, {} threads. Times in ms; share of the limit in "
      "%.\n",
      to_string(bench.dtype), bench.batch, bench.heads, bench.len, bench.threads);
  fmt::print(
      "Backward reads the states that forward saved; the last columns are forward that saves them, and "
      "backward that computes them again.\n");
  fmt::print("{:<20} {:>4} {:>9} {:>6} {:>9} {:>6} {:>8} {:>9} {:>9}\n", "", "d", "forward", "share",
             "backward", "share", "ratio", "saving", "again");
  std::vector<bench::RecurrenceRow> rows;
  bench::measure_recurrences(bench, [&](const bench::RecurrenceRow& row) {
    print_row(row);
    rows.push_back(row);
  });
  if (bench::is_asked(bench, "selective scan")) print_row(bench::measure_selective_scan(bench, {}));
  print_steps(bench);
  if (bench.only.empty()) print_crossovers(bench, rows);
}

}  // namespace

void register_bench_recurrence(Command command_group) {
  auto o = std::make_shared<bench::RecurrenceBench>(bench::RecurrenceBench{.threads = 0});
  Command command = command_group.add_subcommand(
      "recurrence", "Recurrences, forward and backward, compared with the limits of this machine");
  command.add_option("--batch", o->batch).check(in_range(1, 1024));
  command.add_option("--heads", o->heads).check(in_range(1, 1024));
  command.add_option("--len", o->len, "tokens").check(in_range(1, 1 << 22));
  command.add_option("--dims", o->dims, "key_dim and value_dim").delimiter(',').check(in_range(1, 1024));
  const std::vector<std::pair<std::string, DType>> types{
      {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  command.add_choice("--dtype", o->dtype, types, "of the rows; gates and states are f32, and so is the scan")
      .option_text("f32, bf16 or f16=f32");
  command.add_option("--step-heads", o->step_heads, "heads of the calls of one token")
      .check(in_range(1, 1024));
  command.add_option("--step-layers", o->step_layers, "layers of the calls of one token; 0: none")
      .check(in_range(0, 1024));
  command.add_option("--kernel", o->kernel, "a kernel to force; default: the best");
  command.add_option("--only", o->only, "rows whose names contain this text, such as GLA");
  command.add_option("--repeat", o->repeat, "runs, of which the best counts").check(in_range(1, 1000));
  add_threads_option(command, o->threads);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
