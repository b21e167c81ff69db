// The depthwise causal convolution, forward and backward. A unit is a block of tokens by a tile of channels;
// vectors lie along channels. The last `width` rows of the input are kept in a ring, widened to T.
//
// Backward goes from the last token to the first. The gradient of input s is the sum over the tokens s +
// width
// - 1, ..., s, in this order, behind the derivative by the final state. A cut of the sequence cuts this sum
// where the state is handed over, so it keeps the bits of these gradients.
#if defined(FOVEA_RECURRENCE_CAUSAL_CONV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_CAUSAL_CONV_INL_H_
#undef FOVEA_RECURRENCE_CAUSAL_CONV_INL_H_
#else
#define FOVEA_RECURRENCE_CAUSAL_CONV_INL_H_
#endif

#include "fovea/core/cancellation.h"
#include "kernels/recurrence/causal_conv.h"
#include "kernels/recurrence/gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Channels [first, first + count); rows in the workspace have `stride` elements.
struct ConvTile {
  int64_t first, count, stride;
};
template <class T>
HWY_INLINE int64_t ConvTiles(const ConvProblem<T>& p) {
  return (p.channels + conv_channels - 1) / conv_channels;
}
template <class T>
HWY_INLINE ConvTile ConvTileOf(const ConvProblem<T>& p, int64_t tile) {
  const int64_t first = tile * conv_channels, count = HWY_MIN(conv_channels, p.channels - first);
  return {first, count, Padded<T>(count)};
}

/// What all units read: weights by taps, and the blocks.
template <class T>
struct ConvShared {
  T *weight, *bias;  // [width][padded channels], [padded channels]
  TokenBlock* blocks;
  T* partial;  // [blocks][width + 1][padded channels]: gradients of the weights and of the bias
  int64_t padded, block_count;
};
template <class T>
HWY_INLINE ConvShared<T> TakeConvShared(const ConvProblem<T>& p, bool backward, Carve& carve) {
  const int64_t padded = Padded<T>(p.channels), most = most_blocks(p.rows, p.sequence_count, conv_tokens);
  return {carve.Take<T>(p.width * padded),
          carve.Take<T>(padded),
          carve.Take<TokenBlock>(most),
          backward ? carve.Take<T>(most * (p.width + 1) * padded) : nullptr,
          padded,
          0};
}
template <class T>
HWY_INLINE void FillConvShared(const ConvProblem<T>& p, ConvShared<T>& s) {
  Fill(T{0}, p.width * s.padded, s.weight);
  Fill(T{0}, s.padded, s.bias);
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int64_t j = 0; j < p.width; ++j) s.weight[j * s.padded + c] = p.weight[c * p.width + j];
    if (p.bias) s.bias[c] = p.bias[c];
  }
  s.block_count = make_blocks(p.sequences, p.sequence_count, conv_tokens, s.blocks);
}

/// The rows of one unit: rings of `width` rows, and single rows.
template <class T>
struct ConvRows {
  T *inputs, *gradients;  // [width][stride]: inputs, and the gradients of the same positions
  T *row, *derivative;    // [stride]
  T* sums;                // [width + 1][stride]
};
template <class T>
HWY_INLINE ConvRows<T> TakeConvRows(const ConvProblem<T>& p, bool backward, Carve& carve) {
  const int64_t stride = Padded<T>(HWY_MIN(conv_channels, p.channels));
  const auto take = [&](bool wanted, int64_t rows) {
    return wanted ? carve.Take<T>(rows * stride) : nullptr;
  };
  return {take(true, p.width), take(backward, p.width), take(true, 1), take(backward, 1),
          take(backward, p.width + 1)};
}
template <class T>
HWY_INLINE int64_t ConvSlot(const ConvProblem<T>& p, int64_t position) {
  return (position + p.width) % p.width;
}

