#include "cli/attend_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/attend_mods.h"
#include "fovea/files/npy.h"

namespace fovea::cli {
namespace {

Tensor read_if(const std::string& path) {
  return path.empty() ? Tensor() : files::read_npy(path);
}

Tensor read_axes(const std::string& path, const char* flag, int rank, const char* axes) {
  if (path.empty()) return {};
  Tensor tensor = files::read_npy(path);
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

// Reads the arguments of the score and of the normaliser: from the flags for one of them, and from
// --argument, which may name any.
void read_arguments(const AttendOptions& o, AttendCall& call) {
  Arguments& arguments = call.inputs.arguments;
  const std::pair<const std::string*, const char*> files[] = {{&o.bilinear, "score.W"},
                                                              {&o.additive_query, "score.W"},
                                                              {&o.low_rank_query, "score.W"},
                                                              {&o.location, "score.W"},
                                                              {&o.additive_key, "score.U"},
                                                              {&o.low_rank_key, "score.U"},
                                                              {&o.additive_vector, "score.v"},
                                                              {&o.additive_bias, "score.b"},
                                                              {&o.coverage_vector, "score.w"},
                                                              {&o.sink, "normalizer.sink"},
                                                              {&o.transitions, "normalizer.transitions"}};
  for (const auto& [path, name] : files) {
    if (!path->empty()) arguments.set(name, files::read_npy(*path));
  }
  for (const std::string& text : o.arguments) {
    const auto [name, path] = split_mod(text);
    if (name.empty() || path.empty()) refuse("--argument", "NAME=FILE, such as score.W=w.npy", text);
    arguments.set(name, files::read_npy(path));
  }
  if (o.concat_matrix.empty()) return;
  call.concat = files::read_npy(o.concat_matrix);
  const std::int64_t columns = call.query.size(3) + call.key.size(3);
  if (call.concat.rank() != 2 || call.concat.size(1) != columns)
    refuse("--concat-matrix", fmt::format("[hidden, {}], the elements of a query and a key", columns),
           to_string(call.concat.shape()));
  const Arguments parts = concat_arguments(call.concat, arguments["score.v"], call.query.size(3));
  for (const char* name : {"score.W", "score.U"}) arguments.set(name, parts[name]);
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
    const ConstTensorView rows = call.inputs.arguments["score.W"];
    shape.key_len = v ? v.size(2) : rows.rank() > 0 ? rows.size(0) : 0;
  }
  shape.hidden = hidden_of(call.spec.score, call.inputs.arguments);
  return shape;
}

// One offset for each batch entry, whether the flag gave none, one or all.
std::vector<std::int64_t> offsets_of(const AttendOptions& o, const AttentionShape& shape) {
  const auto batch = static_cast<std::size_t>(shape.batch);
  if (o.query_offsets.empty()) return std::vector<std::int64_t>(batch, shape.key_len - shape.query_len);
  if (o.query_offsets.size() == 1) return std::vector<std::int64_t>(batch, o.query_offsets.front());
  if (o.query_offsets.size() != batch)
    refuse("--query-offset", fmt::format("one offset, or one for each of {} batch entries", batch),
           fmt::format("{} offsets", o.query_offsets.size()));
  return o.query_offsets;
}

// With --rope, rotated copies of query and key; their gradients are rotated back.
void turn(const AttendOptions& o, AttendCall& call, Executor* executor) {
  const Tensor &query = call.query, &key = call.key;
  call.turned_query = query;
  call.turned_key = key;
  if (o.rope.empty()) return;
  const Rope rope = parse_flag("--rope", parse_rope, o.rope);
  const std::int64_t head_dim = std::min(query.size(3), key.size(3));
  if (rope.rotary_dim > head_dim)
    refuse("--rope", fmt::format("at most the {} elements of a head", head_dim), o.rope);
  std::int64_t farthest = 0;
  for (const std::int64_t offset : call.query_offsets) {
    if (offset < 0 || offset > std::int64_t{1} << 30)
      refuse("--query-offset", "an offset in [0, 2^30] with --rope", std::to_string(offset));
    farthest = std::max(farthest, offset);
  }
  call.rope.emplace(rope, std::max(key.size(2), farthest + query.size(2)), query.dtype(), executor);
  call.turned_query = Tensor(query.dtype(), query.shape());
  call.turned_key = Tensor(key.dtype(), key.shape());
  const std::vector<std::int64_t> positions = query_positions(call);
  rope_forward(*call.rope, query, std::span(positions), call.turned_query, executor);
  rope_forward(*call.rope, key, 0, call.turned_key, executor);
}

}  // namespace

std::vector<std::int64_t> query_positions(const AttendCall& call) {
  std::vector<std::int64_t> positions;
  for (const std::int64_t offset : call.query_offsets)
    for (std::int64_t row = 0; row < call.shape.query_len; ++row) positions.push_back(offset + row);
  return positions;
}

AttendCall read_attend_call(const AttendOptions& o, const Score& score, const Normalizer& normalizer,
                            Executor* executor) {
  AttendCall call;
  call.spec.score = score;
  call.spec.scale = o.scale;
  call.spec.mask = parse_flag("--mask", parse_mask, o.mask);
  call.spec.normalizer = normalizer;
  call.spec.dropout.rate = o.dropout.value_or(0.0);
  read_operands(o, call);
  read_arguments(o, call);
  call.shape = shape_of(o, call);
  call.query_offsets = offsets_of(o, call.shape);
  read_mods(o, call, executor);
  turn(o, call, executor);
  AttentionInputs& in = call.inputs;
  if (!o.is_latent()) {
    in.query = call.turned_query;
    if (call.turned_key) in.key = call.turned_key;
    if (call.value) in.value = call.value;
  }
  in.query_offsets = call.query_offsets;
  in.dropout_seed = o.dropout_seed.value_or(0);
  in.sample_seed = o.sample_seed.value_or(0);
  return call;
}

}  // namespace fovea::cli
