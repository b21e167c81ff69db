#include "fovea/nn/attention.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <utility>

namespace fovea::nn {
namespace {

using Start = ArgumentDeclaration::Start;

std::int64_t size_or(std::int64_t size, std::int64_t fallback) {
  return size == 0 ? fallback : size;
}

void expect(bool good, const char* argument, const std::string& expected, std::int64_t got) {
  if (!good) throw InvalidArgument("MultiHeadAttention", argument, expected, std::to_string(got));
}

AttentionOptions complete(AttentionOptions options, std::int64_t dim) {
  const std::int64_t heads = options.num_query_heads;
  expect(heads >= 1, "options.num_query_heads", "at least 1", heads);
  options.num_kv_heads = size_or(options.num_kv_heads, heads);
  expect(options.num_kv_heads >= 1 && heads % options.num_kv_heads == 0, "options.num_kv_heads",
         "a divisor of num_query_heads " + std::to_string(heads), options.num_kv_heads);
  if (options.head_dim == 0)
    expect(dim % heads == 0, "options.num_query_heads",
           "a divisor of dim " + std::to_string(dim) + " where head_dim is not given", heads);
  options.head_dim = size_or(options.head_dim, dim / heads);
  expect(options.head_dim >= 1, "options.head_dim", "at least 1", options.head_dim);
  options.value_dim = size_or(options.value_dim, options.head_dim);
  expect(options.value_dim >= 1, "options.value_dim", "at least 1", options.value_dim);
  options.memory_dim = size_or(options.memory_dim, dim);
  options.hidden = size_or(options.hidden, options.head_dim);
  return options;
}

const NamedTensor* named(const std::vector<NamedTensor>& list, const std::string& name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const NamedTensor& item) { return item.name == name; });
  return found == list.end() ? nullptr : &*found;
}

// The default shape of an argument: the sizes that a layer knows, and 1 where that is allowed. Empty if the
// shape depends on sizes of a call.
std::optional<Shape> shape_of_start(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes) {
  std::vector<std::int64_t> shape;
  for (const ArgumentAxis& axis : declaration.axes) {
    const bool known = axis.size == nullptr || axis.of(sizes) > 0;
    if (!known && axis.fit != ArgumentAxis::Fit::or_one) return std::nullopt;
    shape.push_back(known ? axis.of(sizes) : 1);
  }
  return Shape(shape);
}

Parameter& declare(ParameterSet& set, const std::string& name, Start start, const Shape& shape) {
  if (start == Start::xavier) return set.xavier(name, shape);
  Parameter& parameter = set.constant(name, shape, start == Start::one ? 1.0f : 0.0f);
  if (start == Start::alibi) {
    const std::vector<double> slopes = alibi_slopes(shape.count());
    std::copy(slopes.begin(), slopes.end(), parameter.value.data<float>());
  }
  return parameter;
}

bool is_packed(const MultiHeadAttention::Call& call) {
  return !call.query_starts.empty() || !call.key_starts.empty();
}

std::size_t entries_of(std::span<const std::int64_t> starts) {
  return starts.empty() ? 0 : starts.size() - 1;
}

}  // namespace

// The plans of the last few masks and shapes. Guarded by a mutex, because several threads may use a layer.
class MultiHeadAttention::Plans {
 public:
  AttentionPlan of(const AttentionSpec& spec, const AttentionShape& shape) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      const std::optional<AttentionPlan>& plan = plans_[i];
      if (plan && same(plan->shape(), shape) && plan->spec().dropout == spec.dropout &&
          plan->spec().mask == spec.mask) {
        std::rotate(plans_.begin(), plans_.begin() + static_cast<std::ptrdiff_t>(i),
                    plans_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        return *plans_.front();
      }
    }
    AttentionPlan plan = make_plan(spec, shape);
    std::rotate(plans_.begin(), plans_.end() - 1, plans_.end());
    plans_.front() = plan;
    ++made_;
    return plan;
  }
  std::int64_t made() {
    const std::lock_guard lock(mutex_);
    return made_;
  }

 private:
  static bool same(const AttentionShape& a, const AttentionShape& b) {
    return a.batch == b.batch && a.query_len == b.query_len && a.key_len == b.key_len;
  }
  std::mutex mutex_;
  std::int64_t made_ = 0;
  std::array<std::optional<AttentionPlan>, 4> plans_;  // the last used first
};

