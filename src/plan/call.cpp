// attend: check, widen, project, run.
#include <algorithm>
#include <iterator>

#include "plan/impl.h"
#include "plan/projection.h"
#include "plan/rows.h"

namespace fovea {
namespace {

// 16-bit operands become f32 rows; the kernels know f32 and f64 only, so nothing multiplies.
template <class T>
kernels::Operand<const T*> widened(const AttentionPlan::Impl& plan, const ConstTensorView& view,
                                   std::int64_t heads, std::int64_t rows, std::int64_t dim,
                                   std::int64_t batch, Carver& carver, Executor* executor,
                                   const Asked& asked) {
  if (plan.dtype == plan.compute_dtype())
    return executor ? operand_of<T>(view) : kernels::Operand<const T*>{};
  T* wide = carver.take<T>(batch * heads * rows * dim);
  if (executor) copy_rows(view, view_of(packed<T*>(wide, heads, rows, dim), view.shape()), *executor, asked);
  return packed<const T*>(wide, heads, rows, dim);
}

template <class T>
kernels::Operand<const T*> projected(const RowSizes& rows, const Projection<T>& projection,
                                     const kernels::Operand<const T*>& x, Carver& carver, Executor* executor,
                                     const Asked& asked) {
  T* y = carver.take<T>(rows.batch * rows.heads * rows.rows * projection.out);
  const auto target = packed<T*>(y, rows.heads, rows.rows, projection.out);
  if (executor) project(rows, projection, x, target, *executor, asked);
  return packed<const T*>(y, rows.heads, rows.rows, projection.out);
}

// b alone, where the queries are already projected: y = x + b, as a projection by nothing would be.
template <class T>
kernels::Operand<const T*> shifted(const RowSizes& rows, const T* bias, std::int64_t dim,
                                   const kernels::Operand<const T*>& x, Carver& carver, Executor* executor) {
  T* y = carver.take<T>(rows.batch * rows.heads * rows.rows * dim);
  const auto target = packed<T*>(y, rows.heads, rows.rows, dim);
  if (executor) {
    executor->parallel_for(rows.batch * rows.heads, [&](std::int64_t unit, int) {
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const T* from = x.row(unit / rows.heads, unit % rows.heads, r);
        T* to = target.row(unit / rows.heads, unit % rows.heads, r);
        for (std::int64_t d = 0; d < dim; ++d) to[d] = from[d] + bias[d];
      }
    });
  }
  return packed<const T*>(y, rows.heads, rows.rows, dim);
}

template <class T>
const T* data_or_null(const ConstTensorView& view) {
  return view ? view.data<T>() : nullptr;
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

template <class T>
void set_normalizer(const AttentionPlan::Impl& plan, const Call& call, kernels::Problem<T>& p) {
  const Normalizer& normalizer = plan.spec.normalizer;
  p.normalizer = kind_of(normalizer);
  if (const auto* sigmoid = std::get_if<Sigmoid>(&normalizer)) p.sigmoid_bias = sigmoid->bias;
  if (const auto* entmax = std::get_if<Entmax>(&normalizer)) p.entmax_alpha = entmax->alpha;
  if (const auto* gumbel = std::get_if<GumbelSample>(&normalizer)) p.temperature = gumbel->temperature;
  p.sample_seed = call.inputs.sample_seed;
  const ConstTensorView& argument = call.arguments[plan.first_normalizer_argument];
  if (std::holds_alternative<SoftmaxWithSink>(normalizer)) p.sink = data_or_null<T>(argument);
  if (std::holds_alternative<LinearChain>(normalizer)) {
    p.transitions = data_or_null<T>(argument);
    p.transition_stride = argument.rank() == 3 ? 4 : 0;
  }
}

// What the plan's kernel reads of this call's 16-bit operands as they are. Keys that are projected are not
// those that are stored.
kernels::Stored reads_stored(const AttentionPlan::Impl& plan, const CallSizes& sizes) {
  if (size_of(plan.dtype) != 2 || !plan.kernel->reads_stored || plan.key_mapped() || plan.additive() ||
      plan.shape.value_dim == 0)
    return kernels::Stored::none;
  kernels::Problem<float> p;
  p.query_len = sizes.query_len;
  p.key_len = sizes.key_len;
  p.value_dim = plan.shape.value_dim;
  p.whole_row = plan.whole_row();
  p.operands = plan.dtype;
  return plan.kernel->reads_stored(p);
}

kernels::Operand<const std::uint16_t*> bits_of(const ConstTensorView& view) {
  return {reinterpret_cast<const std::uint16_t*>(view.raw()), view.stride(0), view.stride(1), view.stride(2)};
}

// Queries and keys that a call for weights alone needs. A long list of rows costs more to look through than
// it saves, and coverage needs the rows before.
std::pair<Asked, Asked> asked_of(const AttentionPlan::Impl& plan, const AttentionOutputs* weights) {
  if (!weights || weights->log_sum_exp) return {};
  const auto rows = plan.coverage() || weights->weight_rows.size() > 64 ? std::span<const std::int64_t>()
                                                                        : weights->weight_rows;
  const std::int64_t group = plan.shape.num_query_heads / plan.shape.num_kv_heads;
  return {{.heads = weights->weight_heads, .rows = rows}, {.heads = weights->weight_heads, .group = group}};
}

}  // namespace

kernels::Request AttentionPlan::Impl::request() const {
  return {.score = score_kind(),
          .dtype = dtype,
          .precision = precision,
          .projected = !additive() && (query_mapped() || key_mapped()),
          .mods = !spec.mods.empty() || !spec.weight_mods.empty(),
          .whole_row = whole_row(),
          .dropout = spec.dropout.rate > 0,
          .normalizer = kind_of(spec.normalizer),
          .scale = scale};
}

namespace {

// One operand of the score: the rows given, and what the definition of the score makes of them.
template <class T>
struct Side {
  const RowMap& map;
  RowSizes rows;
  std::int64_t dim = 0;  // elements of a row that is given
  const Asked& asked;
};

// With a counting carver arguments are unknown: what is counted is enough for any of them.
template <class T>
kernels::Operand<const T*> mapped(const AttentionPlan::Impl& plan, const Call& call, const Side<T>& side,
                                  const kernels::Operand<const T*>& x, Carver& carver, Executor* executor) {
  const RowMap& map = side.map;
  if (map.norm != RowMap::Norm::none) {
    T* y = carver.take<T>(side.rows.batch * side.rows.heads * side.rows.rows * side.dim);
    const auto target = packed<T*>(y, side.rows.heads, side.rows.rows, side.dim);
    if (executor)
      normalize_rows<T>(side.rows, {map, side.dim, call.arguments[map.gain]}, x, target, *executor,
                        side.asked);
    return packed<const T*>(y, side.rows.heads, side.rows.rows, side.dim);
  }
  const ConstTensorView &matrix = call.arguments[map.matrix], &bias = call.arguments[map.bias];
  if (map.matrix >= 0 && (!executor || matrix)) {
    const bool each_head = matrix.rank() == 3;
    return projected<T>(
        side.rows,
        {data_or_null<T>(matrix), plan.matrix_rows(map.matrix), side.dim, executor ? matrix.stride(-2) : 0,
         each_head ? matrix.stride(0) : 0, data_or_null<T>(bias), each_head},
        x, carver, executor, side.asked);
  }
  if (executor && bias) return shifted<T>(side.rows, bias.template data<T>(), side.dim, x, carver, executor);
  return x;
}

}  // namespace

template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, Carver& carver,
                    Executor* executor, const AttentionOutputs* weights, Reads reads) {
  const AttentionShape& s = plan.shape;
  const AttentionInputs& inputs = call.inputs;
  const ScoreDefinition& score = plan.score();
  Prepared<T> result;
  const auto [asked_queries, asked_keys] = asked_of(plan, weights);
  set_mods(plan, call, sizes, executor != nullptr, result.problem);
  const kernels::Stored stored = reads == Reads::stored ? reads_stored(plan, sizes) : kernels::Stored::none;
  if (stored != kernels::Stored::all)
    result.query = widened<T>(plan, inputs.query, s.num_query_heads, sizes.query_len, s.head_dim, sizes.batch,
                              carver, executor, asked_queries);
  if (score.key_rows < 0 && stored == kernels::Stored::none)
    result.key = widened<T>(plan, inputs.key, s.num_kv_heads, sizes.key_len, s.key_dim, sizes.batch, carver,
                            executor, asked_keys);
  kernels::Problem<T>& p = result.problem;
  p.batch = sizes.batch;
  p.query_heads = s.num_query_heads;
  p.kv_heads = s.num_kv_heads;
  p.query_len = sizes.query_len;
  p.key_len = sizes.key_len;
  p.score = plan.score_kind();
  p.score_dim = plan.score_dim();
  p.value_dim = s.value_dim;
  p.operands = plan.dtype;
  p.precision = plan.precision;
  if (stored != kernels::Stored::none) {
    p.stored = plan.dtype;
    if (executor) {
      p.stored_query = bits_of(inputs.query);
      p.stored_key = bits_of(inputs.key);
      p.stored_value = bits_of(inputs.value);
    }
  } else if (s.value_dim > 0 && !weights)
    p.value = widened<T>(plan, inputs.value, s.num_kv_heads, sizes.key_len, s.value_dim, sizes.batch, carver,
                         executor, {});
  p.query = mapped<T>(
      plan, call, {score.query, {sizes.batch, s.num_query_heads, sizes.query_len}, s.head_dim, asked_queries},
      result.query, carver, executor);
  if (score.key_rows >= 0) {  // row j stands for key j, whatever the batch entry and the head
    const ConstTensorView& rows = call.arguments[score.key_rows];
    p.key = {data_or_null<T>(rows), 0, 0, executor ? rows.stride(0) : 0};
  } else {
    p.key = mapped<T>(plan, call,
                      {score.key, {sizes.batch, s.num_kv_heads, sizes.key_len}, s.key_dim, asked_keys},
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
  p.dropout_rate = plan.spec.dropout.rate;
  p.dropout_seed = inputs.dropout_seed;
  return result;
}

template Prepared<float> prepare<float>(const AttentionPlan::Impl&, const Call&, const CallSizes&, Carver&,
                                        Executor*, const AttentionOutputs*, Reads);
template Prepared<double> prepare<double>(const AttentionPlan::Impl&, const Call&, const CallSizes&, Carver&,
                                          Executor*, const AttentionOutputs*, Reads);

namespace {

template <class T>
std::size_t kernel_workspace(const AttentionPlan::Impl& plan, const kernels::Problem<T>& problem,
                             int threads) {
  if constexpr (std::is_same_v<T, float>)
    return plan.kernel->forward_workspace(problem, threads);
  else
    return plan.kernel->forward_workspace_f64(problem, threads);
}

template <class T>
std::size_t forward_bytes(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads,
                          bool whole_row, Reads reads) {
  Carver counting;
  auto prepared = prepare<T>(plan, {.inputs = {}}, sizes, counting, nullptr, nullptr, reads);
  prepared.problem.whole_row = prepared.problem.whole_row || whole_row;
  if (plan.dtype != plan.compute_dtype())
    counting.take<T>(sizes.batch * plan.shape.num_query_heads * sizes.query_len * plan.shape.value_dim);
  return counting.used() + 128 + kernel_workspace<T>(plan, prepared.problem, threads);
}

std::size_t bytes_of(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads, bool whole_row,
                     Reads reads) {
  return plan.compute_dtype() == DType::f64 ? forward_bytes<double>(plan, sizes, threads, whole_row, reads)
                                            : forward_bytes<float>(plan, sizes, threads, whole_row, reads);
}

// Weights come from kernels that take f32.
Reads reads_of(const AttentionOutputs& outputs) {
  return outputs.weights ? Reads::widened : Reads::stored;
}

// Weights without the rest: with no output, or of some rows only.
bool weights_apart(const AttentionOutputs& outputs) {
  return outputs.weights && (!outputs.output || !outputs.weight_rows.empty());
}

template <class T>
void run_kernel(const AttentionPlan::Impl& plan, const kernels::Problem<T>& problem,
                const kernels::ForwardOutputs<T>& out, Executor& executor, std::span<std::byte> memory) {
  if constexpr (std::is_same_v<T, float>)
    plan.kernel->forward(problem, out, executor, memory);
  else
    plan.kernel->forward_f64(problem, out, executor, memory);
}

template <class T>
void run(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
         const CallSizes& sizes, Executor& executor, std::span<std::byte> memory) {
  Carver carver(memory);
  auto prepared = prepare<T>(plan, call, sizes, carver, &executor, outputs.output ? nullptr : &outputs,
                             reads_of(outputs));
  kernels::ForwardOutputs<T> out;
  const bool stored = reads_of(outputs) == Reads::stored && reads_stored(plan, sizes) == kernels::Stored::all;
  const bool narrowed = outputs.output && plan.dtype != plan.compute_dtype() && !stored;
  if (narrowed) {
    out.output = packed<T*>(carver.take<T>(outputs.output.count()), plan.shape.num_query_heads,
                            sizes.query_len, plan.shape.value_dim);
  } else if (stored) {
    out.stored_output = {reinterpret_cast<std::uint16_t*>(outputs.output.raw()), outputs.output.stride(0),
                         outputs.output.stride(1), outputs.output.stride(2)};
  } else if (outputs.output) {
    out.output = operand_of<T>(outputs.output);
  }
  if (outputs.log_sum_exp) out.log_sum_exp = outputs.log_sum_exp.data<T>();
  if (outputs.weights) out.weights = operand_of<T>(outputs.weights);
  out.weight_heads = outputs.weight_heads;
  out.weight_rows = outputs.weight_rows;
  const kernels::Operand<T*> output = out.output;
  // Weights of chosen rows, and weights alone, are a call of the whole-row kernels, which compute no more.
  const bool apart = !prepared.problem.whole_row && weights_apart(outputs);
  if (outputs.output || !apart) {
    kernels::ForwardOutputs<T> first = out;
    if (apart) first.weights = {};
    run_kernel(plan, prepared.problem, first, executor, carver.rest());
  }
  if (apart) {
    prepared.problem.whole_row = true;
    out.output = {};
    if (outputs.output) out.log_sum_exp = nullptr;
    run_kernel(plan, prepared.problem, out, executor, carver.rest());
  }
  if (narrowed) copy_rows(view_of(output, outputs.output.shape()), outputs.output, executor);
}

void check_forward_output(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                          const AttentionOutputs& outputs, const CallSizes& sizes) {
  const AttentionShape& s = plan.shape;
  if (s.value_dim > 0) {
    check_output("attend", "output", outputs.output, plan.dtype,
                 {sizes.batch, s.num_query_heads, sizes.query_len, s.value_dim}, inputs);
  } else if (outputs.output || !outputs.weights) {
    throw InvalidArgument("attend", outputs.output ? "output" : "weights",
                          "weights and no output: the plan has no values (value_dim 0)",
                          outputs.output ? to_string(outputs.output.shape()) : "nothing");
  }
}

void check_outputs(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                   const AttentionOutputs& outputs, const CallSizes& sizes) {
  const char* function = "attend";
  const AttentionShape& s = plan.shape;
  if (outputs.output || !outputs.weights || s.value_dim == 0)
    check_forward_output(plan, inputs, outputs, sizes);
  if (outputs.log_sum_exp) {
    check_output(function, "log_sum_exp", outputs.log_sum_exp, plan.compute_dtype(),
                 {sizes.batch, s.num_query_heads, sizes.query_len}, inputs);
    if (!outputs.log_sum_exp.contiguous())
      throw InvalidArgument(function, "log_sum_exp", "a contiguous tensor", "a strided one");
  }
  check_chosen(function, "weight_heads", outputs.weight_heads, s.num_query_heads);
  check_chosen(function, "weight_rows", outputs.weight_rows, sizes.query_len);
  if (!outputs.weights && !outputs.weight_rows.empty())
    throw InvalidArgument(function, "weights", "room for the weights of the rows chosen", "nothing");
  if (outputs.weights) {
    check_output(function, "weights", outputs.weights, plan.compute_dtype(),
                 weights_shape(plan, sizes, outputs.weight_heads, outputs.weight_rows), inputs);
  }
  Apart apart(function);
  apart.writes("output", outputs.output);
  apart.writes("log_sum_exp", outputs.log_sum_exp);
  apart.writes("weights", outputs.weights);
  apart.reads(inputs.arguments);
  apart.check();
}

CallSizes capacity(const AttentionPlan::Impl& plan) {
  return {plan.shape.batch, plan.shape.query_len, plan.shape.key_len};
}

}  // namespace

std::size_t workspace_bytes(const AttentionPlan& plan, int threads) {
  const AttentionPlan::Impl& impl = plan.impl();
  return std::max({bytes_of(impl, capacity(impl), threads, false, Reads::widened),
                   bytes_of(impl, capacity(impl), threads, false, Reads::stored),
                   bytes_of(impl, capacity(impl), threads, true, Reads::widened)});
}

void attend(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionOutputs& outputs,
            const CallResources& resources) {
  const AttentionPlan::Impl& impl = plan.impl();
  const Call call = call_of("attend", impl, inputs);
  const CallSizes sizes = check_inputs("attend", impl, call);
  check_outputs(impl, inputs, outputs, sizes);
  if (sizes.batch == 0 || sizes.query_len == 0) return;
  Executor& executor = resources.executor ? *resources.executor : default_executor();
  const bool wide = impl.compute_dtype() == DType::f64;
  const int threads = executor.thread_count();
  std::size_t bytes = bytes_of(impl, sizes, threads, false, reads_of(outputs));
  if (weights_apart(outputs)) bytes = std::max(bytes, bytes_of(impl, sizes, threads, true, Reads::widened));
  const std::span<std::byte> memory = workspace_of("attend", resources, bytes);
  wide ? run<double>(impl, call, outputs, sizes, executor, memory)
       : run<float>(impl, call, outputs, sizes, executor, memory);
}

void attend(const AttentionPlan& plan, ConstTensorView query, ConstTensorView key, ConstTensorView value,
            TensorView output) {
  attend(plan, AttentionInputs{.query = query, .key = key, .value = value},
         AttentionOutputs{.output = output});
}

}  // namespace fovea
