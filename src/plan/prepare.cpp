// Makes the problem that a kernel sees from views: widens 16-bit operands, projects and normalises rows.
#include <algorithm>
#include <array>
#include <iterator>

#include "plan/call.h"
#include "plan/packed.h"
#include "plan/projection.h"
#include "plan/rows.h"

namespace fovea {
namespace {

// Scratch memory for rows of `dim` elements.
template <class T>
kernels::Operand<T*> take_rows(const RowSizes& rows, std::int64_t dim, Carver& carver) {
  return contiguous_operand<T*>(carver.take<T>(rows.batch * rows.heads * rows.rows * dim), rows.heads,
                                rows.rows, dim);
}

// Copies 16-bit operands to f32 rows. Kernels are compiled for f32 and f64 only, so their number does not
// grow with the dtypes.
template <class T>
kernels::Operand<const T*> widened(const AttentionPlan::Impl& plan, const ConstTensorView& view,
                                   std::int64_t heads, std::int64_t rows, std::int64_t dim,
                                   std::int64_t batch, Carver& carver, Executor* executor,
                                   const RowSelection& selected) {
  if (plan.dtype == plan.compute_dtype())
    return executor ? operand_of<T>(view) : kernels::Operand<const T*>{};
  const auto target = take_rows<T>({batch, heads, rows}, dim, carver);
  if (executor) copy_rows(view, view_of(target, view.shape()), *executor, selected);
  return read_only(target);
}

// Rows of one sequence of a cache side by side, in the type that is computed in; 0 for rows that it lacks,
// which the mask hides.
template <class T>
kernels::Operand<const T*> gathered(const KeyValueView* view, bool values, std::int64_t heads,
                                    std::int64_t rows, std::int64_t dim, Carver& carver, Executor* executor) {
  const auto target = take_rows<T>({1, heads, rows}, dim, carver);
  if (executor) {
    const TensorView all = view_of(target, {1, heads, rows, dim});
    std::int64_t end = 0;
    const auto clear_until = [&](std::int64_t position) {
      if (position > end) clear_rows(all.slice(2, end, position - end));
    };
    for (const KeyValueRun& run : view->runs) {
      clear_until(run.position);
      end = run.position + run.count;
      const std::array<std::int64_t, 4> strides{0, values ? run.value_head_stride : run.key_head_stride,
                                                values ? view->value_row_stride : view->key_row_stride, 1};
      copy_rows(
          ConstTensorView(values ? run.value : run.key, view->dtype, {1, heads, run.count, dim}, strides),
          all.slice(2, run.position, run.count), *executor);
    }
    clear_until(rows);
  }
  return read_only(target);
}

kernels::CachedRows cached_rows(const KeyValueView& view) {
  static constexpr KeyValueRun none;  // a null pointer would mean that keys and values are operands
  return {view.runs.empty() ? &none : view.runs.data(), static_cast<std::int64_t>(view.runs.size()),
          view.key_row_stride, view.value_row_stride};
}

template <class T>
kernels::Operand<const T*> projected(const RowSizes& rows, const Projection<T>& projection,
                                     const kernels::Operand<const T*>& x, Carver& carver, Executor* executor,
                                     const RowSelection& selected) {
  const auto target = take_rows<T>(rows, projection.out, carver);
  if (executor) project(rows, projection, x, target, *executor, selected);
  return read_only(target);
}

// For queries that are already projected only the bias is left: y = x + b.
template <class T>
kernels::Operand<const T*> shifted(const RowSizes& rows, const T* bias, std::int64_t dim,
                                   const kernels::Operand<const T*>& x, Carver& carver, Executor* executor) {
  const auto target = take_rows<T>(rows, dim, carver);
  if (executor) {
    executor->parallel_for(rows.batch * rows.heads, [&](std::int64_t unit, int) {
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const T* from = x.row(unit / rows.heads, unit % rows.heads, r);
        T* to = target.row(unit / rows.heads, unit % rows.heads, r);
        for (std::int64_t d = 0; d < dim; ++d) to[d] = from[d] + bias[d];
      }
    });
  }
  return read_only(target);
}

template <class T>
void set_mods(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, bool reading,
              kernels::Problem<T>& p) {
  const auto list = [&](const Mods& mods, int first_argument) {
    return reading ? mods_of<T>(plan, mods, first_argument, call) : mods_of<T>(plan, mods);
  };
  p.mods = list(plan.spec.mods, plan.first_mod_argument);
  p.weight_mods = list(plan.spec.weight_mods, plan.first_weight_mod_argument);
  p.has_mods = !p.mods.empty();
  p.has_weight_mods = !p.weight_mods.empty();
  const std::int64_t heads = plan.shape.num_query_heads;
  p.shared_dense_gradient = p.mods.shared_dense_gradient(sizes.batch, heads) ||
                            p.weight_mods.shared_dense_gradient(sizes.batch, heads);
}

}  // namespace