MultiHeadAttention::MultiHeadAttention(ParameterSet& set, const std::string& name, std::int64_t dim,
                                       const AttentionOptions& options, const MultiHeadAttention* shared)
    : options_(complete(options, dim)),
      query_(set, name + ".q_proj", dim, options_.num_query_heads * options_.head_dim, options_.biases.query),
      key_(set, name + ".k_proj", options_.memory_dim, options_.num_kv_heads * options_.head_dim,
           options_.biases.key),
      value_(set, name + ".v_proj", options_.memory_dim, options_.num_kv_heads * options_.value_dim,
             options_.biases.value),
      output_(set, name + ".out_proj", options_.num_query_heads * options_.value_dim, dim,
              options_.biases.output),
      masks_(!(options_.spec.mask == Mask(Everything{}))),
      plans_(std::make_shared<Plans>()) {
  declare_arguments(set, name, shared);
  const ScoreDefinition& score = definition(options_.spec.score);
  // docs/decisions/0019: without a scale a product's softmax becomes hard within a few updates.
  if (score.pair == PairKind::product && !score.scaled_by_dim && !options_.spec.scale && score.key_rows < 0 &&
      score.query.norm == RowMap::Norm::none)
    scale_score({query_.weight, key_.weight}, options_.head_dim);
}

void MultiHeadAttention::declare_arguments(ParameterSet& set, const std::string& name,
                                           const MultiHeadAttention* shared) {
  const std::vector<DeclaredArgument> declared = declared_arguments(options_.spec);
  const ArgumentSizes sizes{.num_query_heads = options_.num_query_heads,
                            .query_dim = options_.head_dim,
                            .key_dim = options_.head_dim,
                            .hidden = options_.hidden};
  const auto refuse_unknown = [&](const char* list, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& tensor : tensors) {
      if (std::any_of(declared.begin(), declared.end(),
                      [&](const DeclaredArgument& argument) { return argument.name == tensor.name; }))
        continue;
      std::string names;
      for (const DeclaredArgument& argument : declared) names += (names.empty() ? "" : ", ") + argument.name;
      throw InvalidArgument(
          "MultiHeadAttention", std::string("options.") + list,
          names.empty() ? "none: the spec has no arguments" : "arguments of the spec: " + names, tensor.name);
    }
  };
  refuse_unknown("learned", options_.learned);
  refuse_unknown("fixed", options_.fixed);
  for (const auto& [full_name, declaration] : declared) {
    if (const NamedTensor* fixed = named(options_.fixed, full_name)) {
      arguments_.push_back({.name = full_name, .fixed = fixed->value});
      continue;
    }
    const NamedTensor* told = named(options_.learned, full_name);
    const bool starts = declaration.start != Start::told && declaration.start != Start::given &&
                        declaration.absent == ArgumentDeclaration::Absent::refused && declaration.learned;
    if (!told && !starts) continue;
    if (Parameter* parameter = shared ? shared->argument(full_name) : nullptr) {
      arguments_.push_back({.name = full_name, .learned = parameter});
      continue;
    }
    const std::optional<Shape> shape = told ? told->value.shape() : shape_of_start(declaration, sizes);
    if (!shape) continue;  // of the lengths of a call: it comes with each
    Parameter& parameter =
        declare(set, name + "." + full_name, told ? Start::zero : declaration.start, *shape);
    if (told) std::copy_n(told->value.data<float>(), shape->count(), parameter.value.data<float>());
    arguments_.push_back({.name = full_name, .learned = &parameter});
  }
}

std::int64_t MultiHeadAttention::plans_made() const {
  return plans_ ? plans_->made() : 0;
}

