// Here are layers with parameters, stacks of blocks, the optimizer and its schedules. Whole models are in
// models/, training loops in train/. Open blocks.h first.
//
// This header has multi-head attention as a layer: projections around one call of the engine, for any spec of
// the algebra.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/autograd/plan_cache.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/nn/compression.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/rotary.h"
#include "fovea/plan/plan.h"

namespace fovea::nn {

/// A value for an argument of a spec, under the argument's full name: {"mods[0].slope", slopes}.
struct NamedTensor {
  std::string name;
  Tensor value;
};

/// What a layer of attention computes. A size of 0 follows from the others.
struct AttentionOptions {
  std::int64_t num_query_heads = 1;
  std::int64_t num_kv_heads =
      0;                       ///< 0: num_query_heads; fewer: grouped heads (Ainslie et al. 2023, 2305.13245)
  std::int64_t head_dim = 0;   ///< of queries and keys; 0: dim / num_query_heads
  std::int64_t value_dim = 0;  ///< of the values of a head; 0: head_dim
  std::int64_t memory_dim = 0;  ///< width of the rows attended to; 0: dim
  std::int64_t hidden = 0;      ///< AttentionShape::hidden, for the scores that have it; 0: head_dim
  struct Biases {
    Linear::Bias query = Linear::Bias::with, key = Linear::Bias::with, value = Linear::Bias::with,
                 output = Linear::Bias::with;
    static constexpr Biases none() {
      constexpr auto without = Linear::Bias::without;
      return {without, without, without, without};
    }
  };
  Biases biases = {};
  /// The mask of a call is added to that of the spec: a query sees what both let it see. Dropout acts while
  /// training only.
  AttentionSpec spec = {};
  /// Arguments that become parameters, and the tensors they start as. Arguments of the built-in parts become
  /// parameters without being named here, unless they are in `fixed`, are optional, or come from the data. So
  /// do those of your own mods whose make_mod says how they start. Tensors are f32 and have the axes of the
  /// argument or those that a file of it has: [1, heads, 1, 1] or [heads] slopes.
  std::vector<NamedTensor> learned = {};
  std::vector<NamedTensor> fixed = {};  ///< arguments that are not trained
  /// Normalises queries and keys before they are rotated (Qwen 3, Gemma 3). Parameters: q_norm, k_norm, of
  /// head_dim or of all heads.
  std::optional<NormSpec> query_key_norm = {};
  /// Of what the rows of that norm are: each head alone, or all heads side by side (OLMo 2).
  enum class NormOf : std::uint8_t { each_head, all_heads };
  NormOf query_key_norm_of = NormOf::each_head;
  /// Whether the result of every head is multiplied by σ(x Wg) before out_proj, where x are the rows of the
  /// queries (Qiu et al. 2025, arXiv 2505.06708, section 2.2). Parameter: gate_proj, with the bias of the
  /// queries.
  enum class OutputGate : std::uint8_t { without, with };
  OutputGate output_gate = OutputGate::without;
  /// Rotates queries and keys by their positions (RoPE), for a sequence that attends to itself. Rows of
  /// `memory` and of a cache are counted from 0, queries from Call::query_offset or Call::query_offsets.
  std::optional<Rotary> rope = {};
  /// Keys and values are made of a few rows in the place of memory's. They have no position, so there is then
  /// no rope, mod or mask here, and no score without keys. A call's mask is Everything{} or KeyLengths{}.
  std::optional<Compression> compression = {};
  /// Of the layer's plans: how exact products must be, and which kernel runs. The layers compute in f32.
  /// While they are recorded with autograd::Operands::bf16, layers with Precision::full and no named kernel
  /// may compute in bf16; naming a kernel keeps a layer in f32.
  Precision precision = Precision::full;
  std::string kernel = {};  ///< PlanOptions::kernel
};

/// One layer of a cache, and one of its sequences for each entry of a batch.
struct CacheEntries {
  KvCache& cache;
  std::int64_t layer = 0;
  std::span<Sequence* const> sequences;
};

/// Multi-head attention (Vaswani et al. 2017, section 3.2.2) on the engine. Parameters: "<name>.q_proj",
/// k_proj (unless the score reads no keys), v_proj and out_proj; gate_proj, q_norm and k_norm where the
/// options have them. Each learned argument of the spec is a parameter under its own name, such as
/// "<name>.mods[0].slope". Several threads may run inference with one object.
class MultiHeadAttention {
 public:
  MultiHeadAttention() = default;
  /// If `shared` is given, this layer uses its learned arguments, as T5's layers share one table; both need
  /// the same spec. Throws InvalidArgument for sizes that do not divide, for an argument that the spec does
  /// not have, or whose shape does not fit.
  MultiHeadAttention(ParameterSet& set, const std::string& name, std::int64_t dim,
                     const AttentionOptions& options = {}, const MultiHeadAttention* shared = nullptr);

