#include "cli/attend_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/starts.h"
#include "fovea/attention/expression.h"
#include "fovea/files/npy.h"
#include "fovea/mechanisms/forget.h"
#include "fovea/mechanisms/local.h"
#include "fovea/plan/call_shape.h"

namespace fovea::cli {
namespace {

using From = ArgumentSource::From;
using Gradient = CallArgument::Gradient;

// Parses a text of the algebra's grammar; an error names the flag that the text came with.
template <class Parse>
auto parse_flag(const std::string& flag, Parse parse, const std::string& text) {
  try {
    return parse(text);
  } catch (const ExpressionError& error) {
    throw Error(fmt::format("{}, column {}: expected {}, got {}", flag, error.column(), error.expected(),
                            error.got()));
  }
}

Score parse_score_flag(AttendOptions& o) {
  if (o.score == "concat") return Additive{};
  try {
    const Score score = parse_score(o.score);
    o.score = to_string(score);
    return score;
  } catch (const ExpressionError& error) {
    refuse("--score", error.expected() + ", or concat", error.got());
  }
}

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

// Without keys and values, as for the weights of scores by position alone, nothing says how many there are.
void check_starts(const char* flag, std::span<const std::int64_t> starts, const char* of,
                  const Tensor& operand) {
  if (operand)
    fovea::check_starts("fovea attend", flag, starts, operand.size(2), fmt::format(" of {}", of));
  else if (!starts.empty())
    fovea::check_starts("fovea attend", flag, starts, std::nullopt);
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
  if (o.is_packed()) expect_size("--query", call.query, 0, "batch, with --query-starts,", 1);
  expect_size("--key", call.key, 0, "batch, as --query has,", call.query.size(0));
  expect_size("--value", call.value, 0, "batch, as --query has,", call.query.size(0));
  if (o.is_packed()) {
    check_starts("--query-starts", o.query_starts, "--query", call.query);
    check_starts("--key-starts", o.key_starts, call.key ? "--key" : "--value",
                 call.key ? call.key : call.value);
  }
  if (!call.key || o.is_latent()) return;
  const bool halves = bool(call.lambda);
  expect_size("--value", call.value, 1,
              halves ? "number of heads, half of what --key has," : "number of heads, as --key has,",
              halves ? call.key.size(1) / 2 : call.key.size(1));
  expect_size("--value", call.value, 2, "length, as --key has,", call.key.size(2));
}

// The arguments of a call, one after the other. Those of the score come first. `call.shape` is complete when
// the others are made.
class ArgumentReader {
 public:
  ArgumentReader(const AttendOptions& options, AttendCall& call, Executor* executor)
      : o_(options), call_(call), executor_(executor) {}

  void read(const ArgumentSource& source) {
    switch (source.from) {
      case From::nothing:
        return;
      case From::file:
        return add_file(source);
      case From::start:
        return add(source, start_of(source), Gradient::own);
      case From::concat:
        return add_concat(source);
      case From::log_forget:
        return add_forget(source);
      case From::centers:
        return add_centers(source);
    }
  }