Parameter* MultiHeadAttention::argument(std::string_view name) const {
  for (const Argument& argument : arguments_) {
    if (argument.name == name) return argument.learned;
  }
  return nullptr;
}

AttentionShape MultiHeadAttention::shape_of(std::int64_t batch, std::int64_t query_len,
                                            std::int64_t key_len) const {
  return {.batch = batch,
          .num_query_heads = options_.num_query_heads,
          .num_kv_heads = options_.num_kv_heads,
          .query_len = query_len,
          .key_len = key_len,
          .head_dim = options_.head_dim,
          .value_dim = options_.value_dim,
          .hidden = definition(options_.spec.score).has_hidden() ? options_.hidden : 0};
}

autograd::AttentionCall MultiHeadAttention::engine_call(Context& context, const Call& call,
                                                        const AttentionShape& shape) const {
  autograd::AttentionCall engine;
  AttentionSpec spec = options_.spec;
  spec.mask = masks_ ? options_.spec.mask & call.mask : call.mask;
  if (!context.training()) spec.dropout = {};
  engine.plan = plans_->of(spec, shape);
  engine.num_query_heads = options_.num_query_heads;
  engine.num_kv_heads = options_.num_kv_heads;
  engine.key_lengths = call.key_lengths;
  engine.query_offset = call.query_offset;
  engine.query_offsets = call.query_offsets;
  engine.query_starts = call.query_starts;
  engine.key_starts = call.key_starts;
  engine.weights = call.weights;
  for (const Argument& argument : arguments_)
    engine.arguments.push_back(
        {argument.name, argument.learned ? context.use(*argument.learned) : Var(argument.fixed)});
  engine.arguments.insert(engine.arguments.end(), call.arguments.begin(), call.arguments.end());
  // A stream of its own: the golden-ratio multiple keeps it apart from the element-wise dropouts of the same
  // step.
  if (spec.dropout.rate > 0.0)
    engine.dropout_seed = context.dropout_seed ^ (0x9E3779B97F4A7C15u * ++context.dropout_stream);
  engine.spec = std::move(spec);
  return engine;
}

Var MultiHeadAttention::rotated_queries(const Var& q, const Call& call) const {
  if (is_packed(call)) {
    const std::vector<std::int64_t> same(entries_of(call.query_starts), call.query_offset);
    return autograd::rotate_packed(
        q, *options_.rope, options_.num_query_heads, call.query_starts,
        call.query_offsets.empty() ? std::span<const std::int64_t>(same) : call.query_offsets);
  }
  if (call.query_offsets.empty())
    return autograd::rotate(q, *options_.rope, options_.num_query_heads, call.query_offset);
  return autograd::rotate(q, *options_.rope, options_.num_query_heads, call.query_offsets);
}

Var MultiHeadAttention::rotated_keys(const Var& k, const Call& call) const {
  if (!is_packed(call)) return autograd::rotate(k, *options_.rope, options_.num_kv_heads);
  const std::vector<std::int64_t> zeros(entries_of(call.key_starts), 0);
  return autograd::rotate_packed(k, *options_.rope, options_.num_kv_heads, call.key_starts, zeros);
}

Var MultiHeadAttention::operator()(Context& context, const Var& x, const Var& memory,
                                   const Call& call) const {
  Var q = query_(context, x), k = key_(context, memory);
  if (options_.rope) {
    q = rotated_queries(q, call);
    k = rotated_keys(k, call);
  }
  const AttentionShape shape =
      is_packed(call) ? shape_of(std::max<std::int64_t>(std::ssize(call.query_starts) - 1, 1),
                                 longest_entry(call.query_starts), longest_entry(call.key_starts))
                      : shape_of(q.size(0), q.size(1), k.size(1));
  return output_(context,
                 autograd::attention(engine_call(context, call, shape), q, k, value_(context, memory)));
}