std::int64_t elements_of_a_head(const ArgumentDeclaration& declaration) {
  std::int64_t elements = 1;
  for (const ArgumentAxis& axis : declaration.axes) elements *= axis.size ? 1 : axis.number;
  return elements;
}

bool is_by_head(const ArgumentDeclaration& declaration, int rank) {
  return declaration.axes.front().size != nullptr || rank > static_cast<int>(declaration.axes.size());
}

namespace {

template <class T>
void set_normalizer(const AttentionPlan::Impl& plan, const Call& call, kernels::Problem<T>& p) {
  const Normalizer& normalizer = plan.spec.normalizer;
  p.normalizer = kind_of(normalizer);
  p.normalizer_number = number_of(normalizer);
  p.sample_seed = call.inputs.sample_seed;
  if (counts_keys(normalizer)) return;  // its argument is read by a mod
  const std::span<const ArgumentDeclaration> declared = arguments(normalizer);
  for (std::size_t n = 0; n < declared.size(); ++n) {
    const ConstTensorView& view = call.arguments[plan.first_normalizer_argument + static_cast<int>(n)];
    kernels::NormalizerArgument<T>& argument = p.normalizer_arguments.at(n);
    argument.data = data_or_null<T>(view);
    argument.elements = elements_of_a_head(declared[n]);
    argument.head_stride = argument.data && is_by_head(declared[n], view.rank()) ? view.stride(0) : 0;
    p.normalizer_elements += argument.elements;
  }
}

kernels::Operand<const std::uint16_t*> bits_of(const ConstTensorView& view) {
  return {reinterpret_cast<const std::uint16_t*>(view.raw()), view.stride(0), view.stride(1), view.stride(2)};
}

// The rows of queries and keys that a call for weights alone needs. A list of more than 64 rows costs more to
// search than it saves. Coverage needs all earlier rows.
std::pair<RowSelection, RowSelection> selection_of(const AttentionPlan::Impl& plan,
                                                   const AttentionOutputs* weights) {
  if (!weights || weights->log_sum_exp) return {};
  const auto rows = plan.coverage() || weights->weight_rows.size() > 64 ? std::span<const std::int64_t>()
                                                                        : weights->weight_rows;
  const std::int64_t group = plan.shape.num_query_heads / plan.shape.num_kv_heads;
  return {{.heads = weights->weight_heads, .rows = rows}, {.heads = weights->weight_heads, .group = group}};
}

// One operand of the score: the given rows, and how the score maps them.
template <class T>
struct ScoreOperand {
  const RowMap& map;
  RowSizes rows;
  std::int64_t dim = 0;  // elements of a given row
  const RowSelection& selected;
};

// With a counting carver the arguments are unknown; the count is enough for any of them.
template <class T>
kernels::Operand<const T*> mapped(const AttentionPlan::Impl& plan, const Call& call,
                                  const ScoreOperand<T>& side, const kernels::Operand<const T*>& x,
                                  Carver& carver, Executor* executor) {
  const RowMap& map = side.map;
  if (map.norm != RowMap::Norm::none) {
    const auto target = take_rows<T>(side.rows, side.dim, carver);
    if (executor)
      normalize_rows<T>(side.rows, {map, side.dim, call.arguments[map.gain]}, x, target, *executor,
                        side.selected);
    return read_only(target);
  }
  const ConstTensorView &matrix = call.arguments[map.matrix], &bias = call.arguments[map.bias];
  if (map.matrix >= 0 && (!executor || matrix)) {
    return projected<T>(side.rows, projection_of<T>(matrix, plan.matrix_rows(map.matrix), side.dim, bias), x,
                        carver, executor, side.selected);
  }
  if (executor && bias) return shifted<T>(side.rows, bias.template data<T>(), side.dim, x, carver, executor);
  return x;
}

}  // namespace

