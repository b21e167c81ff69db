// Rows are written into a cache.
#include <cstring>
#include <string>

#include "cache/checks.h"
#include "cache/sequence.h"
#include "core/pieces.h"
#include "core/rounding.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/kept_vector.h"

namespace fovea {

using cache::checked_layer;
using cache::described;
using cache::expect_store;
using cache::Keeps;
using cache::refuse;
using cache::Rows;
using cache::Slots;

namespace {

// One row of one head; both are contiguous.
void write_row(DType from, const std::byte* source, DType to, std::int64_t dim, std::byte* target) {
  if (from == to) {
    std::memcpy(target, source, static_cast<std::size_t>(dim) * size_of(to));
  } else if (to == DType::bf16) {
    round_row(reinterpret_cast<const float*>(source), dim, reinterpret_cast<bfloat16*>(target));
  } else {
    round_row(reinterpret_cast<const float*>(source), dim, reinterpret_cast<float16*>(target));
  }
}

// Rows [first, first + slots.count) of one entry of a call go into these slots.
struct Written {
  std::int64_t first = 0;
  Slots slots;
};

// The rows of head h of x [1, heads, rows, dim] from `to` on.
void write_rows(const ConstTensorView& x, std::int64_t h, const Written& at, std::byte* to, DType dtype) {
  const std::int64_t dim = x.size(3), row_bytes = dim * static_cast<std::int64_t>(size_of(dtype)),
                     element = static_cast<std::int64_t>(size_of(x.dtype()));
  for (std::int64_t r = 0; r < at.slots.count; ++r)
    write_row(x.dtype(), x.raw() + (h * x.stride(1) + (at.first + r) * x.stride(2)) * element, dtype, dim,
              to + r * row_bytes);
}

// x: [sequences, heads, rows, dim]; any number of rows if `rows` is below 0.
void check_rows(const char* argument, const ConstTensorView& x, std::int64_t sequences, std::int64_t heads,
                std::int64_t rows, std::int64_t dim, DType dtype) {
  const auto expected = [&] {
    return "[" + std::to_string(sequences) + ", " + std::to_string(heads) + ", " +
           (rows < 0 ? "rows" : std::to_string(rows)) + ", " + std::to_string(dim) + "] of " +
           std::string(to_string(dtype)) + (size_of(dtype) == 2 ? " or f32" : "");
  };
  const bool fits = x && x.rank() == 4 && x.size(0) == sequences && x.size(1) == heads && x.size(3) == dim &&
                    (rows < 0 || x.size(2) == rows) &&
                    (x.dtype() == dtype || (size_of(dtype) == 2 && x.dtype() == DType::f32));
  if (!fits) refuse("append", argument, expected(), described(x));
  if (dim > 1 && x.stride(3) != 1)
    refuse("append", argument, "rows whose elements are contiguous",
           "a stride of " + std::to_string(x.stride(3)));
}

}  // namespace

void KvCache::append(std::int64_t layer, Sequence& sequence, ConstTensorView key, ConstTensorView value) {
  Sequence::State* const one = &state_of("append", sequence);
  append_rows(layer, {&one, 1}, key, value);
}

void KvCache::append(std::int64_t layer, std::span<Sequence* const> sequences, ConstTensorView key,
                     ConstTensorView value) {
  append_rows(layer, states_of("append", sequences), key, value);
}

void KvCache::append_rows(std::int64_t layer, std::span<Sequence::State* const> states, ConstTensorView key,
                          ConstTensorView value) {
  const std::size_t number = checked_layer("append", layer, impl_->options.layers.size());
  const CacheLayer& spec = impl_->options.layers[number];
  expect_store("append", number, spec, Keeps::rows);
  const auto count = static_cast<std::int64_t>(states.size());
  check_rows("key", key, count, spec.num_kv_heads, -1, spec.head_dim, spec.dtype);
  const std::int64_t rows = key.size(2);
  const bool has_values = spec.values == CacheValues::own;
  if (has_values) {
    check_rows("value", value, count, spec.num_kv_heads, rows, spec.value_dim, spec.dtype);
  } else if (value) {
    refuse("append", "value",
           spec.values == CacheValues::none ? "nothing: the layer has no values"
                                            : "nothing: the values are the first elements of the keys",
           described(value));
  }
  for (const Sequence::State* state : states) {
    const std::int64_t pending = state->pending[number];
    if (rows > state->reserved - pending)
      refuse("append", "key",
             "at most " + std::to_string(state->reserved - pending) + " rows, as " +
                 std::to_string(state->reserved) + " were reserved and " + std::to_string(pending) +
                 " of them are written",
             std::to_string(rows));
  }
  for (const Sequence::State* state : states)
    state->groups[impl_->places[number].group]->keep_overwritten(state->length + state->pending[number] +
                                                                 rows);
  for (std::int64_t n = 0; n < count; ++n) {
    Sequence::State& state = *states[static_cast<std::size_t>(n)];
    const std::int64_t pending = state.pending[number];
    const Impl::Place& place = impl_->places[number];
    Rows& group = *state.groups[place.group];
    KeptVector<Written> written;
    for (std::int64_t row = 0; row < rows; row += written.back().slots.count)
      written.push_back({row, group.slots(state.length + pending + row, rows - row)});
    const std::int64_t heads = spec.num_kv_heads;
    const ConstTensorView keys = key.slice(0, n, 1),
                          values = has_values ? value.slice(0, n, 1) : ConstTensorView();
    // A prompt of 512 tokens with 8 heads of 128 copies 4 MB a layer.
    const bool small = rows * heads * (spec.head_dim + spec.value_dim) <= elements_of_piece;
    (small ? serial_executor() : default_executor())
        .parallel_for(std::ssize(written) * heads, [&](std::int64_t unit, int) {
          const Written& to = written[static_cast<std::size_t>(unit / heads)];
          const std::int64_t h = unit % heads;
          write_rows(keys, h, to, to.slots.row(place.index, h, false), spec.dtype);
          if (has_values) write_rows(values, h, to, to.slots.row(place.index, h, true), spec.dtype);
        });
  }
  for (Sequence::State* state : states) state->pending[number] += rows;  // an executor may be cancelled
}

}  // namespace fovea
