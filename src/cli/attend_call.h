// The input of one run of `fovea attend`: the spec, the sizes and every tensor, and the call of the engine
// made of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/attend_arguments.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/rope.h"

namespace fovea::cli {

/// One argument of the call, and where its gradient goes.
struct CallArgument {
  enum class Gradient : std::uint8_t {
    own,         ///< to a file of its own
    concat,      ///< together with the gradient of the other part to that of the whole matrix
    log_forget,  ///< together with the gradient of the mod's other argument to that of log f
    centers,     ///< on to the inputs that predicted the centers
    none
  };
  std::string name;  ///< the engine's: "mods[0].slope"
  Tensor value;
  Gradient gradient = Gradient::own;
  Shape shape;  ///< of the array that was read, in which its gradient is written
};

struct AttendCall {
  AttentionSpec spec;
  AttentionShape shape;  ///< of the plan: a packed batch has its entries and the longest's rows
  std::vector<std::int64_t> query_offsets;  ///< one for each batch entry
  Tensor query, key, value;                 ///< as read; with latent attention `key` is the cache
  std::optional<RopeTable> rope;
  Tensor turned_query, turned_key;
  std::vector<ArgumentSource> sources;  ///< of all arguments of the spec
  std::vector<CallArgument> arguments;  ///< those that are given, in the order of the sources
  Tensor local_W, local_v;
  Tensor lambda, gate, W_UK, W_UV, query_rotary;
  Tensor d_output, d_weights, advantage;

  /// The engine's inputs: views of the tensors above, and the arguments. Latent attention has no operands
  /// here.
  AttentionInputs inputs;

  /// [batch, heads, query_len] of results: a packed batch has one entry with the rows of all.
  Shape result_rows() const { return {query.size(0), shape.num_query_heads, query.size(2)}; }
  /// False if the weights are constant wherever they have a derivative by the scores.
  bool differentiable_by_scores() const { return derivative_of(spec.normalizer) != WeightDerivative::none; }
};

/// The positions of the queries among the keys, and of the keys: one for each row of the operand's batch.
std::vector<std::int64_t> query_positions(const AttendCall& call);
std::vector<std::int64_t> key_positions(const AttendCall& call);

/// Parses the spec. With --local-p its window is the last mod, and its Gaussian the last weight mod. The name
/// of the score in `options` loses its spaces. Throws Error, InvalidArgument.
AttentionSpec parse_spec(AttendOptions& options);

/// Reads the tensors of a call of this spec. Throws FileError, InvalidArgument.
AttendCall read_attend_call(const AttendOptions& options, const AttentionSpec& spec,
                            std::vector<ArgumentSource> sources, Executor* executor);

}  // namespace fovea::cli
