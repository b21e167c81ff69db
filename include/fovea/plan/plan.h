// Plan once, run often. make_plan validates a spec and a shape at the door, picks the best kernel that
// accepts them and keeps the reasons why better ones refused; attend and attend_backward then check shapes in
// O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/precision.h"
#include "fovea/attention/spec.h"
#include "fovea/cache/view.h"
#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"

namespace fovea {

/// Gradients of a spec's weights by its scores: HardArgmax has none, and HardSample's is an estimate.
enum class Derivatives : std::uint8_t { where_defined, required };
/// The keys of one call: all there are, or some of them.
enum class Keys : std::uint8_t { all, part };

struct PlanOptions {
  /// Of query, key, value and output. Accumulation is f32 (f64 for f64).
  DType dtype = DType::f32;
  /// Of products, where dtype is f32: how exact they must be at least.
  Precision precision = Precision::full;
  /// Forces an instruction set ("reference", "baseline", "avx2", "avx512", "avx512bf16", "amx") or one of its
  /// algorithms ("avx512 tiled", as list_kernels names them); empty: the environment's FOVEA_ISA, else the
  /// best. A name this machine cannot run, or that does not exist, is an error. What the algorithms of
  /// "avx512bf16" and "amx" refuse (scores of f32 at Precision::full, score mods: explain says what) goes to
  /// those of "avx512". An algorithm runs however many queries a call has, and for all that it can do,
  /// forward and backward; the rest goes to the others of its instruction set. Where it cannot give the
  /// output, that is an error.
  std::string kernel = {};
  /// What attend_backward will be asked for, and whether calls will bring parts of the keys, to be merged by
  /// their log-sum-exps (merge.h): make_plan refuses specs that cannot give it, with the reason.
  Derivatives derivatives = Derivatives::where_defined;
  Keys keys = Keys::all;
};

/// Immutable, cheap to copy, shareable between threads.
class AttentionPlan {
 public:
  const AttentionSpec& spec() const noexcept;
  const AttentionShape& shape() const noexcept;
  DType dtype() const noexcept;
  /// Every argument that a call may bring, in the order score, mods, normaliser, weight mods.
  const std::vector<DeclaredArgument>& arguments() const noexcept;
  /// The kernels that run calls of as many queries as the plan has, forward and backward: "avx512 tiled",
  /// "reference", ... (what runs those of fewer queries, explain says). Forward where value_dim is 0: that of
  /// weights alone.
  std::string_view kernel() const noexcept;
  std::string_view backward_kernel() const noexcept;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }
  explicit AttentionPlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Throws InvalidArgument naming what is wrong: sizes, head counts that do not divide, a mask that cannot
/// serve, a rate outside [0, 1).
AttentionPlan make_plan(const AttentionSpec& spec, const AttentionShape& shape,
                        const PlanOptions& options = {});

/// Five lines: the kernels, forward and backward, by the count of queries, and what would be better but
/// refused, with its reason; the spec; the shape; the kernels of weights; the share of tiles that the mask
/// lets skip, for calls with that query offset, or with those of their entries (none: the default one).
std::string explain(const AttentionPlan& plan, std::optional<std::int64_t> query_offset = std::nullopt);
std::string explain(const AttentionPlan& plan, std::span<const std::int64_t> query_offsets);

/// A kernel is an algorithm, compiled for an instruction set.
struct KernelInfo {
  std::string isa;   ///< "avx512": PlanOptions::kernel and FOVEA_ISA take it for the best of its algorithms
  std::string name;  ///< "avx512 split": they take it for this one; what AttentionPlan::kernel says
  bool available = false;  ///< whether this CPU runs it
};
/// All that are compiled in, best first.
std::vector<KernelInfo> list_kernels();

/// A batch is padded, entries side by side, or packed, entries one behind the other in one tensor: see
/// query_starts.
struct AttentionInputs {
  ConstTensorView query;  ///< [batch, num_query_heads, query_len, head_dim]
  ConstTensorView key;    ///< [batch, num_kv_heads, key_len, key_dim]; none for Location
  ConstTensorView value;  ///< [batch, num_kv_heads, key_len, value_dim]; none where value_dim is 0
  /// Of the score, the mods, the normaliser and the weight mods, by name (attention/argument.h), in f32 (f64
  /// for f64): `{{"score.W", W}, {"mods[0].slope", slopes}}`.
  Arguments arguments = {};
  /// For KeyLengths{} without lengths of its own: one a batch entry, each in [0, key_len].
  std::span<const std::int64_t> key_lengths = {};
  /// Position of query row 0 in key coordinates; default key_len - query_len (aligned at the end).
  std::optional<std::int64_t> query_offset = std::nullopt;
  /// The same by batch entry, in the place of query_offset: [batch], or empty. Entries of a cache that hold
  /// different numbers of keys decode together with key_lengths[b] - query_len each: no default, for a padded
  /// batch that attends to itself begins at 0 whatever its lengths.
  std::span<const std::int64_t> query_offsets = {};
  /// A packed batch: sequences of any lengths without padding, such as prompts and single steps of decoding
  /// in one call. Entry e has the query rows [query_starts[e], query_starts[e + 1]) and the keys
  /// [key_starts[e], key_starts[e + 1]): [entries + 1] each, ascending from 0 to the number of rows (the
  /// cu_seqlens of FlashAttention, arXiv 2205.14135). Query, key, value, outputs and gradients then have a
  /// batch of 1 and the rows of all entries. The plan's batch, query_len and key_len are the most entries,
  /// and the most rows of one. Everything else is as in a padded batch of the same entries: masks, mods,
  /// dropout and samples see the entry as their batch entry and positions within it; key_lengths and
  /// query_offsets have one number an entry, whose default offset is its keys less its queries; of arguments,
  /// axes of batch, query_len and key_len are the entries and the rows of the longest, whose gradient is 0
  /// behind the rows of an entry. An entry without queries, or without keys, may be among them.
  std::span<const std::int64_t> query_starts = {}, key_starts = {};
  /// Keys and values of a cache, in the place of key, value and key_starts: one view for each batch entry, or
  /// for each entry of query_starts. Views may have different lengths, of which the plan's key_len is the
  /// longest, and the default offset of an entry is its length less its queries. The views are read where
  /// their rows lie, if the kernel can (explain says so), and else gathered first. A row's result depends on
  /// its own sequence alone, to the bit: not on the store, the size of pages, the other entries, or the
  /// number of threads. The one exception is the number of queries of its entry, which may choose another
  /// kernel. No gradients are taken. Throws InvalidArgument where the mask lets a query see a position that a
  /// view lacks.
  std::span<const KeyValueView> cache = {};
  std::uint64_t dropout_seed = 0;
  std::uint64_t sample_seed = 0;  ///< HardSample, GumbelSample
};

struct AttentionOutputs {
  TensorView output;  ///< [batch, num_query_heads, query_len, value_dim]; may be empty where weights
                      ///< are not: then only the heads and rows chosen are computed
  TensorView log_sum_exp = {};  ///< optional, f32 (f64 for f64): [batch, num_query_heads, query_len]; natural
                                ///< log, -inf for a fully masked row
  TensorView weights = {};      ///< optional, before dropout, dtype of log_sum_exp: [batch, num_query_heads,
                                ///< query_len, key_len], or [batch, weight_heads.size(), weight_rows.size(),
                                ///< key_len]; of a packed batch key_len is that of the entry with most keys,
                                ///< and 0 stands behind the keys of the others
  std::span<const std::int64_t> weight_heads = {};  ///< the query heads whose weights are wanted; empty: all
  std::span<const std::int64_t> weight_rows = {};   ///< the query rows; empty: all, as in packed batches
};

/// The most rows of one entry of a packed batch: what its plan's query_len, or key_len, has to hold.
std::int64_t longest_entry(std::span<const std::int64_t> starts) noexcept;

/// What a call borrows. An empty workspace means this thread's own arena; executor nullptr the default one.
/// With a workspace a call of a fused kernel takes nothing from the heap, once its threads have met blocks of
/// this size (and as long as the mask leaves at most six spans of keys to a block of queries).
struct CallResources {
  Executor* executor = nullptr;
  std::span<std::byte> workspace = {};
};

/// What a loss depends on: the output alone, or the returned weights too.
enum class LossOf : std::uint8_t { output, weights };

/// Bytes of workspace that forward (backward) calls of this plan need, for an executor of that many threads.
std::size_t workspace_bytes(const AttentionPlan& plan, int threads);
std::size_t backward_workspace_bytes(const AttentionPlan& plan, int threads, LossOf loss_of = LossOf::output);

/// outputs ← attention(inputs). A row that sees no key, or only scores of -inf, gives 0 and a log-sum-exp of
/// -inf; keys that no query may see are never read into a result, whatever they hold. A row that sees a NaN
/// score is NaN (0 where a key is hidden, in `weights`), and so may be rows that share its block where a NaN
/// is in a value or in gradients. Same bits for every thread count: where there are few queries, keys are
/// split over threads by shape alone. Throws InvalidArgument for shapes, dtypes, strides or memory shared
/// with an input that do not fit the plan.
void attend(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionOutputs& outputs,
            const CallResources& resources = {});
void attend(const AttentionPlan& plan, ConstTensorView query, ConstTensorView key, ConstTensorView value,
            TensorView output);

/// What `spec` makes of query [batch, num_query_heads, query_len, head_dim], key [batch, num_kv_heads,
/// key_len, key_dim] and value [batch, num_kv_heads, key_len, value_dim], in a new tensor [batch,
/// num_query_heads, query_len, value_dim] of the query's dtype. For a program that calls once: each call
/// makes a plan and takes memory, and a loop had better make_plan before and attend inside.
///
///   const Tensor out = attention(q, k, v, {.mask = Causal{}});
///
/// Throws what make_plan and attend throw.
Tensor attention(ConstTensorView query, ConstTensorView key, ConstTensorView value,
                 const AttentionSpec& spec = {}, const Arguments& arguments = {});

/// Gradients wanted; an empty view is "not wanted". All are overwritten, none is added to. A gradient has
/// the shape of what it is the gradient of; those of arguments are in f32 (f64 for f64).
struct AttentionGradients {
  TensorView query = {}, key = {}, value = {};
  ArgumentGradients arguments = {};  ///< by the names of the inputs: "score.W", "mods[0].slope"
};

/// What attend wrote, and the derivatives of a scalar loss by it.
struct AttentionLoss {
  ConstTensorView output, log_sum_exp;  ///< as attend wrote them; neither is read where the loss depends on
                                        ///< weights, or where the plan needs whole rows
  ConstTensorView d_output;             ///< empty: the loss does not depend on the output
  /// By the weights, shaped as attend would write them for weight_heads and weight_rows (pointer networks, a
  /// loss on alignments). Takes whole rows: see LossOf.
  ConstTensorView d_weights = {};
  std::span<const std::int64_t> weight_heads = {}, weight_rows = {};
  /// HardSample: the loss of each row less a baseline, [batch, num_query_heads, query_len] in f32 (f64 for
  /// f64).
  ConstTensorView advantage = {};
};
void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionLoss& loss,
                     const AttentionGradients& gradients, const CallResources& resources = {});

/// The same for a loss of the output alone, whose derivative by it is `d_output`.
void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, ConstTensorView output,
                     ConstTensorView log_sum_exp, ConstTensorView d_output,
                     const AttentionGradients& gradients, const CallResources& resources = {});

}  // namespace fovea
