#include "fovea/nn/attention.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "autograd/bf16_plan.h"
#include "cache/checks.h"
#include "fovea/attention/argument.h"
#include "fovea/attention/mask_definition.h"
#include "fovea/attention/score_definition.h"
#include "fovea/core/executor.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"
#include "nn/made.h"
#include "nn/planned_size.h"

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

bool reads_keys(const AttentionSpec& spec) {
  return definition(spec.score).key_rows < 0;
}

// Rows that stand for several rows have no position for a mask, a mod or a rotation.
void check_compressed(const AttentionOptions& options) {
  const auto refuse = [&](const char* argument, const std::string& got) {
    throw InvalidArgument("MultiHeadAttention", std::string("options.") + argument,
                          std::string("none beside the compression '") + name_of(*options.compression) +
                              "', whose rows have no positions",
                          got);
  };
  if (options.rope) refuse("rope", "rotary positions");
  if (!options.spec.mods.empty()) refuse("spec.mods", to_string(options.spec.mods.front()));
  if (!(options.spec.mask == Mask(Everything{}))) refuse("spec.mask", to_string(options.spec.mask));
  if (!reads_keys(options.spec)) refuse("spec.score", "a score that reads positions in the place of keys");
}

void refuse_compression(const char* function, const AttentionOptions& options) {
  if (options.compression)
    throw InvalidArgument(std::string("MultiHeadAttention::") + function, "options.compression",
                          "none: a cache keeps the rows that were read, and a compression makes others",
                          name_of(*options.compression));
}

bool is_packed(const MultiHeadAttention::Call& call) {
  return !call.query_starts.empty() || !call.key_starts.empty();
}

