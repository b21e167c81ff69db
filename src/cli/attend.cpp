// `fovea attend`: the engine on NumPy files. It reads, computes and writes; nothing is written before
// everything is computed.
#include <fmt/format.h>

#include <filesystem>

#include "cli/attend_gradients.h"
#include "fovea/files/npy.h"
#include "fovea/mechanisms/gate.h"

namespace fovea::cli {
namespace {

Score read_score_name(AttendOptions& o) {
  if (o.score == "concat") return Additive{};
  try {
    const Score score = parse_score(o.score);
    o.score = to_string(score);
    return score;
  } catch (const ExpressionError& error) {
    refuse("--score", error.expected() + ", or concat", error.got());
  }
}

// The flag that an argument of the engine came by, for errors of the engine. Empty where there is none.
std::string flag_of(const AttendOptions& o, const InvalidArgument& error) {
  std::string argument = error.argument();
  for (const char* prefix : {"score.", "normalizer.", "loss.", "spec.", "attention."})
    if (argument.starts_with(prefix)) argument.erase(0, std::string(prefix).size());
  if (argument.starts_with("mods[")) return "--mod (" + argument + ")";
  if (argument.starts_with("weight_mods[")) return "--weight-mod (" + argument + ")";
  const bool local = error.function().starts_with("local_centers"), concat = o.score == "concat",
             additive = o.score == "additive" || o.score == "coverage" || concat;
  const std::pair<const char*, const char*> flags[] = {
      {"query", "--query"},
      {"query_content", "--query"},
      {"key", "--key"},
      {"cache", "--key"},
      {"shape.key_dim", "--key"},
      {"shape.num_kv_heads", "--key"},
      {"value", "--value"},
      {"W", local                   ? "--local-query"
            : concat                ? "--concat-matrix"
            : additive              ? "--additive-query"
            : o.score == "low-rank" ? "--low-rank-query"
            : o.score == "location" ? "--location"
                                    : "--bilinear"},
      {"U", concat     ? "--concat-matrix"
            : additive ? "--additive-key"
                       : "--low-rank-key"},
      {"v", local ? "--local-vector" : "--additive-vector"},
      {"b", "--additive-bias"},
      {"w", "--coverage-vector"},
      {"scale", "--scale"},
      {"mask", "--mask"},
      {"mods", "--mod"},
      {"weight_mods", "--weight-mod"},
      {"normalizer", "--normalizer"},
      {"sink", "--sink"},
      {"transitions", "--transitions"},
      {"dropout.rate", "--dropout"},
      {"query_offset", "--query-offset"},
      {"query_offsets", "--query-offset"},
      {"lambda", "--differential"},
      {"gate", "--gate"},
      {"W_UK", "--latent-key"},
      {"W_UV", "--latent-value"},
      {"query_rotary", "--query-rotary"},
      {"weight_heads", "--weight-heads"},
      {"weight_rows", "--weight-rows"},
      {"d_output", "--grad"},
      {"d_gated", "--grad"},
      {"d_weights", "--grad-weights"},
      {"advantage", "--advantage"},
      {"options.kernel", "--kernel"},
  };
  for (const auto& [name, flag] : flags) {
    if (argument == name) return flag;
  }
  if (argument != error.argument()) return "--argument " + error.argument();
  return {};
}

struct Written {
  Tensor output;
  AttendResults results;
  GradientFiles gradients;
};

Written compute(const AttendOptions& o, const Score& score, const Normalizer& normalizer) {
  std::unique_ptr<Executor> pool;
  if (o.threads > 0) pool = make_thread_pool(o.threads);
  const AttendCall call = read_attend_call(o, score, normalizer, pool.get());
  const std::unique_ptr<Mechanism> mechanism = make_mechanism(o, call);
  if (o.explain) fmt::print("{}\n", explain(mechanism->plan(), std::span(o.query_offsets)));
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
  const Score score = read_score_name(o);
  const Normalizer normalizer = parse_flag("--normalizer", parse_normalizer, o.normalizer);
  check_attend_options(o, normalizer);
  check_attend_files(o, {{"--out", o.out}, {"--weights", o.weights}, {"--lse", o.lse}});
  try {
    write(o, compute(o, score, normalizer));
  } catch (const InvalidArgument& error) {
    const std::string flag = flag_of(o, error);
    if (flag.empty()) throw;
    refuse(flag, error.expected(), error.got());
  }
}

}  // namespace

void register_attend(CLI::App& app) {
  auto o = std::make_shared<AttendOptions>();
  CLI::App* command = app.add_subcommand(
      "attend", "Run the attention engine on NumPy files (f32, f64; [batch, heads, length, dim])");
  add_attend_options(*command, *o);
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
