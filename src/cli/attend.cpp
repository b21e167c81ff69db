// `fovea attend`: the engine on NumPy files. It reads, computes and writes; nothing is written before
// everything is computed.
#include <fmt/format.h>

#include <filesystem>

#include "cli/attend_gradients.h"
#include "fovea/core/executor.h"
#include "fovea/files/npy.h"
#include "fovea/mechanisms/gate.h"

namespace fovea::cli {
namespace {

// The flag that a value of the engine came by, for errors of the engine. Empty where there is none.
std::string flag_of(const AttendOptions& o, const std::vector<ArgumentSource>& sources,
                    const InvalidArgument& error) {
  std::string argument = error.argument();
  for (const ArgumentSource& source : sources) {
    if (source.name == argument) return source.flag;
  }
  for (const char* prefix : {"loss.", "spec.", "attention."})
    if (argument.starts_with(prefix)) argument.erase(0, std::string(prefix).size());
  for (const auto& [name, flag] : o.engine_names) {
    if (argument == name) return flag;
  }
  if (argument.starts_with("mods[")) return "--mod (" + argument + ")";
  if (argument.starts_with("weight_mods[")) return "--weight-mod (" + argument + ")";
  return {};
}

struct Written {
  Tensor output;
  AttendResults results;
  GradientFiles gradients;
};

Written compute(const AttendOptions& o, const AttentionSpec& spec,
                const std::vector<ArgumentSource>& sources) {
  std::unique_ptr<Executor> pool;
  if (o.threads > 0) pool = make_thread_pool(o.threads);
  const AttendCall call = read_attend_call(o, spec, sources, pool.get());
  const std::unique_ptr<Mechanism> mechanism = make_mechanism(o, call);
  if (o.explain) fmt::print("{}\n", explain(mechanism->plan(), std::span(o.query_offsets)));
  if (o.explains_alone()) return {};
  Written written;
  written.results = mechanism->forward(pool.get());
  written.output = written.results.output;
  if (call.gate) {
    written.output = Tensor(written.output.dtype(), written.output.shape());
    gate_output(written.results.output, call.gate, written.output, {.executor = pool.get()});
  }
  if (o.has_gradients())
    written.gradients = attend_gradients(o, call, *mechanism, written.results, pool.get());
  return written;
}

void write(const AttendOptions& o, const Written& written) {
  std::vector<std::pair<std::string, std::string>> files{
      {"--out", o.out}, {"--weights", o.weights}, {"--lse", o.lse}};
  const auto path_of = [&](const std::string& name) { return o.grad_out + "/" + name + ".npy"; };
  for (const auto& [name, tensor] : written.gradients.files())
    files.emplace_back("--grad-out", path_of(name));
  check_attend_files(o, files);
  if (!o.grad_out.empty()) std::filesystem::create_directories(o.grad_out);
  for (const auto& [name, tensor] : written.gradients.files()) files::write_npy(path_of(name), tensor);
  if (!o.out.empty()) files::write_npy(o.out, written.output);
  if (!o.lse.empty()) files::write_npy(o.lse, written.results.log_sum_exp);
  if (!o.weights.empty()) files::write_npy(o.weights, written.results.weights);
}

void run(AttendOptions& o) {
  const AttentionSpec spec = parse_spec(o);
  check_attend_options(o, spec);
  const std::vector<ArgumentSource> sources = argument_sources(o, spec);
  check_attend_files(o, {{"--out", o.out}, {"--weights", o.weights}, {"--lse", o.lse}});
  try {
    write(o, compute(o, spec, sources));
  } catch (const InvalidArgument& error) {
    const std::string flag = flag_of(o, sources, error);
    if (flag.empty()) throw;
    refuse(flag, error.expected(), error.got());
  }
}

}  // namespace

void register_attend(Command app) {
  auto o = std::make_shared<AttendOptions>();
  Command command = app.add_subcommand("attend", "Run the attention engine on NumPy files");
  command.footer("Arrays are f32 or f64, [batch, heads, length, dim].");
  add_attend_options(command, *o);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
