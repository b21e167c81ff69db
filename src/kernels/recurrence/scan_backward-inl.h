// Backward of the selective scan. A first pass keeps the state before every block of tokens. Then the blocks
// go backwards. The states and decays of a block are computed again and kept. G, the derivative by the state,
// goes through its tokens from the last to the first. With dy the derivative by the output before its gate:
//
//   G += C dy        dC = Σ h dy        dB = Σ G Δx       sums over the channels of a group
//   dx = D dy + Δ Σ_n B G               dD = Σ x dy
//   F = decay ∘ G ∘ h₋                  dA = Σ Δ F        dΔ = Σ_n A F + x Σ_n B G
//   G ← decay ∘ G
//
// The sums over channels stay sums of vectors until all vectors of a tile are done. Those that several tiles,
// or several sequences, add to are partial sums, added in a fixed order.
#if defined(FOVEA_RECURRENCE_SCAN_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_SCAN_BACKWARD_INL_H_
#undef FOVEA_RECURRENCE_SCAN_BACKWARD_INL_H_
#else
#define FOVEA_RECURRENCE_SCAN_BACKWARD_INL_H_
#endif

#include "kernels/recurrence/scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The rows of a unit beside ScanRows: [32][stride], and of vectors [32][state_dim][lanes].
template <class T>
struct ScanGradientRows {
  T *slopes, *gates, *d_output, *derivative;  // dΔ/d delta, z, the derivative behind and before the gate
  T *of_inputs, *of_decays;                   // Σ_n B G and Σ_n rate F
  T *states, *decays;                         // [33] and [32]
  T *d_b, *d_c;
  T *g, *d_a;       // [state_dim][stride]
  T *d_d, *d_bias;  // [stride]
  T* before;        // [blocks][state_dim][stride]: the states before every block
};
template <class T>
HWY_INLINE ScanGradientRows<T> TakeScanGradientRows(const ScanProblem<T>& p, Carve& carve) {
  const int64_t stride = ScanStride(p), rows = scan_tokens * stride, states = p.state_dim * stride,
                vectors = scan_tokens * p.state_dim * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())),
                blocks = (p.longest + scan_tokens - 1) / scan_tokens;
  return {carve.Take<T>(rows),
          carve.Take<T>(rows),
          carve.Take<T>(rows),
          carve.Take<T>(rows),
          carve.Take<T>(rows),
          carve.Take<T>(rows),
          carve.Take<T>(vectors / scan_tokens * (scan_tokens + 1)),
          carve.Take<T>(vectors),
          carve.Take<T>(vectors),
          carve.Take<T>(vectors),
          carve.Take<T>(states),
          carve.Take<T>(states),
          carve.Take<T>(stride),
          carve.Take<T>(stride),
          carve.Take<T>(blocks * states)};
}

/// Partial sums of a call.
template <class T>
struct ScanPartials {
  T *b, *c;     // [tiles of a group][rows][groups][state_dim]
  T* a;         // [sequences][channels][state_dim]
  T *d, *bias;  // [sequences][channels]
  int64_t dim;  // groups · state_dim

  HWY_INLINE int64_t Offset(const ScanProblem<T>& p, int64_t tile, int64_t group,
                            const TokenSequence& sequence, int64_t t) const {
    return (tile * p.rows + sequence.entry * p.len + sequence.row(t)) * dim + group * p.state_dim;
  }
};
template <class T>
HWY_INLINE ScanPartials<T> TakeScanPartials(const ScanProblem<T>& p, Carve& carve) {
  const int64_t dim = p.groups * p.state_dim, rows = ScanTilesOfGroup(p) * p.rows * dim;
  return {carve.Take<T>(rows),
          carve.Take<T>(rows),
          carve.Take<T>(p.sequence_count * p.channels * p.state_dim),
          carve.Take<T>(p.sequence_count * p.channels),
          carve.Take<T>(p.sequence_count * p.channels),
          dim};
}

/// Gates, and the derivatives before them.
template <class T>
HWY_NOINLINE void GatherDerivatives(const ScanProblem<T>& p, const ScanGradientProblem<T>& g,
                                    const TokenSequence& sequence, int64_t begin, int64_t count,
                                    const ScanTile& tile, const ScanGradientRows<T>& b) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * tile.stride;
    if (g.d_output.data)
      ReadTile(g.d_output, sequence, begin + i, tile, b.d_output + at);
    else
      Fill(T{0}, tile.stride, b.d_output + at);
    Copy(b.d_output + at, tile.stride, b.derivative + at);
    if (!p.z.data) continue;
    ReadTile(p.z, sequence, begin + i, tile, b.gates + at);
    for (int64_t j = at; j < at + tile.columns; j += static_cast<int64_t>(hn::Lanes(d))) {
      const auto z = hn::LoadU(d, b.gates + j);
      hn::StoreU(hn::Mul(hn::LoadU(d, b.d_output + j), hn::Mul(z, Sigmoid(d, z))), d, b.derivative + j);
    }
  }
}