  struct Call {
    Mask mask = Everything{};
    std::span<const std::int64_t> key_lengths = {};  ///< for KeyLengths{} in a mask
    /// The position of the first query, for masks, mods and rotary positions. Where it is not given, the
    /// queries of an entry and its keys end together.
    std::optional<std::int64_t> query_offset = {};
    /// One for each batch entry, in the place of query_offset.
    std::span<const std::int64_t> query_offsets = {};
    /// For a packed batch (AttentionInputs in plan/plan.h) in calls with `memory`: [entries + 1] each. B is
    /// then 1, and rotary positions restart in each entry.
    std::span<const std::int64_t> query_starts = {}, key_starts = {};
    Tensor* weights =
        nullptr;  ///< if given, receives [B, num_query_heads, Lq, Lk]; packed, Lk is the longest's
    /// If given, receives the projected keys, [B, Lk, num_kv_heads * head_dim], in calls with `memory`.
    Tensor* keys = nullptr;
    /// In calls with `memory`: [B, Lk], added to all scores of a key. The logarithm of the number of rows
    /// that a row of `memory` stands for makes it count as often (Bolya et al. 2022, arXiv 2210.09461,
    /// equation 1).
    Tensor key_log_sizes = {};
    /// Arguments that come from the data, besides those that the layer has; recorded ones get gradients.
    std::vector<autograd::AttentionArgument> arguments = {};
    /// For HardSample and GumbelSample: another one for each draw. Where it is not given, training takes it
    /// from the context, like the seed of dropout.
    std::optional<std::uint64_t> sample_seed = {};
    /// For HardSample: AttentionCall::advantage, [B, num_query_heads, Lq]. Without it, the projections of
    /// queries and keys cannot be recorded.
    Tensor advantage = {};
    /// In attend_cached: what `append` gave for x. Where it is empty, x is projected.
    Var queries = {};
  };
  /// x [B, Lq, dim], memory [B, Lk, memory_dim] -> [B, Lq, dim]. With a compression, Lk stands below for the
  /// rows that it makes of memory. Throws what make_plan, attend and RowCompressor throw, and InvalidArgument
  /// for a mask, packed rows or sizes beside a compression.
  Var operator()(Context& context, const Var& x, const Var& memory, const Call& call) const;
  /// Which rows of a call: those that queries are made of, those that keys and values are made of, or both.
  enum class RowsOf : std::uint8_t { queries, memory, both };
  /// Whether calls take these rows in bf16, with the bits of the same rows in f32, because nothing but
  /// products with weights of bf16 reads them.
  bool takes_bf16(const Context& context, RowsOf rows) const;
  /// The rows of keys and values that this layer puts into a cache, in f32. Throws InvalidArgument for a
  /// layer with a compression: its rows change with every row of memory.
  CacheLayer cache_layer(const CacheStore& store = Paged{}) const;
  /// Projects memory and appends the rows of each entry to its sequence, which has room for them
  /// (KvCache::reserve). Memory is [B, L, memory_dim], or with `starts` [1, L, memory_dim] with the rows of
  /// all entries one after the other. Rotary positions go on from the rows that the sequence has. `queries`,
  /// if given, receives the queries of the same rows, for Call::queries: one product then makes all three.
  void append(Context& context, const Var& memory, const CacheEntries& to,
              std::span<const std::int64_t> starts = {}, Var* queries = nullptr) const;
  /// Inference on rows that are in a cache, one view for each entry: x [B, Lq, dim], or packed by
  /// call.query_starts. One plan serves all calls whose masks are equal (mask.h), up to 2^8 entries, 2^12
  /// queries and 2^20 keys, or the keys that a mask of data has. A mask with numbers of its own for each
  /// entry needs one for each batch.
  Var attend_cached(Context& context, const Var& x, std::span<const KeyValueView> keys,
                    const Call& call) const;

