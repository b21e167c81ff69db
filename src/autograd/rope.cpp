// Rotary positions as an op: the engine's rotation on strided views of [B, L, heads * dim].
#include <algorithm>
#include <string>
#include <utility>

#include "autograd/heads.h"
#include "autograd/record.h"
#include "core/starts.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

void check(const Var& x, std::int64_t num_heads) {
  if (x.shape().rank() != 3 || num_heads < 1 || x.size(2) % num_heads != 0) {
    throw InvalidArgument("rotate", "x", "[B, L, a multiple of " + std::to_string(num_heads) + " heads]",
                          to_string(x.shape()));
  }
}

// `positions()` returns the same positions in backward, from memory of its own.
template <class Positions>
Var rotated_at(const Var& x, const RopeTable& table, std::int64_t num_heads, const Positions& positions) {
  Tensor out(DType::f32, x.shape());
  rope_forward(table, heads_of(x.value(), num_heads), positions(), heads_of(out, num_heads));
  Tape* tape = tape_of({&x});
  if (!tape) return out;
  return {out, tape->record([=](const Tensor& d_out) {
            Tensor d_x(DType::f32, d_out.shape());
            rope_backward(table, heads_of(d_out, num_heads), positions(), heads_of(d_x, num_heads));
            accumulate(x, d_x);
          })};
}

// One position a row.
Var rotated(const Var& x, const RopeTable& table, std::int64_t num_heads, KeptVector<std::int64_t> list) {
  return rotated_at(x, table, num_heads,
                    [list = std::move(list)] { return RopePositions(std::span<const std::int64_t>(list)); });
}

void check_packed(const Var& x, std::span<const std::int64_t> starts, std::span<const std::int64_t> first) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("rotate_packed", argument, expected, got);
  };
  if (x.size(0) != 1) refuse("x", "a batch of 1, with the rows of all entries", to_string(x.shape()));
  check_starts("rotate_packed", "starts", starts, x.size(1));
  if (first.size() + 1 != starts.size())
    refuse("first", "one position for each entry, " + std::to_string(starts.size() - 1),
           std::to_string(first.size()));
}

}  // namespace

Var rotate(const Var& x, const RopeTable& table, std::int64_t num_heads, std::int64_t first) {
  static constexpr ProfileLabel label{"rotate", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  check(x, num_heads);
  return rotated_at(x, table, num_heads, [first] { return RopePositions(first); });
}

Var rotate(const Var& x, const RopeTable& table, std::int64_t num_heads,
           std::span<const std::int64_t> first) {
  static constexpr ProfileLabel label{"rotate", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  check(x, num_heads);
  if (static_cast<std::int64_t>(first.size()) != x.size(0)) {
    throw InvalidArgument("rotate", "first",
                          "one position for each batch entry, " + std::to_string(x.size(0)),
                          std::to_string(first.size()));
  }
  KeptVector<std::int64_t> list;
  list.reserve(static_cast<std::size_t>(x.size(0) * x.size(1)));
  for (const std::int64_t begin : first) {
    for (std::int64_t l = 0; l < x.size(1); ++l) list.push_back(begin + l);
  }
  return rotated(x, table, num_heads, std::move(list));
}

Var rotate_packed(const Var& x, const RopeTable& table, std::int64_t num_heads,
                  std::span<const std::int64_t> starts, std::span<const std::int64_t> first) {
  static constexpr ProfileLabel label{"rotate packed", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  check(x, num_heads);
  check_packed(x, starts, first);
  KeptVector<std::int64_t> list;
  list.reserve(static_cast<std::size_t>(x.size(1)));
  for (std::size_t e = 0; e < first.size(); ++e) {
    for (std::int64_t l = starts[e]; l < starts[e + 1]; ++l) list.push_back(first[e] + l - starts[e]);
  }
  return rotated(x, table, num_heads, std::move(list));
}

}  // namespace fovea::autograd
