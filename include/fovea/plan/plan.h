// Plan once, run often. make_plan checks a spec and a shape and picks the best kernel that accepts them. The
// plan keeps the reasons why better kernels refused. attend and attend_backward then check the shapes of each
// call in O(1).
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
#include "fovea/core/tensor.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// Whether the weights must be differentiable by the scores. HardArgmax has no such derivative, and
/// HardSample's is an estimate.
enum class Derivatives : std::uint8_t { where_defined, required };
/// Whether the keys of one call are all keys, or a part of them.
enum class Keys : std::uint8_t { all, part };

struct PlanOptions {
  /// The dtype of query, key, value and output. Accumulation is f32 (f64 for f64).
  DType dtype = DType::f32;
  /// How exact products must be at least, where dtype is f32.
  Precision precision = Precision::full;
  /// Forces an instruction set ("reference", "baseline", "avx2", "avx512", "avx512bf16", "amx") or one
  /// algorithm ("avx512 tiled", as list_kernels names them). If empty, the environment's FOVEA_ISA decides,
  /// and without that the best kernel runs. A name that does not exist, or that this machine cannot run, is
  /// an error.
  ///
  /// The algorithms of "avx512bf16" and "amx" refuse some plans, such as f32 at Precision::full; explain says
  /// why. Those plans then run on the algorithms of "avx512".
  ///
  /// A forced algorithm runs calls with any number of queries, forward and backward, wherever it can. The
  /// other algorithms of its instruction set do the rest. If the forced algorithm cannot compute the output,
  /// that is an error.
  std::string kernel = {};
  /// `derivatives` says what attend_backward will be asked for. `keys` says whether calls bring parts of the
  /// keys, to be merged by their log-sum-exps (merge.h). make_plan refuses specs that cannot give it, with
  /// the reason.
  Derivatives derivatives = Derivatives::where_defined;
  Keys keys = Keys::all;
  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

/// Immutable, cheap to copy, safe to share between threads.
class AttentionPlan {
 public:
  const AttentionSpec& spec() const noexcept;
  const AttentionShape& shape() const noexcept;
  DType dtype() const noexcept;
  /// Every argument that a call may bring, in the order score, mods, normaliser, weight mods.
  const std::vector<DeclaredArgument>& arguments() const noexcept;
  /// The kernels that run calls with as many queries as the plan has, forward and backward: "avx512 tiled",
  /// "reference", ... For fewer queries, explain says which kernel runs. If value_dim is 0, kernel() is the
  /// one that computes weights alone.
  std::string_view kernel() const noexcept;
  std::string_view backward_kernel() const noexcept;
  /// Whether there are kernels for such calls, forward and backward, that multiply 16-bit operands without
  /// widening them to f32 first. It does not follow from the plan's lengths, so that a batch with a longer
  /// text has the answer of each text alone.
  bool multiplies_16_bits() const noexcept;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }
  explicit AttentionPlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Throws InvalidArgument that names the wrong part: a size, a head count that does not divide, a mask that
/// does not fit the shape, a rate outside [0, 1).
AttentionPlan make_plan(const AttentionSpec& spec, const AttentionShape& shape,
                        const PlanOptions& options = {});

/// Describes the plan in lines:
/// - the kernels, forward and backward, by the count of queries;
/// - the spec;
/// - the arguments with their shapes at the plan's capacity, where the spec has any;
/// - the shape;
/// - the kernels of weights, of weights alone, and of losses of weights;
/// - the kernels for keys and values in a cache, where they are others; for a batch, those that read shared
///   keys of a cache once;
/// - the better kernels that refused, a line for each reason;
/// - the share of tiles that the mask lets kernels skip; a tile is a block of scores, queries × keys.
///
/// The share is that of calls with this query_offset (by default keys and queries end together), or with
/// these query_offsets, one a batch entry.
std::string explain(const AttentionPlan& plan, std::optional<std::int64_t> query_offset = std::nullopt);
std::string explain(const AttentionPlan& plan, std::span<const std::int64_t> query_offsets);

/// A kernel is an algorithm, compiled for an instruction set.
struct KernelInfo {
  std::string isa;   ///< "avx512". As PlanOptions::kernel or FOVEA_ISA it stands for the best of its
                     ///< algorithms.
  std::string name;  ///< "avx512 split". As PlanOptions::kernel or FOVEA_ISA it stands for this algorithm;
                     ///< AttentionPlan::kernel returns it.
  bool available = false;  ///< whether this CPU runs it
};
/// All kernels that are compiled in, best first.
std::vector<KernelInfo> list_kernels();

/// The inputs of one call. A batch is either padded, or packed. Entries of a padded batch lie side by side
/// and have the same number of rows; those of a packed batch follow one another in one tensor (see
/// query_starts).
///
/// Views and spans are borrowed: what they point to must live until the call has returned. A Tensor that is
/// made within the braces of a named AttentionInputs ends with that statement.
struct AttentionInputs {
  ConstTensorView query = {};  ///< [batch, num_query_heads, query_len, head_dim]
  ConstTensorView key = {};    ///< [batch, num_kv_heads, key_len, key_dim]; none for Location
  ConstTensorView value = {};  ///< [batch, num_kv_heads, key_len, value_dim]; none where value_dim is 0
  /// The arguments of the score, the mods, the normaliser and the weight mods, by name
  /// (attention/argument.h), in f32 (f64 for f64): `{{"score.W", W}, {"mods[0].slope", slopes}}`.
  Arguments arguments = {};
  /// One length a batch entry, each in [0, key_len], for a KeyLengths{} mask without lengths of its own.
  std::span<const std::int64_t> key_lengths = {};
  /// The position of query row 0 in key coordinates. The default is key_len - query_len: queries and keys end
  /// together.
  std::optional<std::int64_t> query_offset = std::nullopt;
  /// The same for each batch entry: [batch], instead of query_offset, or empty. Cache entries that hold
  /// different numbers of keys decode together with key_lengths[b] - query_len each. That is not the default,
  /// because a padded batch that attends to itself begins at 0 whatever its lengths.
  std::span<const std::int64_t> query_offsets = {};
  /// A packed batch: sequences of any lengths without padding, such as prompts and single steps of decoding
  /// in one call. Entry e has the query rows [query_starts[e], query_starts[e + 1]) and the keys
  /// [key_starts[e], key_starts[e + 1]). Both lists have [entries + 1] numbers, ascending from 0 to the
  /// number of rows (the cu_seqlens of FlashAttention, arXiv 2205.14135). Query, key, value, outputs and
  /// gradients then have a batch of 1 and the rows of all entries.
  ///
  /// The plan's batch is the largest number of entries; its query_len and key_len are the most rows of one
  /// entry. An entry may have no queries or no keys.
  ///
  /// Everything else is as in a padded batch of the same entries:
  /// - Masks, mods, dropout and samples get the entry's number as Site::batch, and positions within the
  ///   entry.
  /// - key_lengths and query_offsets have one number an entry. The default offset of an entry is its keys
  ///   less its queries.
  /// - Axes of arguments that are batch, query_len or key_len have the number of entries or the rows of the
  ///   longest entry. Behind the rows of an entry the gradient of an argument is 0.
  std::span<const std::int64_t> query_starts = {}, key_starts = {};
  /// Keys and values of a cache, in the place of key, value and key_starts: one view for each batch entry, or
  /// for each entry of query_starts. Views may have different lengths, of which the plan's key_len is the
  /// longest. The default offset of an entry is its length less its queries. The views are read where their
  /// rows lie, if the kernel can, and else gathered first. A row's result depends on its own sequence alone,
  /// to the bit: not on the store, the size of pages, the rows of other entries, or the number of threads.
  /// But the number of queries of its entry may choose another kernel, and dropout and samples follow the
  /// number of the entry. No gradients are taken. Throws InvalidArgument where the mask lets a query see a
  /// position that a view lacks.
  std::span<const KeyValueView> cache = {};
  std::uint64_t dropout_seed = 0;
  std::uint64_t sample_seed = 0;  ///< for HardSample and GumbelSample
};

struct AttentionOutputs {
  TensorView output;  ///< [batch, num_query_heads, query_len, value_dim]. May be empty if weights are given;
                      ///< then only the weights of weight_heads and weight_rows are computed
  TensorView log_sum_exp = {};  ///< optional, f32 (f64 for f64): [batch, num_query_heads, query_len]; natural
                                ///< log, -inf for a fully masked row
  TensorView weights = {};      ///< optional, before dropout, in the dtype of log_sum_exp: [batch,
                                ///< num_query_heads, query_len, key_len], or [batch, weight_heads.size(),
                                ///< weight_rows.size(), key_len]. For a packed batch, key_len is that of the
                                ///< entry with most keys; behind the keys of the other entries stands 0
  std::span<const std::int64_t> weight_heads = {};  ///< the query heads whose weights are wanted; empty: all
  std::span<const std::int64_t> weight_rows = {};   ///< the query rows whose weights are wanted; empty: all.
                                                    ///< Must be empty for packed batches
};

/// The most rows of one entry of a packed batch. The plan's query_len (or key_len) must be at least this.
std::int64_t longest_entry(std::span<const std::int64_t> starts) noexcept;

/// Whether a loss depends on the output alone, or on the returned weights too.
enum class LossOf : std::uint8_t { output, weights };

/// Bytes of workspace that forward (backward) calls of this plan need with an executor of that many threads.
/// Throws InvalidArgument for fewer than one, as those of the other plans do.
std::size_t workspace_bytes(const AttentionPlan& plan, int threads);
std::size_t backward_workspace_bytes(const AttentionPlan& plan, int threads, LossOf loss_of = LossOf::output);

/// outputs ← attention(inputs).
///
/// A row that sees no key, or only scores of -inf, gives 0 and a log-sum-exp of -inf. Keys that no query may
/// see never affect a result, whatever they hold. A row that sees a NaN score is NaN; its `weights` are 0
/// where a key is hidden. A NaN in a value or in a gradient may also spread to rows of its block.
///
/// The bits do not depend on the number of threads: when few queries are split over threads by their keys,
/// the split depends on the shape alone. Throws InvalidArgument for shapes, dtypes or strides that do not fit
/// the plan, and for outputs that share memory with an input.
void attend(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionOutputs& outputs,
            const CallResources& resources = {});
void attend(const AttentionPlan& plan, ConstTensorView query, ConstTensorView key, ConstTensorView value,
            TensorView output);

/// The gradients wanted; leave a view empty if its gradient is not wanted. All are overwritten, none is added
/// to. A gradient has the shape of its input. Gradients of arguments are in f32 (f64 for f64).
struct AttentionGradients {
  TensorView query = {}, key = {}, value = {};
  ArgumentGradients arguments = {};  ///< under the same names as in the inputs: "score.W", "mods[0].slope"
};

/// The results of attend, and the derivatives of a scalar loss by these results.
struct AttentionLoss {
  ConstTensorView output, log_sum_exp;  ///< as attend wrote them. Neither is read where the loss depends on
                                        ///< weights, or where the plan needs whole rows
  ConstTensorView d_output;             ///< may be empty if the loss does not depend on the output
  /// The derivative by the weights, in the shape that attend writes for weight_heads and weight_rows (pointer
  /// networks, a loss on alignments). Needs whole rows of scores: see LossOf.
  ConstTensorView d_weights = {};
  std::span<const std::int64_t> weight_heads = {}, weight_rows = {};
  /// For HardSample: each row's loss less a baseline, [batch, num_query_heads, query_len] in f32 (f64 for
  /// f64).
  ConstTensorView advantage = {};
};
void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionLoss& loss,
                     const AttentionGradients& gradients, const CallResources& resources = {});

/// The same for a loss that depends on the output alone; `d_output` is its derivative by the output.
void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, ConstTensorView output,
                     ConstTensorView log_sum_exp, ConstTensorView d_output,
                     const AttentionGradients& gradients, const CallResources& resources = {});

}  // namespace fovea