/// The input at a position of sequence n, from -(width - 1) on.
template <class T>
HWY_INLINE void ReadInput(const ConvProblem<T>& p, int64_t n, int64_t position, int64_t first, int64_t count,
                          T* to) {
  const TokenSequence& sequence = p.sequences[n];
  if (position >= 0)
    read_stored(p.x, sequence.entry, sequence.row(position), first, count, to);
  else if (const T* state = p.initial_state.of(n, p.state_size()))
    Copy(state + (p.width - 1 + position) * p.channels + first, count, to);
  else
    Fill(T{0}, count, to);
}
template <class T>
HWY_INLINE void ReadIntoRing(const ConvProblem<T>& p, int64_t n, int64_t position, const ConvTile& tile,
                             T* inputs) {
  T* row = inputs + ConvSlot(p, position) * tile.stride;
  ReadInput(p, n, position, tile.first, tile.count, row);
  Fill(T{0}, tile.stride - tile.count, row + tile.count);
}

/// The sum of the taps of a token, before its activation, for one vector of channels.
template <class T, class D = hn::ScalableTag<T>>
HWY_INLINE hn::Vec<D> TapSum(const ConvProblem<T>& p, const ConvShared<T>& s, const ConvTile& tile,
                             const T* const* rows, int64_t at) {
  const D d;
  auto sum = hn::LoadU(d, s.bias + tile.first + at);
  for (int64_t j = 0; j < p.width; ++j)
    sum =
        hn::MulAdd(hn::LoadU(d, s.weight + j * s.padded + tile.first + at), hn::LoadU(d, rows[j] + at), sum);
  return sum;
}
/// The rows of a ring that token t reads, or whose gradients it adds to: of positions t - width + 1, ..., t.
template <class T>
HWY_INLINE void RowsOfToken(const ConvProblem<T>& p, int64_t t, int64_t stride, T* ring, T** rows) {
  for (int64_t j = 0; j < p.width; ++j) rows[j] = ring + ConvSlot(p, t - p.width + 1 + j) * stride;
}

template <class T>
HWY_NOINLINE void ConvForwardUnit(const ConvProblem<T>& p, const ConvResults<T>& results,
                                  const ConvShared<T>& shared, const TokenBlock& block, const ConvTile& tile,
                                  std::byte* memory) {
  const hn::ScalableTag<T> d;
  Carve carve(memory);
  const ConvRows<T> r = TakeConvRows(p, false, carve);
  const TokenSequence& sequence = p.sequences[block.sequence];
  for (int64_t s = block.begin - p.width + 1; s < block.begin; ++s)
    ReadIntoRing(p, block.sequence, s, tile, r.inputs);
  T* rows[conv_most_width];
  for (int64_t t = block.begin; t < block.end; ++t) {
    ReadIntoRing(p, block.sequence, t, tile, r.inputs);
    RowsOfToken(p, t, tile.stride, r.inputs, rows);
    for (int64_t at = 0; at < tile.stride; at += static_cast<int64_t>(hn::Lanes(d))) {
      auto sum = TapSum(p, shared, tile, rows, at);
      if (p.silu) sum = hn::Mul(sum, Sigmoid(d, sum));
      hn::StoreU(sum, d, r.row + at);
    }
    write_stored(r.row, tile.first, tile.count, results.output, sequence.entry, sequence.row(t));
  }
}

template <class T>
size_t ConvForwardBytes(const ConvProblem<T>& p, int threads) {
  Carve shared(nullptr), unit(nullptr);
  TakeConvShared(p, false, shared);
  TakeConvRows(p, false, unit);
  return shared.Used() + FromThreadToThread(unit.Used()) * static_cast<size_t>(threads);
}

template <class T>
void ConvForward(const ConvProblem<T>& p, const ConvResults<T>& results, Executor& executor,
                 std::byte* memory) {
  Carve carve(memory), unit_carve(nullptr);
  ConvShared<T> shared = TakeConvShared(p, false, carve);
  FillConvShared(p, shared);
  TakeConvRows(p, false, unit_carve);
  const size_t bytes = FromThreadToThread(unit_carve.Used());
  std::byte* units = memory + carve.Used();
  const int64_t tiles = ConvTiles(p);
  if (results.output.data) {
    executor.parallel_for(shared.block_count * tiles, [&](int64_t unit, int worker) {
      throw_if_cancelled();
      ConvForwardUnit(p, results, shared, shared.blocks[unit / tiles], ConvTileOf(p, unit % tiles),
                      units + bytes * static_cast<size_t>(worker));
    });
  }
  if (!results.final_state) return;
  // Behind all outputs, because it may be the memory of the initial state. Rows move towards the front.
  executor.parallel_for(p.sequence_count, [&](int64_t n, int) {
    T* const state = results.final_state.of(n, p.state_size());
    for (int64_t i = 0; i < p.width - 1; ++i)
      ReadInput(p, n, p.sequences[n].count - p.width + 1 + i, 0, p.channels, state + i * p.channels);
  });
}

