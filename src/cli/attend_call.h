// The input of one run of `fovea attend`: the spec, the sizes and every tensor, and the call of the engine
// made of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/attend_options.h"
#include "fovea/attention/expression.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/rope.h"

namespace fovea::cli {

/// One argument of a mod, and where its gradient goes.
struct ModArgument {
  enum class Gradient : std::uint8_t {
    own,           ///< to a file of its own
    log_forget,    ///< together with the gradient of the next argument to that of log f
    local_center,  ///< on to the inputs that predicted the centers
    none
  };
  Tensor memory;
  ConstTensorView view;
  Gradient gradient = Gradient::own;
  std::string argument;  ///< the engine's name: "mods[0].slope"
  std::string name;      ///< the name of the gradient's file, usually the same
  Shape shape;           ///< the shape of the array that was read
};

struct AttendCall {
  AttentionSpec spec;
  AttentionShape shape;
  std::vector<std::int64_t> query_offsets;  ///< one for each batch entry
  Tensor query, key, value;                 ///< as read; with latent attention `key` is the cache
  std::optional<RopeTable> rope;
  Tensor turned_query, turned_key;
  std::vector<ModArgument> mods, weight_mods;
  Tensor concat;  ///< the matrix of the concat score, before it is split into two
  Tensor local_W, local_v;
  Tensor lambda, gate, W_UK, W_UV, query_rotary;
  Tensor d_output, d_weights, advantage;

  /// The engine's inputs: views of the tensors above, and the arguments. Latent attention has no operands
  /// here.
  AttentionInputs inputs;

  /// False if the weights are constant wherever they have a derivative by the scores.
  bool differentiable_by_scores() const { return !std::holds_alternative<HardArgmax>(spec.normalizer); }
};

/// [batch, query_len]: the positions of the queries among the keys.
std::vector<std::int64_t> query_positions(const AttendCall& call);

/// Reads the tensors of a call. `score` and `normalizer` are parsed from the options. Throws FileError,
/// InvalidArgument.
AttendCall read_attend_call(const AttendOptions& options, const Score& score, const Normalizer& normalizer,
                            Executor* executor);

/// Parses a text of the algebra's grammar; an error names the flag that the text came with.
template <class Parse>
auto parse_flag(const std::string& flag, Parse parse, const std::string& text) {
  try {
    return parse(text);
  } catch (const ExpressionError& error) {
    throw Error(flag + ", column " + std::to_string(error.column()) + ": expected " + error.expected() +
                ", got " + error.got());
  }
}

}  // namespace fovea::cli