#define FOVEA_UNROLL _Pragma("GCC unroll 8")
/// Elements [n, n + kStates) of one vector of channels, from the last token of a block to the first.
template <int kStates, class T>
HWY_INLINE void ScanStatesBackward(const ScanProblem<T>& p, int64_t count, int64_t stride, int64_t at,
                                   int64_t n, const ScanRows<T>& r, const ScanGradientRows<T>& b) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = p.state_dim;
  V g[kStates], d_a[kStates];
  FOVEA_UNROLL for (int i = 0; i < kStates; ++i) {
    g[i] = hn::LoadU(d, b.g + (n + i) * stride + at);
    d_a[i] = hn::LoadU(d, b.d_a + (n + i) * stride + at);
  }
  for (int64_t t = count - 1; t >= 0; --t) {
    const int64_t row = t * stride + at;
    const V step = hn::LoadU(d, r.step + row), input = hn::LoadU(d, r.input + row),
            derivative = hn::LoadU(d, b.derivative + row);
    V of_inputs = hn::LoadU(d, b.of_inputs + row), of_decays = hn::LoadU(d, b.of_decays + row);
    FOVEA_UNROLL for (int i = 0; i < kStates; ++i) {
      const int64_t element = (t * dim + n + i) * lanes;
      T *d_b = b.d_b + element, *d_c = b.d_c + element;
      g[i] = hn::MulAdd(hn::Set(d, r.c[t * dim + n + i]), derivative, g[i]);
      const V after = hn::LoadU(d, b.states + element + dim * lanes);
      hn::StoreU(hn::MulAdd(derivative, after, hn::LoadU(d, d_c)), d, d_c);
      hn::StoreU(hn::MulAdd(g[i], input, hn::LoadU(d, d_b)), d, d_b);
      of_inputs = hn::MulAdd(hn::Set(d, r.b[t * dim + n + i]), g[i], of_inputs);
      g[i] = hn::Mul(g[i], hn::LoadU(d, b.decays + element));
      const V f = hn::Mul(g[i], hn::LoadU(d, b.states + element));
      d_a[i] = hn::MulAdd(f, step, d_a[i]);
      of_decays = hn::MulAdd(f, hn::LoadU(d, r.rate + (n + i) * stride + at), of_decays);
    }
    hn::StoreU(of_inputs, d, b.of_inputs + row);
    hn::StoreU(of_decays, d, b.of_decays + row);
  }
  FOVEA_UNROLL for (int i = 0; i < kStates; ++i) {
    hn::StoreU(g[i], d, b.g + (n + i) * stride + at);
    hn::StoreU(d_a[i], d, b.d_a + (n + i) * stride + at);
  }
}
#undef FOVEA_UNROLL

template <class T>
HWY_NOINLINE void ScanVectorBackward(const ScanProblem<T>& p, int64_t count, int64_t stride, int64_t at,
                                     const ScanRows<T>& r, const ScanGradientRows<T>& b) {
  int64_t n = 0;
  for (; n + kScanStates <= p.state_dim; n += kScanStates)
    ScanStatesBackward<kScanStates>(p, count, stride, at, n, r, b);
  for (; n < p.state_dim; ++n) ScanStatesBackward<1>(p, count, stride, at, n, r, b);
}