  const AttentionOptions& options() const noexcept { return options_; }  ///< every size filled in
  const Linear& query() const noexcept { return query_; }
  const Linear& key() const noexcept { return key_; }
  const Linear& value() const noexcept { return value_; }
  const Linear& output() const noexcept { return output_; }
  /// Takes its plans from those of `other`, if it has the same spec, sizes and kernels; for layers that are
  /// called alike, as those of a stack are. A token of a larger model then finds the plan in the caches,
  /// which weights have left by the time that a layer is called again.
  void share_plans(const MultiHeadAttention& other);
  /// How many plans have been made by this layer, its copies, and those that share plans with it: a loop over
  /// equal masks and shapes makes one.
  std::int64_t plans_made() const;
  /// The parameter of an argument; null if the layer does not learn that argument.
  Parameter* argument(std::string_view name) const;

 private:
  struct Argument {
    std::string name;
    Parameter* learned = nullptr;
    Tensor fixed = {};
  };
  // How many of `heads` heads one row of the norm of queries and keys has.
  std::int64_t normed_together(std::int64_t heads) const;
  void declare_arguments(ParameterSet& set, const std::string& name, const MultiHeadAttention* shared);
  Var attend_rows(Context& context, const Var& x, const Var& key_rows, const Var& value_rows,
                  const Call& call) const;
  autograd::AttentionCall engine_call(Context& context, const Call& call, const AttentionShape& shape,
                                      autograd::Operands operands) const;
  AttentionShape shape_of(std::int64_t batch, std::int64_t query_len, std::int64_t key_len) const;
  // Of the same rows; queries and keys are normalised by head, and not yet rotated.
  struct Projected {
    Var queries = {}, keys = {}, values = {};
  };
  // By those of query_, key_ and value_ that are listed.
  Projected projected(Context& context, const Var& rows, std::initializer_list<const Linear*> layers,
                      DType dtype = DType::f32) const;
  // Of x, key_rows and value_rows.
  Projected projected(Context& context, const std::array<const Var*, 3>& rows,
                      DType dtype = DType::f32) const;
  // Whether nothing but the engine reads what is projected in a call of this plan.
  bool projects_for_engine(const Call& call, const AttentionPlan& plan) const;
  // What the engine computed of queries that are made of x, gated and projected.
  Var finished(Context& context, const Var& x, const Var& attended) const;
  // `keys`: the number of keys of each entry.
  Var rotated_queries(const Var& q, const Call& call, std::span<const std::int64_t> keys) const;
  Var rotated_keys(const Var& k, const Call& call) const;

  AttentionOptions options_;
  Linear query_, gate_, key_, value_, output_;  // without a weight where the options have none
  std::optional<Norm> query_norm_, key_norm_;
  std::vector<Argument> arguments_;
  std::optional<RowCompressor> compressor_;
  bool masks_ = false;  // whether the spec has a mask besides that of a call
  // Of copies and of layers that share it too.
  std::shared_ptr<autograd::PlanCache> plans_;
};

}  // namespace fovea::nn
