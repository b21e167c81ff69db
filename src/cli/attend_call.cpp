#include "cli/attend_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/attend_mods.h"
#include "cli/npy.h"

namespace fovea::cli {
namespace {

Tensor read_if(const std::string& path) {
  return path.empty() ? Tensor() : read_npy(path);
}

Tensor read_axes(const std::string& path, const char* flag, int rank, const char* axes) {
  if (path.empty()) return {};
  Tensor tensor = read_npy(path);
  if (tensor.rank() != rank) refuse(flag, fmt::format("{} axes {}", rank, axes), to_string(tensor.shape()));
  return tensor;
}

void expect_size(const char* flag, const Tensor& tensor, int axis, const char* what, std::int64_t expected) {
  if (tensor && tensor.size(axis) != expected)
    refuse(flag, fmt::format("a {} of {}", what, expected), to_string(tensor.shape()));
}

void read_operands(const AttendOptions& o, AttendCall& call) {
  constexpr const char* four = "[batch, heads, length, dim]";
  call.query = read_axes(o.query, "--query", 4, four);
  call.key = o.is_latent() ? read_axes(o.key, "--key", 3, "[batch, key_len, latent_dim + rotary_dim]")
                           : read_axes(o.key, "--key", 4, four);
  call.value = read_axes(o.value, "--value", 4, four);
  call.query_rotary = read_axes(o.query_rotary, "--query-rotary", 4, four);
  call.W_UK = read_axes(o.latent_key, "--latent-key", 3, "[heads, content_dim, latent_dim]");
  call.W_UV = read_axes(o.latent_value, "--latent-value", 3, "[heads, value_dim, latent_dim]");
  call.lambda = read_if(o.differential);
  call.gate = read_if(o.gate);
  call.sink = read_if(o.sink);
  call.transitions = read_if(o.transitions);
  call.d_output = read_if(o.grad);
  call.d_weights = read_if(o.grad_weights);
  call.advantage = read_if(o.advantage);
  expect_size("--key", call.key, 0, "batch, as --query has,", call.query.size(0));
  expect_size("--value", call.value, 0, "batch, as --query has,", call.query.size(0));
  if (!call.key || o.is_latent()) return;
  const bool halves = bool(call.lambda);
  expect_size("--value", call.value, 1,
              halves ? "number of heads, half of what --key has," : "number of heads, as --key has,",
              halves ? call.key.size(1) / 2 : call.key.size(1));
  expect_size("--value", call.value, 2, "length, as --key has,", call.key.size(2));
}

void read_score(const AttendOptions& o, AttendCall& call) {
  ScoreParameters& p = call.inputs.parameters;
  for (const std::string* path :
       {&o.bilinear, &o.additive_query, &o.low_rank_query, &o.location, &o.concat_matrix})
    if (!path->empty()) call.W = read_npy(*path);
  for (const std::string* path : {&o.additive_key, &o.low_rank_key})
    if (!path->empty()) call.U = read_npy(*path);
  call.v = read_if(o.additive_vector);
  call.b = read_if(o.additive_bias);
  call.w = read_if(o.coverage_vector);
  if (call.W) p.W = call.W;
  if (call.U) p.U = call.U;
  if (call.v) p.v = call.v;
  if (!o.concat_matrix.empty()) {
    const std::int64_t columns = call.query.size(3) + call.key.size(3);
    if (call.W.rank() != 2 || call.W.size(1) != columns)
      refuse("--concat-matrix", fmt::format("[hidden, {}], the elements of a query and a key", columns),
             to_string(call.W.shape()));
    p = concat_parameters(call.W, call.v, call.query.size(3));
  }
  if (call.b) p.b = call.b;
  if (call.w) p.w = call.w;
}

AttentionShape shape_of(const AttendOptions& o, const AttendCall& call) {
  const Tensor &q = call.query, &k = call.key, &v = call.value;
  const std::int64_t parts = call.lambda ? 2 : 1;
  if (q.size(1) % parts != 0)
    refuse("--query", "an even number of heads with --differential", to_string(q.shape()));
  if (k && !o.is_latent() && k.size(1) % parts != 0)
    refuse("--key", "an even number of heads with --differential", to_string(k.shape()));
  AttentionShape shape{.batch = q.size(0),
                       .num_query_heads = q.size(1) / parts,
                       .num_kv_heads = q.size(1) / parts,
                       .query_len = q.size(2),
                       .key_len = 0,
                       .head_dim = q.size(3),
                       .value_dim = v ? v.size(3) : 0,
                       .key_dim = 0,
                       .hidden = 0};
  if (o.is_latent()) {
    shape.key_len = k.size(1);
    shape.value_dim = call.W_UV.size(1);
  } else if (k) {
    shape.num_kv_heads = k.size(1) / parts;
    shape.key_len = k.size(2);
    shape.key_dim = k.size(3);
  } else {
    if (v) shape.num_kv_heads = v.size(1);
    shape.key_len = v ? v.size(2) : call.W.size(0);
  }
  if (call.v) shape.hidden = call.v.count();
  if (std::holds_alternative<LowRankBilinear>(call.spec.score)) shape.hidden = call.W.size(0);
  return shape;
}

// --rope: copies of query and key, turned; their gradients are turned back.
void turn(const AttendOptions& o, AttendCall& call, Executor* executor) {
  const Tensor &query = call.query, &key = call.key;
  call.turned_query = query;
  call.turned_key = key;
  if (o.rope.empty()) return;
  const Rope rope = parse_flag("--rope", parse_rope, o.rope);
  const std::int64_t head_dim = std::min(query.size(3), key.size(3)), offset = call.query_offset;
  if (rope.rotary_dim > head_dim)
    refuse("--rope", fmt::format("at most the {} elements of a head", head_dim), o.rope);
  if (offset < 0 || offset > std::int64_t{1} << 40)
    refuse("--query-offset", "an offset in [0, 2^40] with --rope", std::to_string(offset));
  call.rope.emplace(rope, std::max(key.size(2), offset + query.size(2)), query.dtype(), executor);
  call.turned_query = Tensor(query.dtype(), query.shape());
  call.turned_key = Tensor(key.dtype(), key.shape());
  rope_forward(*call.rope, query, offset, call.turned_query, executor);
  rope_forward(*call.rope, key, 0, call.turned_key, executor);
}

}  // namespace

AttendCall read_attend_call(const AttendOptions& o, const Score& score, const Normalizer& normalizer,
                            Executor* executor) {
  AttendCall call;
  call.spec.score = score;
  call.spec.scale = o.scale;
  call.spec.mask = parse_flag("--mask", parse_mask, o.mask);
  call.spec.normalizer = normalizer;
  call.spec.dropout.rate = o.dropout.value_or(0.0);
  read_operands(o, call);
  read_score(o, call);
  call.shape = shape_of(o, call);
  call.query_offset = o.query_offset.value_or(call.shape.key_len - call.shape.query_len);
  read_mods(o, call, executor);
  turn(o, call, executor);
  AttentionInputs& in = call.inputs;
  if (!o.is_latent()) {
    in.query = call.turned_query;
    if (call.turned_key) in.key = call.turned_key;
    if (call.value) in.value = call.value;
  }
  if (call.sink) in.sink = call.sink;
  if (call.transitions) in.transitions = call.transitions;
  in.mod_arguments = call.mod_views;
  in.weight_mod_arguments = call.weight_mod_views;
  in.query_offset = o.query_offset;
  in.dropout_seed = o.dropout_seed.value_or(0);
  in.sample_seed = o.sample_seed.value_or(0);
  return call;
}

}  // namespace fovea::cli
