// The options of `fovea attend`, and their checks before a file is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "fovea/attention/spec.h"

namespace fovea::cli {

/// "NAME=FILE", or a name alone: a mod, or an argument.
struct NamedFile {
  explicit NamedFile(std::string given);
  std::string text;        ///< as given
  std::string name, file;  ///< before and after the first '='
};

struct AttendOptions {
  std::string query, key, value;
  std::string score = "scaled-dot";
  std::vector<std::string> argument_files;  ///< a path for each of argument_flags(), in their order
  std::vector<NamedFile> arguments;
  std::optional<double> scale;
  std::string rope;
  std::vector<NamedFile> mods, weight_mods;
  std::optional<double> local_reach;
  std::string local_query, local_vector;
  std::string mask = "everything";
  std::vector<std::int64_t> query_offsets;             ///< none, one for all batch entries, or one for each
  std::vector<std::int64_t> query_starts, key_starts;  ///< of a packed batch (AttentionInputs)
  std::string normalizer = "softmax";
  std::optional<std::uint64_t> sample_seed, dropout_seed;
  std::optional<double> dropout;
  std::string differential, gate;
  std::string latent_key, latent_value, query_rotary, latent_execution;
  std::string out, weights, lse;
  std::vector<std::int64_t> weight_heads, weight_rows;
  std::string grad, grad_weights, advantage, grad_out;
  std::string kernel, precision = "full";
  int threads = 0;
  bool explain = false;

  /// The paths of input files that flags give. Files of mods and of --argument are not among them.
  std::vector<const std::string*> inputs;
  /// What the engine calls the value of a flag, for its errors: {"query", "--query"}.
  std::vector<std::pair<std::string, std::string>> engine_names;

  bool is_packed() const { return !query_starts.empty() || !key_starts.empty(); }
  bool is_latent() const { return !latent_key.empty() || !latent_value.empty(); }
  bool has_gradients() const { return !grad.empty() || !grad_weights.empty(); }
  /// --explain without a result: it says what would run, and nothing runs.
  bool explains_alone() const {
    return explain && out.empty() && weights.empty() && lse.empty() && !has_gradients();
  }
  bool has_output() const { return !out.empty() || !grad.empty() || explains_alone(); }
};

/// `options` has to outlive the command.
void add_attend_options(Command command, AttendOptions& options);

/// Throws InvalidArgument that names a flag which is missing, or which has no meaning with the other flags.
/// argument_sources (attend_arguments.h) checks the flags of arguments.
void check_attend_options(const AttendOptions& options, const AttentionSpec& spec);

/// Refuses one file for two results, of which only the last would stay, and a result that would replace an
/// input. `outputs` are flags with their paths; empty paths are skipped.
void check_attend_files(const AttendOptions& options,
                        const std::vector<std::pair<std::string, std::string>>& outputs);

/// Throws InvalidArgument of `fovea attend`.
[[noreturn]] void refuse(const std::string& flag, const std::string& expected, const std::string& got);

}  // namespace fovea::cli