/// The gradients of the tokens of a block, from the sums over n.
template <class T>
HWY_NOINLINE void WriteScanGradients(const ScanProblem<T>& p, const ScanGradientProblem<T>& g,
                                     const TokenSequence& sequence, int64_t begin, int64_t count,
                                     const ScanTile& tile, const ScanRows<T>& r,
                                     const ScanGradientRows<T>& b) {
  const hn::ScalableTag<T> d;
  const auto ln2 = hn::Set(d, static_cast<T>(kLn2));
  const auto write = [&](const T* row, const StoredRows<std::byte>& to, int64_t i) {
    if (to.data) write_stored(row, tile.first, tile.count, to, sequence.entry, sequence.row(begin + i));
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * tile.stride;
    for (int64_t j = 0; j < tile.columns; j += static_cast<int64_t>(hn::Lanes(d))) {
      const int64_t e = at + j;
      const auto x = hn::LoadU(d, r.x + e), derivative = hn::LoadU(d, b.derivative + e),
                 of_inputs = hn::LoadU(d, b.of_inputs + e);
      const auto d_x =
          hn::MulAdd(hn::LoadU(d, r.step + e), of_inputs, hn::Mul(hn::LoadU(d, r.d + j), derivative));
      const auto d_step = hn::MulAdd(hn::LoadU(d, b.of_decays + e), ln2, hn::Mul(x, of_inputs));
      const auto d_delta = hn::Mul(d_step, hn::LoadU(d, b.slopes + e));
      hn::StoreU(hn::MulAdd(x, derivative, hn::LoadU(d, b.d_d + j)), d, b.d_d + j);
      hn::StoreU(hn::Add(d_delta, hn::LoadU(d, b.d_bias + j)), d, b.d_bias + j);
      hn::StoreU(d_x, d, r.x + e);
      hn::StoreU(d_delta, d, r.step + e);
      if (!p.z.data) continue;
      const auto z = hn::LoadU(d, b.gates + e);
      const auto d_gated = hn::Mul(hn::LoadU(d, b.d_output + e), hn::LoadU(d, r.output + e));
      hn::StoreU(hn::Mul(d_gated, SiluSlope(d, z, Sigmoid(d, z))), d, r.output + e);
    }
    write(r.x + at, g.x, i);
    write(r.step + at, g.delta, i);
    write(r.output + at, g.z, i);
  }
}

template <class T>
HWY_INLINE void StorePartials(const ScanProblem<T>& p, const TokenSequence& sequence, int64_t begin,
                              int64_t count, const ScanTile& tile, const ScanGradientRows<T>& b,
                              const ScanPartials<T>& partials) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = p.state_dim;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = partials.Offset(p, tile.index, tile.group, sequence, begin + i);
    for (int64_t n = 0; n < dim; ++n) {
      const int64_t element = (i * dim + n) * lanes;
      partials.b[to + n] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, b.d_b + element)));
      partials.c[to + n] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, b.d_c + element)));
    }
  }
}

template <class T>
HWY_NOINLINE void ScanBackwardUnit(const ScanProblem<T>& p, const ScanGradientProblem<T>& g, int64_t n,
                                   const ScanTile& tile, const ScanPartials<T>& partials, std::byte* memory) {
  const FlushSubnormals flush;
  Carve carve(memory);
  const ScanRows<T> r = TakeScanRows(p, carve);
  const ScanGradientRows<T> b = TakeScanGradientRows(p, carve);
  const TokenSequence& sequence = p.sequences[n];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), stride = tile.stride,
                states = p.state_dim * stride, blocks = (sequence.count + scan_tokens - 1) / scan_tokens;
  const auto count_of = [&](int64_t block) {
    return HWY_MIN(scan_tokens, sequence.count - block * scan_tokens);
  };
  PrepareScan(p, n, tile, r);
  for (int64_t block = 0; block < blocks; ++block) {
    throw_if_cancelled();
    Copy(r.state, states, b.before + block * states);
    if (block + 1 == blocks) break;
    GatherScan<T>(p, sequence, block * scan_tokens, scan_tokens, tile, r, nullptr);
    ScanFetch fetch{r.fetched};
    const int64_t next = (block + 1) * scan_tokens;
    fetch.Add(p.x, sequence, next, count_of(block + 1), tile);
    fetch.Add(p.delta, sequence, next, count_of(block + 1), tile);
    for (int64_t at = 0; at < tile.columns; at += lanes)
      ScanVector<false, T>(p, scan_tokens, stride, at, r, fetch, nullptr, nullptr);
  }
  LoadStates(p, tile, StateOf(p, g.d_final_state, n), b.g);
  Fill(T{0}, states, b.d_a);
  Fill(T{0}, stride, b.d_d);
  Fill(T{0}, stride, b.d_bias);
  for (int64_t block = blocks - 1; block >= 0; --block) {
    throw_if_cancelled();
    const int64_t begin = block * scan_tokens, count = count_of(block);
    Copy(b.before + block * states, states, r.state);
    GatherScan(p, sequence, begin, count, tile, r, b.slopes);
    GatherDerivatives(p, g, sequence, begin, count, tile, b);
    Fill(T{0}, count * stride, b.of_inputs);
    Fill(T{0}, count * stride, b.of_decays);
    Fill(T{0}, count * p.state_dim * lanes, b.d_b);
    Fill(T{0}, count * p.state_dim * lanes, b.d_c);
    ScanFetch fetch{r.fetched};
    if (block > 0) {
      for (const StoredRows<const std::byte>& rows : {p.x, p.delta, p.z, g.d_output})
        fetch.Add(rows, sequence, begin - scan_tokens, scan_tokens, tile);
    }
    for (const StoredRows<std::byte>& rows : {g.x, g.delta, g.z})
      fetch.Add(rows, sequence, begin, count, tile);
    for (int64_t at = 0; at < tile.columns; at += lanes) {
      ScanVector<true>(p, count, stride, at, r, fetch, b.states, b.decays);
      ScanVectorBackward(p, count, stride, at, r, b);
    }
    WriteScanGradients(p, g, sequence, begin, count, tile, r, b);
    StorePartials(p, sequence, begin, count, tile, b, partials);
  }
  StoreStates(p, tile, b.d_a, StateOf(p, partials.a, n));
  Copy(b.d_d, tile.count, partials.d + n * p.channels + tile.first);
  Copy(b.d_bias, tile.count, partials.bias + n * p.channels + tile.first);
  if (g.initial_state) StoreStates(p, tile, b.g, StateOf(p, g.initial_state, n));
}

