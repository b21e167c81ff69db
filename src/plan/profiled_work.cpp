#include "plan/profiled_work.h"

#include <algorithm>
#include <vector>

#include "plan/packed.h"

namespace fovea {
namespace {

double keys_of(const KeySpans& spans) {
  double sum = 0.0;
  for (const KeySpan& span : spans) sum += static_cast<double>(span.end - span.begin);
  return sum;
}

// Blocks of queries of one head of all entries, each as the mask wants it.
std::vector<QueryBlock> blocks_of(const AttentionInputs& inputs, const CallSizes& sizes) {
  constexpr std::int64_t rows = 64;
  const PackedBatch packed(inputs);
  std::vector<QueryBlock> blocks;
  for (std::int64_t n = 0; n < sizes.batch; ++n) {
    const CallSizes entry = packed ? packed[n].sizes : CallSizes{1, sizes.query_len, sizes.key_len};
    const std::int64_t offset = !inputs.query_offsets.empty()
                                    ? inputs.query_offsets[static_cast<std::size_t>(n)]
                                    : inputs.query_offset.value_or(entry.key_len - entry.query_len);
    for (std::int64_t row = 0; row < entry.query_len; row += rows)
      blocks.push_back({.batch = n,
                        .query_begin = row + offset,
                        .query_end = std::min(row + rows, entry.query_len) + offset,
                        .key_len = entry.key_len,
                        .key_lengths = inputs.key_lengths});
  }
  return blocks;
}

// Pairs of query and key in all heads. Between the keys that some query of a block sees and those that all
// see lies a band, half of which a triangle fills.
double pairs_of(const AttentionPlan::Impl& plan, const std::vector<QueryBlock>& blocks) {
  constexpr std::size_t most = 16;
  const MaskNode& mask = plan.spec.mask.node();
  const std::size_t step = (blocks.size() + most - 1) / most;
  double pairs = 0.0, examined = 0.0, all = 0.0;
  for (std::size_t n = 0; n < blocks.size(); ++n) {
    const QueryBlock& block = blocks[n];
    const auto queries = static_cast<double>(block.query_end - block.query_begin);
    all += queries * static_cast<double>(block.key_len);
    if (n % step != 0) continue;
    examined += queries * static_cast<double>(block.key_len);
    const BlockSpans spans = mask.spans(block);
    pairs += queries * (keys_of(spans.some) + keys_of(spans.all)) / 2.0;
  }
  return examined > 0.0 ? pairs * all / examined * static_cast<double>(plan.shape.num_query_heads) : 0.0;
}

void add_work(const AttentionPlan::Impl& plan, const AttentionInputs& inputs, const CallSizes& sizes,
              double products, double passes) {
  if (!ProfileSpan::recording()) return;
  const AttentionShape& s = plan.shape;
  const std::vector<QueryBlock> blocks = blocks_of(inputs, sizes);
  double queries = 0.0, keys = 0.0;  // of all entries
  for (const QueryBlock& block : blocks) {
    queries += static_cast<double>(block.query_end - block.query_begin);
    const bool first = &block == blocks.data() || (&block)[-1].batch != block.batch;
    if (first) keys += static_cast<double>(block.key_len);
  }
  const auto values = static_cast<double>(s.value_dim == AttentionShape::no_values ? 0 : s.value_dim);
  const double inner = plan.additive() ? static_cast<double>(s.hidden) : static_cast<double>(s.head_dim),
               rows = queries * static_cast<double>(s.num_query_heads) *
                      (static_cast<double>(s.head_dim) + values),
               cached =
                   keys * static_cast<double>(s.num_kv_heads) * (static_cast<double>(s.key_dim) + values);
  ProfileSpan::add({.multiply_adds = products / 2.0 * pairs_of(plan, blocks) * (inner + values),
                    .bytes = passes * static_cast<double>(size_of(plan.dtype)) * (rows + cached)});
}

}  // namespace

void add_attention_work(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                        const CallSizes& sizes) {
  add_work(plan, inputs, sizes, 2.0, 1.0);
}

void add_backward_work(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                       const CallSizes& sizes) {
  add_work(plan, inputs, sizes, 5.0, 2.0);
}

}  // namespace fovea
