// Rows are written into a cache.
#include <cstring>
#include <string>

#include "cache/checks.h"
#include "cache/sequence.h"
#include "fovea/cache/kv_cache.h"

namespace fovea {

using cache::BlockLayout;
using cache::checked_layer;
using cache::described;
using cache::expect_store;
using cache::Keeps;
using cache::refuse;
using cache::Rows;
using cache::Slots;

namespace {

// Rows of one head: `to` is contiguous.
template <class To>
void convert_row(const float* from, std::int64_t dim, std::byte* to) {
  auto* out = reinterpret_cast<To*>(to);
  for (std::int64_t d = 0; d < dim; ++d) out[d] = To(from[d]);
}

void write_row(DType from, const std::byte* source, DType to, std::int64_t dim, std::byte* target) {
  if (from == to) {
    std::memcpy(target, source, static_cast<std::size_t>(dim) * size_of(to));
  } else if (to == DType::bf16) {
    convert_row<bfloat16>(reinterpret_cast<const float*>(source), dim, target);
  } else {
    convert_row<float16>(reinterpret_cast<const float*>(source), dim, target);
  }
}

// Rows [first, first + slots.count) of x [1, heads, rows, dim] into a block whose keys, or values, of head 0
// begin at `offset`, and those of the next head `head_bytes` behind them.
void write_rows(const ConstTensorView& x, std::int64_t first, const Slots& slots, std::int64_t offset,
                std::int64_t head_bytes, DType dtype) {
  const std::int64_t dim = x.size(3), row_bytes = dim * static_cast<std::int64_t>(size_of(dtype)),
                     element = static_cast<std::int64_t>(size_of(x.dtype()));
  for (std::int64_t h = 0; h < x.size(1); ++h) {
    std::byte* to = slots.block + offset + h * head_bytes + slots.slot * row_bytes;
    for (std::int64_t r = 0; r < slots.count; ++r)
      write_row(x.dtype(), x.raw() + (h * x.stride(1) + (first + r) * x.stride(2)) * element, dtype, dim,
                to + r * row_bytes);
  }
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
    std::int64_t& pending = state.pending[number];
    const Impl::Place& place = impl_->places[number];
    Rows& group = *state.groups[place.group];
    for (std::int64_t row = 0; row < rows;) {
      const Slots slots = group.slots(state.length + pending + row, rows - row);
      const BlockLayout::Layer& at = group.layout().layers[place.index];
      const std::int64_t head_bytes = at.head_bytes(group.layout().rows);
      write_rows(key.slice(0, n, 1), row, slots, at.key_offset, head_bytes, spec.dtype);
      if (has_values) write_rows(value.slice(0, n, 1), row, slots, at.value_offset, head_bytes, spec.dtype);
      row += slots.count;
    }
    pending += rows;
  }
}

}  // namespace fovea
