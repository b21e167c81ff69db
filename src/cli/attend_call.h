// What one run of `fovea attend` read: the spec, the sizes and every tensor, and a call of the engine out of
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/attend_options.h"
#include "fovea/attention/expression.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/rope.h"

namespace fovea::cli {

/// One argument of a mod, and the file its gradient goes to.
struct ModArgument {
  enum class Gradient : std::uint8_t {
    own,           ///< a file of its own
    log_forget,    ///< with that of the next argument the gradient by log f
    local_centre,  ///< goes on to what predicted the centres
    none
  };
  Tensor memory;
  ConstTensorView view;
  Gradient gradient = Gradient::own;
  std::string argument;  ///< the engine's name: "mods[0].slope"
  std::string name;      ///< of the gradient's file, usually the same
  Shape shape;           ///< of what was read
};

struct AttendCall {
  AttentionSpec spec;
  AttentionShape shape;
  std::vector<std::int64_t> query_offsets;  ///< one a batch entry
  Tensor query, key, value;                 ///< as read; key of latent attention is the cache
  std::optional<RopeTable> rope;
  Tensor turned_query, turned_key;
  std::vector<ModArgument> mods, weight_mods;
  Tensor concat;  ///< the matrix that was cut in two
  Tensor local_W, local_v;
  Tensor lambda, gate, W_UK, W_UV, query_rotary;
  Tensor d_output, d_weights, advantage;

  /// For the engine: views of the above, and the arguments. Latent attention finds no operands there.
  AttentionInputs inputs;

  /// False where weights are constant wherever they have a derivative by the scores.
  bool differentiable_by_scores() const { return !std::holds_alternative<HardArgmax>(spec.normalizer); }
};

/// [batch, query_len]: where the queries stand among the keys.
std::vector<std::int64_t> query_positions(const AttendCall& call);

/// `score` and `normalizer` are those of the options, read. Throws FileError, InvalidArgument.
AttendCall read_attend_call(const AttendOptions& options, const Score& score, const Normalizer& normalizer,
                            Executor* executor);

/// A text of the algebra's grammar, its mistake told by the flag it came with.
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
