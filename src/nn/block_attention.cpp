#include "fovea/nn/block_attention.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/starts.h"
#include "fovea/attention/make_mod.h"
#include "fovea/autograd/row_groups.h"
#include "fovea/core/kept_vector.h"
#include "nn/block_summaries.h"
#include "nn/finished_blocks.h"
#include "nn/row_means.h"

namespace fovea::nn {
namespace {

using By = BlockAttentionOptions::By;
using Alibi = BlockAttentionOptions::Alibi;

void expect_option(bool good, const char* argument, const std::string& expected, std::int64_t got) {
  if (!good)
    throw InvalidArgument("BlockAttention", std::string("options.") + argument, expected,
                          std::to_string(got));
}

BlockAttentionOptions completed(BlockAttentionOptions o, std::int64_t dim) {
  expect_option(o.num_heads >= 1, "num_heads", "at least 1", o.num_heads);
  if (o.head_dim == 0) {
    expect_option(dim % o.num_heads == 0, "num_heads",
                  "a divisor of dim " + std::to_string(dim) + " where head_dim is not given", o.num_heads);
    o.head_dim = dim / o.num_heads;
  }
  expect_option(o.head_dim >= 1, "head_dim", "at least 1", o.head_dim);
  expect_option(o.block >= 1, "block", "at least 1", o.block);
  expect_option(o.kept >= 1 && o.block % o.kept == 0, "kept", "a divisor of block " + std::to_string(o.block),
                o.kept);
  const std::int64_t group = o.block / o.kept;
  expect_option(
      std::has_single_bit(static_cast<std::uint64_t>(group)) && group <= most_of_page, "kept",
      "block " + std::to_string(o.block) + " divided by a power of 2 up to " + std::to_string(most_of_page),
      o.kept);
  return o;
}

// Numbers of each key of a call: [B, keys] -> [B, 1, 1, keys].
autograd::AttentionArgument by_key(const char* name, const Tensor& numbers) {
  return {name, numbers.reshape({numbers.size(0), 1, 1, numbers.size(1)})};
}

// One object each, so that one plan serves all calls. Full names of arguments have at most 15 characters,
// which a string holds without malloc.
const Mod& sizes_bias() {
  static const Mod bias = DenseBias{};
  return bias;
}
const Mod& distance_bias() {
  static const Mod bias = make_mod("alibi-of-blocks", {"slope", "place", "size"},
                                   [](auto score, Site at, auto slope, auto position, auto log_size) {
                                     using T = elementwise::Scalar<decltype(score)>;
                                     return score - slope * (T(at.query) - position) + log_size;
                                   });
  return bias;
}

// Each row of the product of E or F with a block has the share |f| of the weights of the block's rows.
Tensor shares_of(const Tensor& sums, std::int64_t blocks) {
  const std::int64_t kept = sums.size(0), block = sums.size(1);
  Tensor shares(DType::f32, {blocks, kept, block});
  for (std::int64_t i = 0; i < kept; ++i) {
    const float* row = sums.data<float>() + i * block;
    float total = 0.0f;
    for (std::int64_t j = 0; j < block; ++j) total += std::abs(row[j]);
    for (std::int64_t n = 0; n < blocks; ++n) {
      for (std::int64_t j = 0; j < block; ++j)
        shares.data<float>()[(n * kept + i) * block + j] =
            total > 0.0f ? std::abs(row[j]) / total : 1.0f / static_cast<float>(block);
    }
  }
  return shares;
}

// [n, block, block]: each row stands for itself.
Tensor identities(std::int64_t blocks, std::int64_t block) {
  Tensor shares = Tensor::zeros(DType::f32, {blocks, block, block});
  for (std::int64_t i = 0; i < blocks * block; ++i) shares.data<float>()[i * block + i % block] = 1.0f;
  return shares;
}

// shares [n, kept, block] -> [n, kept]: the mean of 0, 1, ..., block - 1 by the shares.
Tensor places_of(const Tensor& shares) {
  const std::int64_t block = shares.size(2);
  Tensor places(DType::f32, {shares.size(0), shares.size(1)});
  for (std::int64_t row = 0; row < places.count(); ++row) {
    float place = 0.0f;
    for (std::int64_t j = 0; j < block; ++j)
      place += shares.data<float>()[row * block + j] * static_cast<float>(j);
    places.data<float>()[row] = place;
  }
  return places;
}

// A number for each key of a whole call [B, few + rows]: `of_few` [B, few] for the summary rows, and behind
// them first + step·j for row j.
Tensor with_rows(const Tensor& of_few, std::int64_t rows, float first, float step) {
  const std::int64_t batch = of_few.size(0), few = of_few.size(1);
  Tensor all(DType::f32, {batch, few + rows});
  for (std::int64_t b = 0; b < batch; ++b) {
    float* to = all.data<float>() + b * (few + rows);
    std::copy_n(of_few.data<float>() + b * few, few, to);
    for (std::int64_t j = 0; j < rows; ++j) to[few + j] = first + step * static_cast<float>(j);
  }
  return all;
}

}  // namespace

const char* name_of(By by) {
  static constexpr std::array names{"pooled", "linformer", "merging"};
  return names.at(static_cast<std::size_t>(by));
}

BlockAttention::BlockAttention(ParameterSet& set, const std::string& name, std::int64_t dim,
                               const BlockAttentionOptions& options)
    : options_(completed(options, dim)),
      query_(set, name + ".q_proj", dim, width(), Linear::Bias::with, query_key_value_gain),
      key_(set, name + ".k_proj", dim, width(), Linear::Bias::with, query_key_value_gain),
      value_(set, name + ".v_proj", dim, width(), Linear::Bias::with, query_key_value_gain),
      output_(set, name + ".out_proj", width(), dim),
      plans_(std::make_shared<autograd::PlanCache>()) {
  if (options_.by == By::sums) {
    key_sums_ = &set.xavier(name + ".e", {options_.kept, options_.block});
    value_sums_ = &set.xavier(name + ".f", {options_.kept, options_.block});
  }
  if (options_.alibi == Alibi::with) {
    Tensor slopes(DType::f32, {options_.num_heads});
    const std::vector<double> start = alibi_slopes(options_.num_heads);
    std::transform(start.begin(), start.end(), slopes.data<float>(),
                   [](double slope) { return static_cast<float>(slope); });
    slope_ = &set.constant(name + ".slope", slopes);
    by_row_.mods = {distance_bias()};
  } else if (options_.by != By::sums) {
    by_row_.mods = {sizes_bias()};
  }
  whole_ = by_row_;
  whole_.mask = Mask(std::make_shared<FinishedBlocks>(options_.block, options_.kept));
}

// keys and values [n, block, heads * head_dim].
BlockAttention::Summaries BlockAttention::summarized(Context& context, const Var& keys,
                                                     const Var& values) const {
  const std::int64_t blocks = keys.size(0), block = options_.block, kept = options_.kept;
  Summaries few{.keys = keys, .values = values, .log_sizes = {}, .places = {}, .shares = {}};
  if (options_.by == By::sums) {
    few.keys = autograd::mix_rows(context.use(*key_sums_), keys);
    few.values = autograd::mix_rows(context.use(*value_sums_), values);
    few.log_sizes = Tensor::zeros(DType::f32, {blocks, kept});
    few.shares = shares_of(value_sums_->value, blocks);
    // E has no order: the i-th of the sums stands at the middle of the i-th part of the block.
    few.places = Tensor(DType::f32, {blocks, kept});
    for (std::int64_t i = 0; i < blocks * kept; ++i)
      few.places.data<float>()[i] =
          static_cast<float>(i % kept * group()) + static_cast<float>(group() - 1) / 2.0f;
    return few;
  }
  few.shares = identities(blocks, block);
  const auto merge = [&](const autograd::RowGroups& groups) {
    few.keys = autograd::merge_rows(few.keys, groups);
    few.values = autograd::merge_rows(few.values, groups);
    few.shares = autograd::merge_rows(few.shares, groups).value();
    few.log_sizes = autograd::log_sizes(groups);
  };
  if (options_.by == By::means) merge(autograd::neighbour_groups(blocks, block, group()));
  Tensor sizes;
  for (std::int64_t rows = block; options_.by == By::mergings && rows > kept; rows /= 2) {
    const autograd::RowGroups groups =
        autograd::matched_groups(mean_over_heads(few.keys.value(), options_.num_heads), 0.5, sizes);
    merge(groups);
    sizes = groups.sizes;
  }
  if (!few.log_sizes) few.log_sizes = Tensor::zeros(DType::f32, {blocks, kept});
  few.places = places_of(few.shares);
  return few;
}

// log_sizes and positions [B, keys]; positions are those of the mask of `spec`, which is by_row_ or whole_.
Var BlockAttention::attend(Context& context, autograd::AttentionCall& call, const Tensor& log_sizes,
                           const Tensor& positions, const AttentionShape& shape, const AttentionSpec& spec,
                           const Var& q, const Var& k, const Var& v) const {
  if (options_.alibi == Alibi::with) {
    call.arguments = {{"mods[0].slope", reshape(context.use(*slope_), {1, options_.num_heads, 1, 1})},
                      by_key("mods[0].place", positions),
                      by_key("mods[0].size", log_sizes)};
  } else if (options_.by != By::sums) {
    call.arguments = {by_key("mods[0].bias", log_sizes)};
  }
  call.num_query_heads = call.num_kv_heads = options_.num_heads;
  call.plan = plans_->of(spec, shape);
  return output_(context, autograd::attention(call, q, k, v));
}

namespace {

// The weights of few rows [., few] are distributed among the rows that they stand for. `weights` [B, heads,
// L, few + L] -> [B, heads, L, L].
Tensor distributed(const Tensor& weights, const Tensor& shares, std::int64_t few) {
  const std::int64_t batch = weights.size(0), heads = weights.size(1), rows = weights.size(2),
                     kept = shares ? shares.size(1) : 1, block = shares ? shares.size(2) : 1;
  Tensor all(DType::f32, {batch, heads, rows, rows});
  for (std::int64_t query = 0; query < batch * heads * rows; ++query) {
    const float* from = weights.data<float>() + query * (few + rows);
    float* to = all.data<float>() + query * rows;
    std::copy_n(from + few, rows, to);
    const std::int64_t first = query / (heads * rows) * (few / kept);  // block of this entry
    for (std::int64_t i = 0; i < few; ++i) {
      const float* share = shares.data<float>() + (first * kept + i) * block;
      for (std::int64_t j = 0; j < block; ++j) to[i / kept * block + j] += from[i] * share[j];
    }
  }
  return all;
}

}  // namespace

Var BlockAttention::whole(Context& context, const Var& x, Tensor* weights) const {
  const std::int64_t batch = x.size(0), rows = x.size(1), dim = width(), block = options_.block,
                     kept = options_.kept;
  const std::int64_t finished = rows > 0 ? (rows - 1) / block : 0, few = finished * kept;
  Var q = query_(context, x), k = key_(context, x), v = value_(context, x);
  if (options_.rope) {
    const RopeTable table = options_.rope->table(rows);
    q = autograd::rotate(q, table, options_.num_heads);
    k = autograd::rotate(k, table, options_.num_heads);
  }
  Tensor log_sizes = Tensor::zeros(DType::f32, {batch, 0}), positions = log_sizes, shares;
  if (few > 0) {
    const auto blocks_of = [&](const Var& all) {
      return reshape(autograd::slice(all, 1, 0, finished * block), {batch * finished, block, dim});
    };
    const Summaries of_blocks = summarized(context, blocks_of(k), blocks_of(v));
    const auto behind = [&](const Var& few_rows, const Var& all) {
      const Var both[] = {reshape(few_rows, {batch, few, dim}), all};
      return autograd::concat(both, 1);
    };
    k = behind(of_blocks.keys, k);
    v = behind(of_blocks.values, v);
    log_sizes = of_blocks.log_sizes.reshape({batch, few});
    positions = of_blocks.places.clone().reshape({batch, few});
    for (std::int64_t i = 0; i < batch * few; ++i)
      positions.data<float>()[i] += static_cast<float>(few + i % few / kept * block);
    shares = of_blocks.shares;
  }
  autograd::AttentionCall call;
  Tensor of_all;
  if (weights) call.weights = &of_all;
  const Var y = attend(context, call, with_rows(log_sizes, rows, 0.0f, 0.0f),
                       with_rows(positions, rows, static_cast<float>(few), 1.0f),
                       {.batch = batch,
                        .num_query_heads = options_.num_heads,
                        .num_kv_heads = options_.num_heads,
                        .query_len = rows,
                        .key_len = few + rows,
                        .head_dim = options_.head_dim,
                        .value_dim = options_.head_dim},
                       whole_, q, k, v);
  if (weights) *weights = distributed(of_all, shares, few);
  return y;
}

Var BlockAttention::operator()(Context& context, const Var& x, const Call& call) const {
  if (x.shape().rank() != 3 || (!call.starts.empty() && x.size(0) != 1))
    throw InvalidArgument("BlockAttention", "x", call.starts.empty() ? "[B, L, dim]" : "[1, L, dim]",
                          to_string(x.shape()));
  if (!call.starts.empty()) check_starts("BlockAttention", "call.starts", call.starts, x.size(1));
  if (call.weights && !call.starts.empty())
    throw InvalidArgument("BlockAttention", "call.weights", "none beside starts", "a tensor");
  if (call.starts.empty()) return whole(context, x, call.weights);
  KeptVector<Var> parts;
  for (std::size_t n = 1; n < call.starts.size(); ++n) {
    const std::int64_t first = call.starts[n - 1], count = call.starts[n] - first;
    if (count > 0) parts.push_back(whole(context, autograd::slice(x, 1, first, count), nullptr));
  }
  return parts.empty() ? x : autograd::concat(parts, 1);
}

}  // namespace fovea::nn