/// to[i] = the sum of slots[s][i] in the order of s.
template <class T>
HWY_INLINE void SumSlots(const T* slots, int64_t slot_count, int64_t count, T* to) {
  if (!to) return;
  Fill(T{0}, count, to);
  for (int64_t slot = 0; slot < slot_count; ++slot) AddScaled(T(1), slots + slot * count, count, to);
}

/// Gradients of b and of c: the sum over the tiles of a group, in the place of the first.
template <class T>
void ReduceScanRows(const ScanProblem<T>& p, T* partial, const ScanPartials<T>& partials,
                    const StoredRows<std::byte>& to, int64_t group_stride, Executor& executor) {
  if (!to.data) return;
  executor.parallel_for(p.sequence_count * p.groups, [&](int64_t unit, int) {
    const TokenSequence& sequence = p.sequences[unit / p.groups];
    const int64_t group = unit % p.groups;
    for (int64_t t = 0; t < sequence.count; ++t) {
      T* sum = partial + partials.Offset(p, 0, group, sequence, t);
      for (int64_t tile = 1; tile < ScanTilesOfGroup(p); ++tile)
        AddScaled(T(1), partial + partials.Offset(p, tile, group, sequence, t), p.state_dim, sum);
      write_stored(sum, group * group_stride, p.state_dim, to, sequence.entry, sequence.row(t));
    }
  });
}

template <class T>
size_t ScanBackwardUnitBytes(const ScanProblem<T>& p) {
  Carve carve(nullptr);
  TakeScanRows(p, carve);
  TakeScanGradientRows(p, carve);
  return carve.Used();
}
template <class T>
size_t ScanBackwardBytes(const ScanProblem<T>& p, int threads) {
  Carve carve(nullptr);
  TakeScanPartials(p, carve);
  return carve.Used() + FromThreadToThread(ScanBackwardUnitBytes(p)) * static_cast<size_t>(threads);
}
template <class T>
void ScanBackward(const ScanProblem<T>& p, const ScanGradientProblem<T>& g, Executor& executor,
                  std::byte* memory) {
  Carve carve(memory);
  const ScanPartials<T> partials = TakeScanPartials(p, carve);
  std::byte* units = memory + carve.Used();
  const size_t bytes = FromThreadToThread(ScanBackwardUnitBytes(p));
  const int64_t tiles = ScanTiles(p);
  executor.parallel_for(p.sequence_count * tiles, [&](int64_t unit, int worker) {
    ScanBackwardUnit(p, g, unit / tiles, ScanTileOf(p, unit % tiles), partials,
                     units + bytes * static_cast<size_t>(worker));
  });
  ReduceScanRows(p, partials.b, partials, g.b, g.b_group, executor);
  ReduceScanRows(p, partials.c, partials, g.c, g.c_group, executor);
  SumSlots(partials.a, p.sequence_count, p.channels * p.state_dim, g.a);
  SumSlots(partials.d, p.sequence_count, p.channels, g.d);
  SumSlots(partials.bias, p.sequence_count, p.channels, g.delta_bias);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