/// The derivative by the sum of taps of token t: d_output, times the derivative of the activation.
template <class T>
HWY_INLINE void TapDerivative(const ConvProblem<T>& p, const ConvGradientProblem<T>& g,
                              const ConvShared<T>& shared, const TokenBlock& block, int64_t t,
                              const ConvTile& tile, const ConvRows<T>& r) {
  const hn::ScalableTag<T> d;
  const TokenSequence& sequence = p.sequences[block.sequence];
  Fill(T{0}, tile.stride, r.derivative);
  if (!g.d_output.data) return;
  read_stored(g.d_output, sequence.entry, sequence.row(t), tile.first, tile.count, r.derivative);
  if (!p.silu) return;
  T* rows[conv_most_width];
  RowsOfToken(p, t, tile.stride, r.inputs, rows);
  for (int64_t at = 0; at < tile.stride; at += static_cast<int64_t>(hn::Lanes(d))) {
    const auto sum = TapSum(p, shared, tile, rows, at), share = Sigmoid(d, sum);
    hn::StoreU(hn::Mul(hn::LoadU(d, r.derivative + at), SiluSlope(d, sum, share)), d, r.derivative + at);
  }
}

/// The gradient of the input at a position starts as the derivative by the final state, which holds the last
/// inputs.
template <class T>
HWY_INLINE void StartGradient(const ConvProblem<T>& p, const ConvGradientProblem<T>& g, int64_t n,
                              int64_t position, const ConvTile& tile, T* gradients) {
  T* row = gradients + ConvSlot(p, position) * tile.stride;
  Fill(T{0}, tile.stride, row);
  const int64_t kept = position - (p.sequences[n].count - p.width + 1);
  if (g.d_final_state && kept >= 0)
    Copy(g.d_final_state + (n * (p.width - 1) + kept) * p.channels + tile.first, tile.count, row);
}

template <class T>
HWY_NOINLINE void ConvBackwardUnit(const ConvProblem<T>& p, const ConvGradientProblem<T>& g,
                                   const ConvShared<T>& shared, int64_t block_index, const ConvTile& tile,
                                   std::byte* memory) {
  const hn::ScalableTag<T> d;
  Carve carve(memory);
  const ConvRows<T> r = TakeConvRows(p, true, carve);
  const TokenBlock& block = shared.blocks[block_index];
  const int64_t n = block.sequence, stride = tile.stride;
  const TokenSequence& sequence = p.sequences[n];
  Fill(T{0}, (p.width + 1) * stride, r.sums);
  // Tokens behind the block read inputs of it.
  const int64_t top = HWY_MIN(block.end + p.width - 1, sequence.count);
  for (int64_t s = top - p.width + 1; s < top; ++s) {
    ReadIntoRing(p, n, s, tile, r.inputs);
    StartGradient(p, g, n, s, tile, r.gradients);
  }
  T *inputs[conv_most_width], *gradients[conv_most_width];
  for (int64_t t = top - 1; t >= block.begin; --t) {
    ReadIntoRing(p, n, t - p.width + 1, tile, r.inputs);
    StartGradient(p, g, n, t - p.width + 1, tile, r.gradients);
    TapDerivative(p, g, shared, block, t, tile, r);
    RowsOfToken(p, t, stride, r.inputs, inputs);
    RowsOfToken(p, t, stride, r.gradients, gradients);
    const bool own = t < block.end;
    for (int64_t at = 0; at < stride; at += static_cast<int64_t>(hn::Lanes(d))) {
      const auto derivative = hn::LoadU(d, r.derivative + at);
      for (int64_t j = 0; j < p.width; ++j) {
        const auto weight = hn::LoadU(d, shared.weight + j * shared.padded + tile.first + at);
        hn::StoreU(hn::MulAdd(weight, derivative, hn::LoadU(d, gradients[j] + at)), d, gradients[j] + at);
        if (!own) continue;
        T* sum = r.sums + j * stride + at;
        hn::StoreU(hn::MulAdd(hn::LoadU(d, inputs[j] + at), derivative, hn::LoadU(d, sum)), d, sum);
      }
      T* sum = r.sums + p.width * stride + at;
      if (own) hn::StoreU(hn::Add(hn::LoadU(d, sum), derivative), d, sum);
    }
    if (own && g.x.data)
      write_stored(gradients[p.width - 1], tile.first, tile.count, g.x, sequence.entry, sequence.row(t));
  }
  for (int64_t j = 0; j <= p.width; ++j)
    Copy(r.sums + j * stride, stride,
         shared.partial + (block_index * (p.width + 1) + j) * shared.padded + tile.first);
  if (block.begin > 0 || !g.initial_state) return;
  for (int64_t s = -p.width + 1; s < 0; ++s)
    Copy(r.gradients + ConvSlot(p, s) * stride, tile.count,
         g.initial_state + ((n + 1) * (p.width - 1) + s) * p.channels + tile.first);
}