 private:
  void add(const ArgumentSource& source, const Tensor& value, Gradient gradient, const Tensor& given = {}) {
    call_.arguments.push_back({source.name, value, gradient, (given ? given : value).shape()});
    call_.inputs.arguments.set(source.name, value);
  }
  void add_file(const ArgumentSource& source) {
    const Tensor given = files::read_npy(source.path);
    add(source, with_all_axes(source.declaration, given), Gradient::own, given);
  }
  // One a head, so that its gradient is too.
  Tensor start_of(const ArgumentSource& source) const {
    const std::optional<Shape> shape =
        start_shape(source.declaration, {.num_query_heads = call_.shape.num_query_heads});
    const Tensor start = start_value(source.declaration, *shape, call_.query.dtype());
    return with_all_axes(source.declaration, start.reshape({start.count()}));
  }
  void add_concat(const ArgumentSource& source) {
    if (!concat_) {
      concat_ = files::read_npy(source.path);
      const std::int64_t columns = call_.query.size(3) + call_.key.size(3);
      if (concat_.rank() != 2 || concat_.size(1) != columns)
        refuse(source.flag, fmt::format("[hidden, {}], the elements of a query and a key", columns),
               to_string(concat_.shape()));
    }
    const std::int64_t first = call_.query.size(3), all = concat_.size(1);
    const bool queries = own_name(source.name) == "W";
    const ConstTensorView part = concat_.view().slice(1, queries ? 0 : first, queries ? first : all - first);
    Tensor copy(concat_.dtype(), part.shape());
    copy_columns(part, copy);
    add(source, copy, Gradient::concat);
  }
  static void copy_columns(const ConstTensorView& from, const Tensor& to) {
    const auto bytes = static_cast<std::int64_t>(size_of(from.dtype()));
    for (std::int64_t row = 0; row < from.size(0); ++row)
      std::copy_n(from.raw() + row * from.stride(0) * bytes, from.size(1) * bytes,
                  to.raw() + row * to.size(1) * bytes);
  }
  // Log gates [batch, heads, key_len] make both arguments of their mod, queries first.
  void add_forget(const ArgumentSource& source) {
    if (own_name(source.name) == "key") return add(source, forget_sums_, Gradient::log_forget);
    const std::string flag = source.flag.substr(0, source.flag.find(' ')) + " forget";
    if (o_.is_packed()) refuse(flag, "no file: with --query-starts its sums come by --argument", source.path);
    const Tensor gates = files::read_npy(source.path);
    if (gates.rank() != 3 || gates.size(2) != call_.shape.key_len)
      refuse(flag, fmt::format("log gates [batch, heads, {}]", call_.shape.key_len),
             to_string(gates.shape()));
    try {
      forget_sums_ = forget_sums(gates);
      const Tensor queries = forget_queries(forget_sums_, call_.shape.query_len, call_.query_offsets);
      add(source, queries, Gradient::log_forget, gates);
    } catch (const InvalidArgument& error) {
      refuse(flag, error.expected(), error.got());
    }
  }
  // The centers of --local-p: of the window, whose weights have no derivative by them, and of the Gaussian.
  void add_centers(const ArgumentSource& source) {
    const bool gaussian = source.name.starts_with("weight_mods[");
    if (!centers_) {
      call_.local_W = files::read_npy(o_.local_query);
      call_.local_v = files::read_npy(o_.local_vector);
      try {
        centers_ = local_centers(
            {.query = call_.query, .W = call_.local_W, .v = call_.local_v, .key_len = call_.shape.key_len},
            {.executor = executor_});
      } catch (const InvalidArgument& error) {
        const std::string flag = error.argument() == "v"   ? "--local-vector"
                                 : error.argument() == "W" ? "--local-query"
                                                           : "--local-p";
        refuse(flag, error.expected(), error.got());
      }
    }
    add(source, centers_, gaussian ? Gradient::centers : Gradient::none);
  }

