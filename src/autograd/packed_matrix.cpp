#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "fovea/autograd/packed.h"
#include "fovea/core/executor.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/packed_matrix.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/bf16-inl.h"
#include "kernels/simd/register_tile-inl.h"
#include "kernels/simd/transpose-inl.h"

// A matrix is packed when a model is loaded, so the time until the first token depends on this.
HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace simd = kernels::HWY_NAMESPACE;

// to[s][c][n] = cells of row n of strip s, where a panel is cut into strips of `strip_rows` rows. Zeros from
// row `count` of the panel on.
void TransposePanel(const uint32_t* cells, int64_t columns, int64_t count, int64_t strip_rows, uint32_t* to) {
  for (int64_t row = 0; row < PackedMatrix::panel_rows; row += strip_rows)
    simd::Transpose(cells + std::min(row, count) * columns, columns,
                    std::clamp(count - row, int64_t{0}, strip_rows), columns, strip_rows, to + row * columns);
}

// The rows of a strip of f32. They are columns of a tile of products.
int64_t StripRows() {
  return simd::kTileColumns;
}

// Two numbers of bf16 in each cell, rounded to nearest even. Those of a cell past the last are 0.
void RoundRow(const float* x, int64_t count, bfloat16* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes)
    simd::StoreHalves(simd::UnsignedOf<decltype(d)>(), simd::NearestBf16(d, hn::LoadU(d, x + k)),
                      reinterpret_cast<uint16_t*>(to + k));
  for (; k < count; ++k) to[k] = bfloat16(x[k]);
}

float LargestOf(const float* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  bool finite = true;
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    const auto value = hn::Abs(hn::LoadU(d, x + k));
    finite = finite && hn::AllTrue(d, hn::Lt(value, hn::Inf(d)));
    largest = hn::Max(largest, value);
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; k < count; ++k) {
    finite = finite && std::isfinite(x[k]);
    result = std::max(result, std::abs(x[k]));
  }
  return finite ? result : HUGE_VALF;
}