template <class T>
size_t ConvBackwardBytes(const ConvProblem<T>& p, int threads) {
  Carve shared(nullptr), unit(nullptr);
  TakeConvShared(p, true, shared);
  TakeConvRows(p, true, unit);
  return shared.Used() + FromThreadToThread(unit.Used()) * static_cast<size_t>(threads);
}

/// The gradients of weights and bias: partial sums in the order of the blocks.
template <class T>
void ReduceConv(const ConvProblem<T>& p, const ConvGradientProblem<T>& g, const ConvShared<T>& shared,
                Executor& executor, std::byte* units, size_t bytes) {
  if (!g.weight && !g.bias) return;
  executor.parallel_for(ConvTiles(p), [&](int64_t index, int worker) {
    const ConvTile tile = ConvTileOf(p, index);
    Carve carve(units + bytes * static_cast<size_t>(worker));
    T* sums = TakeConvRows(p, true, carve).sums;
    Fill(T{0}, (p.width + 1) * tile.stride, sums);
    for (int64_t row = 0; row < shared.block_count * (p.width + 1); ++row)
      AddScaled(T(1), shared.partial + row * shared.padded + tile.first, tile.stride,
                sums + row % (p.width + 1) * tile.stride);
    for (int64_t c = 0; c < tile.count; ++c) {
      for (int64_t j = 0; g.weight && j < p.width; ++j)
        g.weight[(tile.first + c) * p.width + j] = sums[j * tile.stride + c];
      if (g.bias) g.bias[tile.first + c] = sums[p.width * tile.stride + c];
    }
  });
}

template <class T>
void ConvBackward(const ConvProblem<T>& p, const ConvGradientProblem<T>& g, Executor& executor,
                  std::byte* memory) {
  Carve carve(memory), unit_carve(nullptr);
  ConvShared<T> shared = TakeConvShared(p, true, carve);
  FillConvShared(p, shared);
  TakeConvRows(p, true, unit_carve);
  const size_t bytes = FromThreadToThread(unit_carve.Used());
  std::byte* units = memory + carve.Used();
  const int64_t tiles = ConvTiles(p);
  executor.parallel_for(shared.block_count * tiles, [&](int64_t unit, int worker) {
    throw_if_cancelled();
    ConvBackwardUnit(p, g, shared, unit / tiles, ConvTileOf(p, unit % tiles),
                     units + bytes * static_cast<size_t>(worker));
  });
  ReduceConv(p, g, shared, executor, units, bytes);
  // A sequence without tokens has no block: its state is handed on.
  const int64_t size = (p.width - 1) * p.channels;
  for (int64_t n = 0; g.initial_state && n < p.sequence_count; ++n) {
    if (p.sequences[n].count > 0) continue;
    if (g.d_final_state)
      Copy(g.d_final_state + n * size, size, g.initial_state + n * size);
    else
      Fill(T{0}, size, g.initial_state + n * size);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
