#include "nn/both_ways.h"

#include <algorithm>
#include <string>

#include "fovea/attention/masks.h"
#include "nn/transformer_run.h"

namespace fovea::nn {

namespace {

void check_lengths(std::span<const std::int64_t> lengths, std::int64_t batch, std::int64_t length) {
  const auto refuse = [&](const std::string& got) {
    throw InvalidArgument("TransformerStack", "lengths",
                          std::to_string(batch) + " numbers from 0 to " + std::to_string(length) +
                              ", one for each entry, for KeyLengths{} in the mask",
                          got);
  };
  if (std::ssize(lengths) != batch) refuse(std::to_string(lengths.size()) + " numbers");
  for (std::size_t entry = 0; entry < lengths.size(); ++entry) {
    if (lengths[entry] < 0 || lengths[entry] > length)
      refuse(std::to_string(lengths[entry]) + " for entry " + std::to_string(entry));
  }
}

}  // namespace

// order()[b·L + i] is the row of entry b that stands at place i when the sequence is reversed. Padding stays
// behind the sequence, so that the first row that is read is never one of padding.
const std::vector<std::int64_t>& BothWays::order() {
  if (!order_.empty()) return order_;
  const std::int64_t batch = x_.size(0), length = x_.size(1);
  order_.resize(static_cast<std::size_t>(batch * length));
  for (std::int64_t row = 0; row < batch * length; ++row)
    order_[static_cast<std::size_t>(row)] = row % length;
  const auto turn = [&](std::int64_t begin, std::int64_t end) {
    std::reverse(order_.begin() + begin, order_.begin() + end);
  };
  if (!call_.starts.empty()) {
    for (std::size_t n = 1; n < call_.starts.size(); ++n) turn(call_.starts[n - 1], call_.starts[n]);
    return order_;
  }
  const bool padded = call_.mask == Mask(KeyLengths{});
  if (padded) check_lengths(call_.lengths, batch, length);
  for (std::int64_t b = 0; b < batch; ++b)
    turn(b * length, b * length + (padded ? call_.lengths[static_cast<std::size_t>(b)] : length));
  return order_;
}

Var BothWays::reversed(const Var& rows) {
  return autograd::gather_rows(rows, order(), rows.size(1));
}

// The weights [B, heads, L, L] of reversed rows, added at the places of their rows.
void BothWays::add_reversed(const Tensor& from, Tensor& to) {
  if (!from) return;
  const std::int64_t heads = from.size(1), length = from.size(2);
  for (std::int64_t b = 0; b < from.size(0); ++b) {
    const auto at = [&](std::int64_t row) { return order()[static_cast<std::size_t>(b * length + row)]; };
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t begin = (b * heads + h) * length * length;
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t j = 0; j < length; ++j)
          to.data<float>()[begin + at(i) * length + at(j)] += from.data<float>()[begin + i * length + j];
      }
    }
  }
}

Var BothWays::operator()(const RecurrentMixer& mixer, const RecurrentMixer* back, std::size_t layer,
                         const Var& rows) {
  Tensor* weights = weights_of(call_, "self", layer);
  Tensor* decays = call_.log_decays ? call_.log_decays(layer) : nullptr;
  const Var right =
      mixer(context_, rows,
            {.starts = call_.starts, .weights = weights, .log_decays = decays, .first_value = &first_value});
  if (!back) return right;
  Tensor weights_back, decays_back;
  const Var left = (*back)(context_, reversed(rows),
                           {.starts = call_.starts,
                            .weights = weights ? &weights_back : nullptr,
                            .log_decays = decays ? &decays_back : nullptr,
                            .first_value = &first_value_back});
  if (weights) add_reversed(weights_back, *weights);
  if (decays && *decays) {
    const Var both[] = {Var(*decays), Var(decays_back)};
    *decays = autograd::concat(both, 0).value();
  }
  return add(right, reversed(left));
}

}  // namespace fovea::nn
