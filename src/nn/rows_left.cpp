#include "nn/rows_left.h"

#include <string>

#include "core/clones.h"
#include "core/pieces.h"
#include "nn/row_means.h"

namespace fovea::nn {

namespace {

FOVEA_CLONES void add_share(const float* from, float divisor, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i] / divisor;
}

}  // namespace

Tensor mean_over_heads(const Tensor& keys, std::int64_t heads) {
  const std::int64_t rows = keys.size(0) * keys.size(1), dim = keys.size(2) / heads;
  Tensor mean = Tensor::zeros(DType::f32, {keys.size(0), keys.size(1), dim});
  for_pieces(
      rows,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          float* to = mean.data<float>() + row * dim;
          for (std::int64_t head = 0; head < heads; ++head) {
            add_share(keys.data<float>() + (row * heads + head) * dim, static_cast<float>(heads), dim, to);
          }
        }
      },
      keys.size(2));
  return mean;
}

void RowsLeft::check(const TransformerStack::Call& call) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("TransformerStack", argument, expected + " where a block merges rows", got);
  };
  if (!(call.mask == Mask(Everything{})) && !(call.mask == Mask(KeyLengths{})))
    refuse("mask", "everything or lengths", to_string(call.mask));
  if (call.mask == Mask(Everything{}) && !call.lengths.empty())
    refuse("lengths", "none without KeyLengths{} in the mask", std::to_string(call.lengths.size()));
  if (!call.starts.empty()) refuse("starts", "none", "a packed batch");
}

Tensor RowsLeft::log_sizes() const {
  return merged_.empty() ? Tensor() : autograd::log_sizes(merged_.back());
}

Var RowsLeft::merge(const Var& rows, const TokenMerging& merging, std::int64_t num_kv_heads) {
  const Tensor sizes = merged_.empty() ? Tensor() : merged_.back().sizes;
  merged_.push_back(
      autograd::matched_groups(mean_over_heads(keys_, num_kv_heads), merging.share, sizes, lengths_));
  keys_ = Tensor();
  if (!lengths_.empty()) lengths_ = merged_.back().lengths;
  return autograd::merge_rows(rows, merged_.back());
}

Var RowsLeft::spread(Var rows) const {
  for (auto step = merged_.rbegin(); step != merged_.rend(); ++step)
    rows = autograd::spread_rows(rows, *step);
  return rows;
}

}  // namespace fovea::nn