std::size_t entries_of(std::span<const std::int64_t> starts) {
  return starts.empty() ? 0 : starts.size() - 1;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(ParameterSet& set, const std::string& name, std::int64_t dim,
                                       const AttentionOptions& options, const MultiHeadAttention* shared)
    : options_(complete(options, dim)),
      query_(set, name + ".q_proj", dim, options_.num_query_heads * options_.head_dim, options_.biases.query,
             query_key_value_gain),
      gate_(options_.output_gate == AttentionOptions::OutputGate::with
                ? Linear(set, name + ".gate_proj", dim, options_.num_query_heads * options_.value_dim,
                         options_.biases.query)
                : Linear()),
      key_(reads_keys(options_.spec)
               ? Linear(set, name + ".k_proj", options_.memory_dim, options_.num_kv_heads * options_.head_dim,
                        options_.biases.key, query_key_value_gain)
               : Linear()),
      value_(set, name + ".v_proj", options_.memory_dim, options_.num_kv_heads * options_.value_dim,
             options_.biases.value, query_key_value_gain),
      output_(set, name + ".out_proj", options_.num_query_heads * options_.value_dim, dim,
              options_.biases.output),
      masks_(!(options_.spec.mask == Mask(Everything{}))),
      plans_(std::make_shared<autograd::PlanCache>()) {
  if (options_.compression) {
    check_compressed(options_);
    compressor_.emplace(set, name + ".compression", options_.memory_dim, *options_.compression);
  }
  if (options_.query_key_norm) {
    const auto dim = [&](std::int64_t heads) { return options_.head_dim * normed_together(heads); };
    query_norm_.emplace(set, name + ".q_norm", dim(options_.num_query_heads), *options_.query_key_norm);
    if (key_.weight)
      key_norm_.emplace(set, name + ".k_norm", dim(options_.num_kv_heads), *options_.query_key_norm);
  }
  declare_arguments(set, name, shared);
  const ScoreDefinition& score = definition(options_.spec.score);
  // docs/decisions/0019: without a scale a product's softmax becomes hard within a few updates.
  if (score.pair == PairKind::product && !score.scaled_by_dim && !options_.spec.scale && score.key_rows < 0 &&
      score.query.norm == RowMap::Norm::none)
    scale_score({query_.weight, key_.weight}, options_.head_dim);
}

std::int64_t MultiHeadAttention::normed_together(std::int64_t heads) const {
  return options_.query_key_norm_of == AttentionOptions::NormOf::all_heads ? heads : 1;
}

void MultiHeadAttention::share_plans(const MultiHeadAttention& other) {
  const auto parts = [](const AttentionOptions& o) {
    return std::tie(o.num_query_heads, o.num_kv_heads, o.head_dim, o.value_dim, o.hidden, o.precision,
                    o.kernel);
  };
  if (parts(options_) == parts(other.options_) && autograd::are_same(options_.spec, other.options_.spec))
    plans_ = other.plans_;
}

std::int64_t MultiHeadAttention::plans_made() const {
  return plans_ ? plans_->made() : 0;
}

namespace {

// x [B, L, parts * dim], each part of a row normalised by itself.
Var normalized_parts(Context& context, const std::optional<Norm>& norm, const Var& x, std::int64_t parts) {
  if (!norm) return x;
  const Shape flat = x.shape();
  return reshape((*norm)(context, reshape(x, {flat[0], flat[1], parts, flat[2] / parts})), flat);
}

// The number of keys of each entry.
KeptVector<std::int64_t> keys_of_entries(const MultiHeadAttention::Call& call, const Var& memory) {
  if (!is_packed(call))
    return KeptVector<std::int64_t>(static_cast<std::size_t>(memory.size(0)), memory.size(1));
  KeptVector<std::int64_t> keys;
  keys.reserve(entries_of(call.key_starts));
  for (std::size_t e = 0; e < entries_of(call.key_starts); ++e)
    keys.push_back(call.key_starts[e + 1] - call.key_starts[e]);
  return keys;
}

constexpr std::span<const std::int64_t> none;

// The position behind the last row of each entry: of `rows` rows, or as `starts` says.
KeptVector<std::int64_t> ends_of(std::span<const std::int64_t> first, std::span<const std::int64_t> starts,
                                 std::int64_t rows) {
  KeptVector<std::int64_t> ends(first.begin(), first.end());
  for (std::size_t e = 0; e < ends.size(); ++e) ends[e] += starts.empty() ? rows : starts[e + 1] - starts[e];
  return ends;
}

}  // namespace

MultiHeadAttention::Projected MultiHeadAttention::projected(Context& context, const Var& rows,
                                                            std::initializer_list<const Linear*> layers,
                                                            DType dtype) const {
  KeptVector<autograd::LinearWeights> weights;
  weights.reserve(layers.size());
  for (const Linear* layer : layers) weights.push_back(layer->weights(context));
  KeptVector<Var> made = dtype == DType::bf16 ? autograd::linears_in_bf16(rows, weights)
                                              : autograd::linears(rows, weights, context.products);
  Projected result;
  std::size_t n = 0;
  for (const Linear* layer : layers) {
    Var& one = made[n++];
    if (layer == &query_)
      result.queries = normalized_parts(context, query_norm_, one,
                                        options_.num_query_heads / normed_together(options_.num_query_heads));
    else if (layer == &key_)
      result.keys = normalized_parts(context, key_norm_, one,
                                     options_.num_kv_heads / normed_together(options_.num_kv_heads));
    else
      result.values = one;
  }
  return result;
}

MultiHeadAttention::Projected MultiHeadAttention::projected(Context& context,
                                                            const std::array<const Var*, 3>& rows,
                                                            DType dtype) const {
  const Var &x = *rows[0], &key_rows = *rows[1], &value_rows = *rows[2];
  const auto same = [](const Var& a, const Var& b) {
    return a.node() == b.node() && a.value().raw() == b.value().raw() && a.shape() == b.shape();
  };
  const bool keys = reads_keys(options_.spec);
  const bool together = keys && same(key_rows, value_rows);
  if (together && same(x, key_rows)) return projected(context, x, {&query_, &key_, &value_}, dtype);
  Projected result = projected(context, x, {&query_}, dtype);
  if (together) {
    const Projected memory = projected(context, key_rows, {&key_, &value_}, dtype);
    return {result.queries, memory.keys, memory.values};
  }
  if (keys) result.keys = projected(context, key_rows, {&key_}, dtype).keys;
  result.values = projected(context, value_rows, {&value_}, dtype).values;
  return result;
}

Var MultiHeadAttention::finished(Context& context, const Var& x, const Var& attended) const {
  if (!gate_.weight) return output_(context, attended);
  return output_(context, autograd::multiply(attended, autograd::sigmoid(gate_(context, x))));
}

Var MultiHeadAttention::rotated_queries(const Var& q, const Call& call,
                                        std::span<const std::int64_t> keys) const {
  const std::int64_t heads = options_.num_query_heads;
  const bool packed = is_packed(call);
  KeptVector<std::int64_t> first(call.query_offsets.begin(), call.query_offsets.end());
  const std::size_t entries = packed ? std::min(keys.size(), entries_of(call.query_starts)) : keys.size();
  for (std::size_t e = first.size(); e < entries; ++e) {
    const std::int64_t rows = packed ? call.query_starts[e + 1] - call.query_starts[e] : q.size(1);
    first.push_back(call.query_offset.value_or(keys[e] - rows));
  }
  const KeptVector<std::int64_t> ends = ends_of(first, packed ? call.query_starts : none, q.size(1));
  const RopeTable table = options_.rope->table(ends, first);
  return packed ? autograd::rotate_packed(q, table, heads, call.query_starts, first)
                : autograd::rotate(q, table, heads, first);
}

Var MultiHeadAttention::rotated_keys(const Var& k, const Call& call) const {
  const std::int64_t heads = options_.num_kv_heads;
  if (!is_packed(call)) return autograd::rotate(k, options_.rope->table(k.size(1)), heads);
  KeptVector<std::int64_t> first(entries_of(call.key_starts), 0);
  const RopeTable table = options_.rope->table(ends_of(first, call.key_starts, 0), first);
  return autograd::rotate_packed(k, table, heads, call.key_starts, first);
}

Var MultiHeadAttention::operator()(Context& context, const Var& x, const Var& memory,
                                   const Call& call) const {
  check_made("MultiHeadAttention", "options", query_.weight);
  if (!compressor_) return attend_rows(context, x, memory, memory, call);
  const auto refuse = [&](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("MultiHeadAttention", std::string("call.") + argument,
                          expected + " beside the compression '" + name_of(compressor_->options()) + "'",
                          got);
  };
  const bool padded = call.mask == Mask(KeyLengths{});
  if (!padded && !(call.mask == Mask(Everything{})))
    refuse("mask", "everything or lengths", to_string(call.mask));
  if (is_packed(call)) refuse("key_starts", "none", "a packed batch");
  if (call.key_log_sizes) refuse("key_log_sizes", "none", to_string(call.key_log_sizes.shape()));
  RowCompressor::Rows rows =
      (*compressor_)(context, memory, padded ? call.key_lengths : std::span<const std::int64_t>());
  Call compressed = call;
  compressed.mask = rows.lengths.empty() ? Mask(Everything{}) : Mask(KeyLengths{});
  compressed.key_lengths = rows.lengths;
  compressed.key_log_sizes = rows.log_sizes;
  return attend_rows(context, x, rows.keys, rows.values, compressed);
}

namespace {

// What the products of a layer multiply: those of the training, or of its packed weights.
autograd::Operands operands_of_layer(const Context& context, const Linear& layer) {
  if (context.tape) return context.tape->operands();
  return layer.takes_bf16(context) ? autograd::Operands::bf16 : autograd::Operands::f32;
}

}  // namespace

bool MultiHeadAttention::takes_bf16(const Context& context, RowsOf rows) const {
  const auto takes = [&](const Linear& layer) { return !layer.weight || layer.takes_bf16(context); };
  const bool of_queries = takes(query_) && takes(gate_), of_memory = takes(key_) && takes(value_);
  return !compressor_ && (of_queries || rows == RowsOf::memory) && (of_memory || rows == RowsOf::queries);
}

bool MultiHeadAttention::projects_for_engine(const Call& call, const AttentionPlan& plan) const {
  return plan.dtype() == DType::bf16 && !call.keys && !options_.rope && !query_norm_ && !key_norm_ &&
         !gate_.weight;
}

// Keys are made of `key_rows`, values of `value_rows`.
Var MultiHeadAttention::attend_rows(Context& context, const Var& x, const Var& key_rows,
                                    const Var& value_rows, const Call& call) const {
  const AttentionShape shape =
      is_packed(call) ? shape_of(std::max<std::int64_t>(std::ssize(call.query_starts) - 1, 1),
                                 longest_entry(call.query_starts), longest_entry(call.key_starts))
                      : shape_of(x.size(0), x.size(1), key_rows.size(1));
  // Without gradients few keys lose nothing in bf16. A rule by the longest entry would let a batch decide the
  // type of all its entries.
  const autograd::Operands products = operands_of_layer(context, query_),
                           operands = context.tape ? autograd::attention_operands(products, shape) : products;
  const autograd::AttentionCall engine = engine_call(context, call, shape, operands);
  const bool in_bf16 = !context.tape && projects_for_engine(call, *engine.plan);
  auto [q, k, v] = projected(context, {&x, &key_rows, &value_rows}, in_bf16 ? DType::bf16 : DType::f32);
  if (call.keys) *call.keys = k.value();
  if (options_.rope) {
    q = rotated_queries(q, call, keys_of_entries(call, key_rows));
    if (!k.empty()) k = rotated_keys(k, call);
  }
  return finished(context, x, autograd::attention(engine, q, k, v));
}

CacheLayer MultiHeadAttention::cache_layer(const CacheStore& store) const {
  refuse_compression("cache_layer", options_);
  return {.num_kv_heads = options_.num_kv_heads,
          .head_dim = options_.head_dim,
          .value_dim = options_.value_dim,
          .store = store};
}

void MultiHeadAttention::append(Context& context, const Var& memory, const CacheEntries& to,
                                std::span<const std::int64_t> starts, Var* queries) const {
  check_made("MultiHeadAttention", "options", query_.weight);
  const auto entries = static_cast<std::int64_t>(to.sequences.size());
  const std::int64_t held = starts.empty() ? memory.size(0) : std::ssize(starts) - 1;
  if (entries != held)
    throw InvalidArgument("MultiHeadAttention::append", "to.sequences",
                          std::to_string(held) + ", one for each entry", std::to_string(entries));
  cache::check_different(to.sequences, [](const char* expected, const char* got) {
    throw InvalidArgument("MultiHeadAttention::append", "to.sequences", expected, got);
  });
  const Projected made = queries ? projected(context, memory, {&query_, &key_, &value_})
                                 : projected(context, memory, {&key_, &value_});
  if (queries) *queries = made.queries;
  Var keys = made.keys;
  if (options_.rope) {
    KeptVector<std::int64_t> first;
    for (const Sequence* sequence : to.sequences)
      first.push_back(to.cache.length(*sequence) + to.cache.pending(to.layer, *sequence));
    const RopeTable table = options_.rope->table(ends_of(first, starts, memory.size(1)), first);
    keys = starts.empty() ? autograd::rotate(keys, table, options_.num_kv_heads, first)
                          : autograd::rotate_packed(keys, table, options_.num_kv_heads, starts, first);
  }
  const Tensor k = keys.value(), v = made.values.value();
  static constexpr ProfileLabel label{"keys and values kept", ProfilePart::attention};
  const ProfileSpan span(label, {.bytes = 8.0 * static_cast<double>(k.count() + v.count())});
  const auto rows_of = [&](const Tensor& rows, std::size_t entry, std::int64_t dim) {
    const std::int64_t width = options_.num_kv_heads * dim, length = rows.size(1);
    const std::int64_t first = starts.empty() ? static_cast<std::int64_t>(entry) * length : starts[entry];
    const std::int64_t count = starts.empty() ? length : starts[entry + 1] - first;
    const std::int64_t strides[] = {count * width, dim, width, 1};
    return ConstTensorView(reinterpret_cast<const std::byte*>(rows.data<float>() + first * width), DType::f32,
                           Shape{1, options_.num_kv_heads, count, dim}, strides);
  };
  // The rows of a batch are as many bytes as a product writes: 2 MB of opus-mt's memory a layer.
  constexpr std::int64_t least_parallel = 1 << 16;  // numbers
  Executor& executor = k.count() + v.count() < least_parallel ? serial_executor() : default_executor();
  executor.parallel_for(std::ssize(to.sequences), [&](std::int64_t unit, int) {
    const auto e = static_cast<std::size_t>(unit);
    to.cache.append(to.layer, *to.sequences[e], rows_of(k, e, options_.head_dim),
                    rows_of(v, e, options_.value_dim));
  });
}

namespace {

// A mask with a number for each entry fits one batch alone.
bool fits(const Mask& mask, const AttentionShape& shape) {
  try {
    mask.node().validate(shape);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace

Var MultiHeadAttention::attend_cached(Context& context, const Var& x, std::span<const KeyValueView> keys,
                                      const Call& call) const {
  check_made("MultiHeadAttention", "options", query_.weight);
  std::int64_t longest = 1;
  for (const KeyValueView& view : keys) longest = std::max(longest, view.length);
  Var q = call.queries.empty() ? projected(context, x, {&query_}).queries : call.queries;
  if (options_.rope) {
    KeptVector<std::int64_t> lengths;
    for (const KeyValueView& view : keys) lengths.push_back(view.length);
    q = rotated_queries(q, call, lengths);
  }
  const std::int64_t entries = std::ssize(keys),
                     rows = call.query_starts.empty() ? x.size(1) : longest_entry(call.query_starts);
  AttentionShape shape = with_room(shape_of(entries, rows, longest));
  // A mask made of data has no rows for later keys.
  const std::int64_t most = std::min(options_.spec.mask.node().most_keys(), call.mask.node().most_keys());
  shape.key_len = std::max(std::min(shape.key_len, most), longest);
  shape.query_len = std::max(std::min(shape.query_len, shape.key_len), rows);
  if (!fits(options_.spec.mask, shape) || !fits(call.mask, shape)) shape.batch = entries;
  // The rows of a cache are f32.
  autograd::AttentionCall engine = engine_call(context, call, shape, autograd::Operands::f32);
  engine.cache = keys;
  return finished(context, x, autograd::attention(engine, q, {}, {}));
}

}  // namespace fovea::nn
