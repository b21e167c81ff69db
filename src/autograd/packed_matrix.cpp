#include <algorithm>
#include <cmath>
#include <string>

#include "autograd/packed_products.h"
#include "fovea/autograd/packed.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {

std::string_view to_string(WeightType type) {
  return type == WeightType::int8 ? "int8" : type == WeightType::bf16 ? "bf16" : "f32";
}

WeightType parse_weight_type(const std::string& text) {
  for (const WeightType type : {WeightType::f32, WeightType::int8, WeightType::bf16}) {
    if (text == to_string(type)) return type;
  }
  throw InvalidArgument("parse_weight_type", "text", "f32, int8 or bf16", text);
}

PackedMatrix::PackedMatrix(const Tensor& weight, WeightType type)
    : type_(type),
      out_(weight.rank() == 2 ? weight.size(0) : 0),
      in_(weight.rank() == 2 ? weight.size(1) : 0) {
  if (weight.rank() != 2 || weight.dtype() != DType::f32)
    throw InvalidArgument("PackedMatrix", "weight", "f32 [out, in]",
                          std::string(to_string(weight.dtype())) + " " + to_string(weight.shape()));
  if (type == WeightType::int8)
    quantize(weight);
  else if (type == WeightType::bf16)
    round(weight);
  else
    copy(weight);
}

void PackedMatrix::copy(const Tensor& weight) {
  const std::int64_t panels = (out_ + panel_rows - 1) / panel_rows;
  elements_ = Tensor(DType::f32, {panels, in_, panel_rows});
  const float* from = weight.data<float>();
  float* to = elements_.data<float>();
  default_executor().parallel_for(panels, [&](std::int64_t panel, int) {
    const std::int64_t first = panel * panel_rows, count = std::min(panel_rows, out_ - first);
    pack_panel(from + first * in_, count, in_, to + panel * in_ * panel_rows);
  });
}

void PackedMatrix::quantize(const Tensor& weight) {
  constexpr std::int64_t most_columns = 1 << 17;
  if (in_ >= most_columns)
    throw InvalidArgument("PackedMatrix", "weight", "fewer than 2^17 columns for int8", std::to_string(in_));
  const float* from = weight.data<float>();
  if (!std::all_of(from, from + weight.count(), [](float x) { return std::isfinite(x); }))
    throw InvalidArgument("PackedMatrix", "weight", "finite numbers for int8", "an infinity or a NaN");
  const std::int64_t panels = (out_ + panel_rows - 1) / panel_rows, columns = padded_in();
  elements_ = Tensor::zeros(DType::f32, {panels, columns / 4, panel_rows});
  scales_ = Tensor::zeros(DType::f32, {panels * panel_rows});
  sums_.assign(static_cast<std::size_t>(panels * panel_rows), 0);
  auto* to = reinterpret_cast<std::int8_t*>(elements_.raw());
  default_executor().parallel_for(panels, [&](std::int64_t panel, int) {
    const std::int64_t first = panel * panel_rows, count = std::min(panel_rows, out_ - first);
    for (std::int64_t n = 0; n < count; ++n) {
      const float* row = from + (first + n) * in_;
      float largest = 0.0f;
      for (std::int64_t k = 0; k < in_; ++k) largest = std::max(largest, std::abs(row[k]));
      const float scale = largest / 127.0f;
      scales_.data<float>()[first + n] = scale;
      if (scale == 0.0f) continue;  // zeros, or numbers below 2e-43
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < in_; ++k) {
        const float q = std::clamp(std::nearbyint(row[k] / scale), -127.0f, 127.0f);
        to[((panel * columns / 4 + k / 4) * panel_rows + n) * 4 + k % 4] = static_cast<std::int8_t>(q);
        sum += static_cast<std::int32_t>(q);
      }
      sums_[static_cast<std::size_t>(first + n)] = sum;
    }
  });
}

void PackedMatrix::round(const Tensor& weight) {
  const std::int64_t panels = (out_ + panel_rows - 1) / panel_rows;
  elements_ = Tensor::zeros(DType::f32, {panels, pairs(), panel_rows});
  const float* from = weight.data<float>();
  auto* to = reinterpret_cast<bfloat16*>(elements_.raw());
  default_executor().parallel_for(panels, [&](std::int64_t panel, int) {
    const std::int64_t first = panel * panel_rows, count = std::min(panel_rows, out_ - first);
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::int64_t k = 0; k < in_; ++k)
        to[((panel * pairs() + k / 2) * panel_rows + n) * 2 + k % 2] = bfloat16(from[(first + n) * in_ + k]);
    }
  });
}

std::int64_t PackedMatrix::bytes() const noexcept {
  const std::int64_t scales = scales_.empty() ? 0 : scales_.count();
  return 4 * (elements_.count() + scales + static_cast<std::int64_t>(sums_.size()));
}

}  // namespace fovea::autograd