Var MultiHeadAttention::attend_projected(Context& context, const Var& x, const ProjectedKeys& keys,
                                         const Call& call) const {
  if (is_packed(call))
    throw InvalidArgument("MultiHeadAttention::attend_projected", "call.query_starts",
                          "none: keys computed before are a padded batch", "those of a packed batch");
  // The rows in use of a longer buffer are contiguous only for a batch of one, so the engine is called on
  // strided views. The plan is made for the whole buffer and serves until the buffer grows. A mask made of
  // data is different in each step, and has no rows for later keys.
  const std::int64_t heads = options_.num_query_heads, kv_heads = options_.num_kv_heads,
                     capacity = keys.key.size(1);
  Var q = query_(context, x);
  if (options_.rope) q = rotated_queries(q, call);
  const std::int64_t batch = x.size(0), rows = x.size(1);
  const autograd::AttentionCall engine = engine_call(
      context, call, shape_of(batch, rows, call.mask.node().text_is_all() ? capacity : keys.length));
  Tensor result(DType::f32, {batch, rows, heads * options_.value_dim});
  const auto view = [&](const Tensor& tensor, std::int64_t length, std::int64_t reserved, std::int64_t count,
                        std::int64_t size) {
    const std::int64_t strides[] = {reserved * count * size, size, count * size, 1};
    return TensorView(tensor.raw(), DType::f32, Shape{batch, count, length, size}, strides);
  };
  AttentionOutputs outputs{.output = view(result, rows, rows, heads, options_.value_dim)};
  if (call.weights) {
    *call.weights = Tensor(DType::f32, {batch, heads, rows, keys.length});
    outputs.weights = *call.weights;
  }
  Arguments arguments;
  for (const autograd::AttentionArgument& argument : engine.arguments)
    arguments.set(argument.name, argument.value.value());
  AttentionInputs inputs{.query = view(q.value(), rows, rows, heads, options_.head_dim),
                         .key = view(keys.key, keys.length, capacity, kv_heads, options_.head_dim),
                         .value = view(keys.value, keys.length, capacity, kv_heads, options_.value_dim),
                         .arguments = std::move(arguments),
                         .key_lengths = call.key_lengths,
                         .query_offsets = call.query_offsets};
  if (call.query_offsets.empty() || call.query_offset != 0) inputs.query_offset = call.query_offset;
  attend(*engine.plan, inputs, outputs);
  return output_(context, Var(result));
}

namespace {

// Room for `needed` rows: grown by doubling, so that appending one row a step copies each row a constant
// number of times.
void reserve(Tensor& rows, std::int64_t batch, std::int64_t used, std::int64_t needed, std::int64_t capacity,
             std::int64_t dim) {
  if (rows && rows.size(1) >= needed) return;
  const std::int64_t room = std::max({needed, capacity, rows ? 2 * rows.size(1) : 0});
  Tensor grown(DType::f32, {batch, room, dim});
  for (std::int64_t b = 0; rows && b < batch; ++b) {
    std::copy_n(rows.data<float>() + b * rows.size(1) * dim, used * dim,
                grown.data<float>() + b * room * dim);
  }
  rows = grown;
}

void append_rows(Tensor& rows, const Tensor& added, std::int64_t used) {
  const std::int64_t dim = rows.size(2), count = added.size(1);
  for (std::int64_t b = 0; b < added.size(0); ++b) {
    std::copy_n(added.data<float>() + b * count * dim, count * dim,
                rows.data<float>() + (b * rows.size(1) + used) * dim);
  }
}

}  // namespace

void MultiHeadAttention::append(Context& context, const Var& memory, ProjectedKeys& keys,
                                std::int64_t capacity) const {
  Var turned = key_(context, memory);
  if (options_.rope) turned = autograd::rotate(turned, *options_.rope, options_.num_kv_heads, keys.read);
  const Tensor k = turned.value(), v = value_(context, memory).value();
  reserve(keys.key, k.size(0), keys.length, keys.length + k.size(1), capacity, k.size(2));
  reserve(keys.value, v.size(0), keys.length, keys.length + v.size(1), capacity, v.size(2));
  append_rows(keys.key, k, keys.length);
  append_rows(keys.value, v, keys.length);
  keys.length += k.size(1);
  keys.read += k.size(1);
}

}  // namespace fovea::nn