// Whole numbers x / scale; returns their sum.
int32_t QuantizeRow(const float* x, int64_t count, float scale, int8_t* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(di);
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    const auto quotient = hn::Div(hn::LoadU(d, x + k), hn::Set(d, scale));
    const auto q = hn::Min(hn::Max(hn::NearestInt(quotient), hn::Set(di, -127)), hn::Set(di, 127));
    hn::StoreU(hn::DemoteTo(d8, q), d8, to + k);
    sums = hn::Add(sums, q);
  }
  int32_t sum = hn::GetLane(hn::SumOfLanes(di, sums));
  for (; k < count; ++k) {
    to[k] = static_cast<int8_t>(std::clamp(std::nearbyint(x[k] / scale), -127.0f, 127.0f));
    sum += to[k];
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::autograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
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

namespace {

// 32-bit cells of a row: a number, a pair of bf16, or four bytes.
std::int64_t cells_of(std::int64_t in, WeightType type) {
  return type == WeightType::f32 ? in : type == WeightType::bf16 ? (in + 1) / 2 : (in + 3) / 4;
}

// Cells of a panel before it is transposed. Those of f32 are transposed where they lie.
std::int64_t narrow_cells(std::int64_t in, WeightType type) {
  return type == WeightType::f32 ? 0 : PackedMatrix::panel_rows * cells_of(in, type);
}

}  // namespace

PackedMatrix::PackedMatrix(const Tensor& weight, WeightType type)
    : type_(type),
      out_(weight.rank() == 2 ? weight.size(0) : 0),
      in_(weight.rank() == 2 ? weight.size(1) : 0) {
  if (weight.rank() != 2 || weight.dtype() != DType::f32)
    throw InvalidArgument("PackedMatrix", "weight", "f32 [out, in]",
                          std::string(to_string(weight.dtype())) + " " + to_string(weight.shape()));
  const float* from = weight.data<float>();
  pack(0, [&](std::int64_t first, std::int64_t, float*) { return from + first * in_; });
}

PackedMatrix::PackedMatrix(std::int64_t out, std::int64_t in, WeightType type, const Rows& rows)
    : type_(type), out_(out), in_(in) {
  pack(panel_rows * in, [&](std::int64_t first, std::int64_t count, float* room) {
    rows(first, count, room);
    return room;
  });
}

void PackedMatrix::pack(std::int64_t read_cells, const Panel& panel_of) {
  constexpr std::int64_t most_columns = 1 << 17;
  if (type_ == WeightType::int8 && in_ >= most_columns)
    throw InvalidArgument("PackedMatrix", "weight", "fewer than 2^17 columns for int8", std::to_string(in_));
  const std::int64_t panels = (out_ + panel_rows - 1) / panel_rows;
  const std::int64_t cells = cells_of(in_, type_);
  elements_ = Tensor(DType::f32, {panels, cells, panel_rows});
  if (type_ == WeightType::int8) {
    scales_ = Tensor::zeros(DType::f32, {panels * panel_rows});
    sums_.assign(static_cast<std::size_t>(panels * panel_rows), 0);
    row_scales_ = scales_.data<float>();
    row_sums_ = sums_.data();
  }
  numbers_ = elements_.raw();
  auto* const to = reinterpret_cast<std::uint32_t*>(elements_.raw());
  const std::int64_t strip_rows = type_ == WeightType::f32 ? FOVEA_BEST(StripRows)() : panel_rows;
  std::atomic<bool> finite = true;
  // Behind the elements in the region of all packed matrices, where the next matrix will lie. Vectors of the
  // threads kept 0.5 MB of each for ever.
  const std::int64_t narrowed = narrow_cells(in_, type_), room_cells = read_cells + narrowed;
  const Tensor rooms(DType::f32, {default_executor().thread_count(), room_cells});
  default_executor().parallel_for(panels, [&](std::int64_t number, int worker) {
    float* const room = rooms.data<float>() + worker * room_cells;
    auto* const narrow = reinterpret_cast<std::uint32_t*>(room + read_cells);
    const std::int64_t first = number * panel_rows, count = std::min(panel_rows, out_ - first);
    const float* const rows = panel_of(first, count, room);
    const auto* from = reinterpret_cast<const std::uint32_t*>(rows);
    if (type_ != WeightType::f32) {
      std::fill_n(narrow, narrowed, 0);
      from = narrow;
    }
    for (std::int64_t n = 0; n < count && type_ == WeightType::bf16; ++n) FOVEA_BEST(RoundRow)
    (rows + n * in_, in_, reinterpret_cast<bfloat16*>(narrow + n * cells));
    for (std::int64_t n = 0; n < count && type_ == WeightType::int8; ++n) {
      const float largest = FOVEA_BEST(LargestOf)(rows + n * in_, in_);
      if (std::isinf(largest)) finite = false;
      const float scale = largest / 127.0f;
      if (scale == 0.0f || !finite) continue;  // zeros, or numbers below 2e-43
      scales_.data<float>()[first + n] = scale;
      sums_[static_cast<std::size_t>(first + n)] = FOVEA_BEST(QuantizeRow)(
          rows + n * in_, in_, scale, reinterpret_cast<std::int8_t*>(narrow + n * cells));
    }
    FOVEA_BEST(TransposePanel)(from, cells, count, strip_rows, to + number * cells * panel_rows);
  });
  if (!finite)
    throw InvalidArgument("PackedMatrix", "weight", "finite numbers for int8", "an infinity or a NaN");
}

std::int64_t PackedMatrix::bytes_of(std::int64_t out, std::int64_t in, WeightType type) noexcept {
  const std::int64_t rows = (out + panel_rows - 1) / panel_rows * panel_rows;
  return 4 * rows *
         (cells_of(in, type) + (type == WeightType::int8 ? 2 : 0));  // a scale and a sum of each row
}

std::int64_t PackedMatrix::packing_bytes(std::int64_t in, WeightType type) noexcept {
  return 4 * (panel_rows * in + narrow_cells(in, type));
}

std::int64_t PackedMatrix::bytes() const noexcept {
  return bytes_of(out_, in_, type_);
}

}  // namespace fovea::autograd
#endif