template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, Carver& carver,
                    Executor* executor, kernels::In16Bits stored, const AttentionOutputs* weights,
                    CacheReading reading) {
  const AttentionShape& s = plan.shape;
  const AttentionInputs& inputs = call.inputs;
  const ScoreDefinition& score = plan.score();
  Prepared<T> result;
  const auto [selected_queries, selected_keys] = selection_of(plan, weights);
  set_mods(plan, call, sizes, executor != nullptr, result.problem);
  const KeyValueView* view = inputs.cache.empty() ? nullptr : &inputs.cache.front();
  // What a candidate reads in place it reads as it is stored.
  const bool in_place = sizes.cached && reading == CacheReading::in_place && !plan.key_mapped() &&
                        (stored != kernels::In16Bits::nothing || plan.dtype == plan.compute_dtype());
  if (stored != kernels::In16Bits::everything)
    result.query = widened<T>(plan, inputs.query, s.num_query_heads, sizes.query_len, s.head_dim, sizes.batch,
                              carver, executor, selected_queries);
  if (sizes.cached && !in_place)
    result.key = gathered<T>(view, false, s.num_kv_heads, sizes.key_len, s.key_dim, carver, executor);
  else if (!sizes.cached && score.key_rows < 0 && stored == kernels::In16Bits::nothing)
    result.key = widened<T>(plan, inputs.key, s.num_kv_heads, sizes.key_len, s.key_dim, sizes.batch, carver,
                            executor, selected_keys);
  kernels::Problem<T>& p = result.problem;  // move_rows sets what differs between entries
  p.batch = sizes.batch;
  p.first_entry = call.entry.value_or(0);
  p.adds_mod_gradients = call.entry.has_value();
  p.query_heads = s.num_query_heads;
  p.kv_heads = s.num_kv_heads;
  p.query_len = sizes.query_len;
  p.key_len = sizes.key_len;
  p.score = plan.score_kind();
  p.score_dim = plan.score_dim();
  p.value_dim = s.value_dim;
  p.operand_dtype = plan.dtype;
  p.precision = plan.precision;
  p.by_position = sizes.cached;
  if (sizes.cached) {
    if (in_place && executor) p.cached = cached_rows(*view);
    if (in_place && stored != kernels::In16Bits::nothing) p.stored_dtype = plan.dtype;
    if (executor && stored == kernels::In16Bits::everything) p.stored_query = bits_of(inputs.query);
    if (!in_place && s.value_dim > 0 && !weights)
      p.value = gathered<T>(view, true, s.num_kv_heads, sizes.key_len, s.value_dim, carver, executor);
  } else if (stored != kernels::In16Bits::nothing) {
    p.stored_dtype = plan.dtype;
    if (executor) {
      p.stored_query = bits_of(inputs.query);
      p.stored_key = bits_of(inputs.key);
      p.stored_value = bits_of(inputs.value);
    }
  } else if (s.value_dim > 0 && !weights)
    p.value = widened<T>(plan, inputs.value, s.num_kv_heads, sizes.key_len, s.value_dim, sizes.batch, carver,
                         executor, {});
  p.query = mapped<T>(
      plan, call,
      {score.query, {sizes.batch, s.num_query_heads, sizes.query_len}, s.head_dim, selected_queries},
      result.query, carver, executor);
  if (score.key_rows >= 0) {  // row j replaces key j in every batch entry and head
    const ConstTensorView& rows = call.arguments[score.key_rows];
    p.key = {data_or_null<T>(rows), 0, 0, executor ? rows.stride(0) : 0};
  } else {
    p.key = mapped<T>(plan, call,
                      {score.key, {sizes.batch, s.num_kv_heads, sizes.key_len}, s.key_dim, selected_keys},
                      result.key, carver, executor);
  }
  p.additive_vector = data_or_null<T>(call.arguments[score.vector]);
  p.coverage_vector = data_or_null<T>(call.arguments[score.coverage]);
  p.scale = plan.scale;
  set_normalizer(plan, call, p);
  p.whole_row = call.backward ? plan.whole_row_backward() : plan.whole_row();
  p.mask = &plan.spec.mask;
  p.key_lengths = inputs.key_lengths;
  p.query_offset = inputs.query_offset.value_or(sizes.key_len - sizes.query_len);
  if (!inputs.query_offsets.empty()) p.query_offsets = inputs.query_offsets.data();
  p.dropout_rate = plan.spec.dropout.rate;
  p.dropout_seed = inputs.dropout_seed;
  if (counts_keys(plan.spec.normalizer)) multiply_by_counts<T>(plan, call, carver, executor, p);
  return result;
}

template <class T>
void move_rows(const AttentionInputs& inputs, const Entry& entry, kernels::Problem<T>& problem) {
  const auto number = static_cast<std::size_t>(entry.number);
  problem.query = operand_of<T>(inputs.query);
  problem.query.data = problem.query.row(entry.batch, 0, entry.query_begin);
  problem.first_entry = entry.number;
  problem.query_len = entry.sizes.query_len;
  problem.key_len = entry.sizes.key_len;
  problem.cached = cached_rows(inputs.cache[number]);
  problem.query_offset = inputs.query_offsets.empty()
                             ? inputs.query_offset.value_or(problem.key_len - problem.query_len)
                             : inputs.query_offsets[number];
}

template void move_rows<float>(const AttentionInputs&, const Entry&, kernels::Problem<float>&);
template void move_rows<double>(const AttentionInputs&, const Entry&, kernels::Problem<double>&);

template Prepared<float> prepare<float>(const AttentionPlan::Impl&, const Call&, const CallSizes&, Carver&,
                                        Executor*, kernels::In16Bits, const AttentionOutputs*, CacheReading);
template Prepared<double> prepare<double>(const AttentionPlan::Impl&, const Call&, const CallSizes&, Carver&,
                                          Executor*, kernels::In16Bits, const AttentionOutputs*,
                                          CacheReading);

}  // namespace fovea
