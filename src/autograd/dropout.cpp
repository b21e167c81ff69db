#include "fovea/attention/dropout.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "autograd/dropout_bytes.h"
#include "autograd/record.h"
#include "core/clones.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

constexpr std::int64_t lanes = dropout_bytes_at_once / 16;

// words ← philox4x32({block, stream}, key) for `lanes` blocks from `first` on.
FOVEA_CLONES void philox_lanes(std::uint64_t first, std::uint64_t stream, std::uint64_t key,
                               std::uint32_t* words) {
  std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  for (std::uint64_t lane = 0; lane < lanes; ++lane) {
    c0[lane] = static_cast<std::uint32_t>(first + lane);
    c1[lane] = static_cast<std::uint32_t>((first + lane) >> 32);
    c2[lane] = static_cast<std::uint32_t>(stream);
    c3[lane] = static_cast<std::uint32_t>(stream >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0[lane];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2[lane];
      c0[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[lane] ^ key0;
      c1[lane] = static_cast<std::uint32_t>(product1);
      c2[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[lane] ^ key1;
      c3[lane] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    words[4 * lane] = c0[lane];
    words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane];
    words[4 * lane + 3] = c3[lane];
  }
}

FOVEA_CLONES void keep_rows(const float* x, const std::uint8_t* bytes, std::uint32_t threshold, float scale,
                            std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = kept(x[i] * scale, bytes[i], threshold);
}

}  // namespace

void dropout_bytes(std::int64_t first, std::uint64_t seed, std::uint64_t stream, std::uint8_t* bytes) {
  alignas(64) std::array<std::uint32_t, 4 * lanes> words;
  philox_lanes(static_cast<std::uint64_t>(first / 16), stream, seed, words.data());
  std::memcpy(bytes, words.data(), dropout_bytes_at_once);
}

void keep_below(const float* x, const std::uint8_t* bytes, std::uint32_t threshold, float scale,
                std::int64_t n, float* y) {
  keep_rows(x, bytes, threshold, scale, n, y);
}

namespace {

// y = x·scale where byte i of the stream is below the threshold, else 0. Forward and backward generate the
// same bytes, so no mask is stored.
Tensor dropped(const Tensor& x, const DropoutDecision& decision, std::uint64_t seed, std::uint64_t stream) {
  Tensor y(DType::f32, x.shape());
  const auto scale = static_cast<float>(decision.scale);
  for_pieces(x.count(), [&](std::int64_t begin, std::int64_t end) {  // pieces begin at a block of Philox
    alignas(64) std::array<std::uint8_t, dropout_bytes_at_once> bytes;
    for (std::int64_t i = begin; i < end; i += dropout_bytes_at_once) {
      dropout_bytes(i, seed, stream, bytes.data());
      keep_below(x.data<float>() + i, bytes.data(), decision.keep_threshold, scale,
                 std::min(dropout_bytes_at_once, end - i), y.data<float>() + i);
    }
  });
  return y;
}

}  // namespace

Var dropout(const Var& x, float rate, std::uint64_t seed, std::uint64_t stream) {
  static constexpr ProfileLabel label{"dropout", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("dropout", "x", x.value());
  if (!(rate >= 0.0f && rate < 1.0f))
    throw InvalidArgument("dropout", "rate", "a rate in [0, 1)", std::to_string(rate));
  const DropoutDecision decision = DropoutDecision::for_rate(rate);
  return result_of(tape_of({&x}), dropped(x.value(), decision, seed, stream),
                   [=](const Tensor& d) { accumulate(x, dropped(d, decision, seed, stream)); });
}

}  // namespace fovea::autograd