  const AttendOptions& o_;
  AttendCall& call_;
  Executor* executor_;
  Tensor concat_, forget_sums_, centers_;
};

// The latent form has keys of three axes, and its matrices hold the sizes of heads.
AttentionShape latent_shape(const AttendCall& call) {
  return {.batch = call.query.size(0),
          .num_query_heads = call.query.size(1),
          .num_kv_heads = call.query.size(1),
          .query_len = call.query.size(2),
          .key_len = call.key.size(1),
          .head_dim = call.query.size(3),
          .value_dim = call.W_UV.size(1)};
}

// The sizes of the two halves of --differential, each of which has half of the heads.
AttentionShape halved(AttentionShape shape, const AttendCall& call) {
  if (shape.num_query_heads % 2 != 0)
    refuse("--query", "an even number of heads with --differential", to_string(call.query.shape()));
  if (shape.num_kv_heads % 2 != 0)
    refuse("--key", "an even number of heads with --differential", to_string(call.key.shape()));
  shape.num_query_heads /= 2;
  shape.num_kv_heads /= 2;
  return shape;
}

AttentionShape shape_of(const AttendOptions& o, const AttendCall& call) {
  if (o.is_latent()) return latent_shape(call);
  AttentionInputs inputs{.query = call.query,
                         .arguments = call.inputs.arguments,
                         .query_starts = call.inputs.query_starts,
                         .key_starts = call.inputs.key_starts};
  if (call.key) inputs.key = call.key;
  if (call.value) inputs.value = call.value;
  const AttentionShape shape = fovea::shape_of(call.spec, inputs);
  return call.lambda ? halved(shape, call) : shape;
}

// One offset for each batch entry, whether the flag gave none, one or all.
std::vector<std::int64_t> offsets_of(const AttendOptions& o, const AttentionShape& shape) {
  const auto batch = static_cast<std::size_t>(shape.batch);
  if (o.query_offsets.size() > 1 && o.query_offsets.size() != batch)
    refuse("--query-offset", fmt::format("one offset, or one for each of {} batch entries", batch),
           fmt::format("{} offsets", o.query_offsets.size()));
  if (o.query_offsets.size() == batch) return o.query_offsets;
  if (o.query_offsets.size() == 1) return std::vector<std::int64_t>(batch, o.query_offsets.front());
  std::vector<std::int64_t> offsets(batch, shape.key_len - shape.query_len);
  for (std::size_t e = 0; o.is_packed() && e < batch; ++e)
    offsets[e] = (o.key_starts[e + 1] - o.key_starts[e]) - (o.query_starts[e + 1] - o.query_starts[e]);
  return offsets;
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
  call.rope.emplace(rope, std::max(call.shape.key_len, farthest + call.shape.query_len), query.dtype(),
                    executor);
  call.turned_query = Tensor(query.dtype(), query.shape());
  call.turned_key = Tensor(key.dtype(), key.shape());
  const std::vector<std::int64_t> of_queries = query_positions(call), of_keys = key_positions(call);
  rope_forward(*call.rope, query, std::span(of_queries), call.turned_query, executor);
  rope_forward(*call.rope, key, std::span(of_keys), call.turned_key, executor);
}

// first, first + 1, ... for each entry: `rows` of them, or those between its starts.
std::vector<std::int64_t> positions_of(std::span<const std::int64_t> first, std::int64_t rows,
                                       std::span<const std::int64_t> starts) {
  std::vector<std::int64_t> positions;
  for (std::size_t e = 0; e < first.size(); ++e) {
    const std::int64_t count = starts.empty() ? rows : starts[e + 1] - starts[e];
    for (std::int64_t row = 0; row < count; ++row) positions.push_back(first[e] + row);
  }
  return positions;
}

}  // namespace

std::vector<std::int64_t> query_positions(const AttendCall& call) {
  return positions_of(call.query_offsets, call.shape.query_len, call.inputs.query_starts);
}

std::vector<std::int64_t> key_positions(const AttendCall& call) {
  const std::vector<std::int64_t> zeros(call.query_offsets.size(), 0);
  return positions_of(zeros, call.shape.key_len, call.inputs.key_starts);
}

AttentionSpec parse_spec(AttendOptions& o) {
  AttentionSpec spec;
  spec.score = parse_score_flag(o);
  spec.scale = o.scale;
  spec.mask = parse_flag("--mask", parse_mask, o.mask);
  spec.normalizer = parse_flag("--normalizer", parse_normalizer, o.normalizer);
  spec.dropout.rate = o.dropout.value_or(0.0);
  for (const NamedFile& mod : o.mods) spec.mods.push_back(parse_flag("--mod", parse_mod, mod.name));
  for (const NamedFile& mod : o.weight_mods)
    spec.weight_mods.push_back(parse_flag("--weight-mod", parse_mod, mod.name));
  if (!o.local_reach) return spec;
  if (!(*o.local_reach > 0.0)) refuse("--local-p", "a reach above 0", std::to_string(*o.local_reach));
  spec.mods.push_back(LocalWindow{*o.local_reach});
  spec.weight_mods.push_back(LocalGaussian{*o.local_reach / 2});
  return spec;
}

AttendCall read_attend_call(const AttendOptions& o, const AttentionSpec& spec,
                            std::vector<ArgumentSource> sources, Executor* executor) {
  AttendCall call;
  call.spec = spec;
  call.sources = std::move(sources);
  read_operands(o, call);
  ArgumentReader arguments(o, call, executor);
  const auto of_score = [](const ArgumentSource& source) { return source.name.starts_with("score."); };
  const auto rest = std::find_if_not(call.sources.begin(), call.sources.end(), of_score);
  std::for_each(call.sources.begin(), rest, [&](const ArgumentSource& s) { arguments.read(s); });
  call.inputs.query_starts = o.query_starts;
  call.inputs.key_starts = o.key_starts;
  call.shape = shape_of(o, call);  // hidden, and the keys of a score that reads none, are sizes of arguments
  call.query_offsets = offsets_of(o, call.shape);
  std::for_each(rest, call.sources.end(), [&](const ArgumentSource& s) { arguments.read(s); });
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
