// Forward of the selective scan. A unit is a sequence and a tile of channels, which goes through the tokens
// in blocks; vectors lie along channels. The elements n of a state are few (16). Some of them stay in
// registers while the tokens of a block go by. Each costs an exponential a token, which is what limits the
// scan.
//
// Words: `step` is Δ, `input` is Δ·x, and `rate` is A·log2(e), so that a decay is 2^(Δ·rate).
#if defined(FOVEA_RECURRENCE_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_SCAN_INL_H_
#undef FOVEA_RECURRENCE_SCAN_INL_H_
#else
#define FOVEA_RECURRENCE_SCAN_INL_H_
#endif

#include "fovea/core/cancellation.h"
#include "kernels/recurrence/gates-inl.h"
#include "kernels/recurrence/scan.h"
#include "kernels/simd/subnormals.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Elements of a state in registers at once. AVX2 has 16 registers, which the exponential needs half of.
constexpr int kScanStates = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 8 : 4;
constexpr double kLog2E = 1.44269504088896340736, kLn2 = 0.69314718055994530942;

/// Channels [first, first + count) of a group; `columns` are whole vectors of them. Rows in the workspace
/// have `stride` elements, 64 bytes more than their columns. Without these the rows of a vector, 512 bytes
/// apart, would share an eighth of the first-level cache.
struct ScanTile {
  int64_t group, index, first, count, columns, stride;  // index: of the tile within its group
};
template <class T>
HWY_INLINE int64_t ScanStrideOf(int64_t channels) {
  return Padded<T>(channels) + 64 / static_cast<int64_t>(sizeof(T));
}
template <class T>
HWY_INLINE int64_t ScanTilesOfGroup(const ScanProblem<T>& p) {
  return (p.group_channels() + scan_channels - 1) / scan_channels;
}
template <class T>
HWY_INLINE int64_t ScanTiles(const ScanProblem<T>& p) {
  return p.groups * ScanTilesOfGroup(p);
}
template <class T>
HWY_INLINE ScanTile ScanTileOf(const ScanProblem<T>& p, int64_t tile) {
  const int64_t tiles = ScanTilesOfGroup(p), group = tile / tiles, index = tile % tiles;
  const int64_t begin = index * scan_channels, count = HWY_MIN(scan_channels, p.group_channels() - begin);
  return {group, index, group * p.group_channels() + begin, count, Padded<T>(count), ScanStrideOf<T>(count)};
}
template <class T>
HWY_INLINE int64_t ScanStride(const ScanProblem<T>& p) {
  return ScanStrideOf<T>(HWY_MIN(scan_channels, p.group_channels()));
}

/// Rows of the caller that a unit reads or writes soon. Their lines are fetched while the tokens of a block
/// are computed. A tile is 512 bytes of rows that are kilobytes apart, so the processor's own prefetchers
/// find nothing there: without this, copying rows took two fifths of a forward call.
struct ScanFetch {
  static constexpr int64_t kMost = 7;  // of backward: x, delta, z, their gradients and d_output
  const std::byte** rows = nullptr;    // [32][kMost]
  int64_t count = 0, element_size = 0;

  /// The lines at `column` of the rows of token t.
  HWY_INLINE void Lines(int64_t t, int64_t column) const {
    for (int64_t i = 0; i < count; ++i) FetchLine(rows[t * kMost + i] + column * element_size);
  }
  /// Adds the tile's part of the rows of tokens [begin, begin + tokens). The last one stands for those
  /// behind.
  template <class Byte>
  HWY_INLINE void Add(const StoredRows<Byte>& from, const TokenSequence& sequence, int64_t begin,
                      int64_t tokens, const ScanTile& tile) {
    if (!from.data || tokens <= 0) return;
    element_size = static_cast<int64_t>(from.element_size());
    for (int64_t i = 0; i < scan_tokens; ++i) {
      const int64_t row = sequence.row(begin + HWY_MIN(i, tokens - 1));
      rows[i * kMost + count] =
          from.data +
          (sequence.entry * from.entry_stride + row * from.row_stride + tile.first) * element_size;
    }
    ++count;
  }
};

/// One unit's rows of a block: [32][stride], of b and c [32][state_dim]; of states [state_dim][stride].
template <class T>
struct ScanRows {
  T *x, *step, *input, *output, *gate;
  T *b, *c;
  T *rate, *state;
  T *d, *bias;                // [stride]
  const std::byte** fetched;  // [32][ScanFetch::kMost]
};
template <class T>
HWY_INLINE ScanRows<T> TakeScanRows(const ScanProblem<T>& p, Carve& carve) {
  const int64_t stride = ScanStride(p), rows = scan_tokens * stride, pairs = scan_tokens * p.state_dim,
                states = p.state_dim * stride;
  return {carve.Take<T>(rows),   carve.Take<T>(rows),
          carve.Take<T>(rows),   carve.Take<T>(rows),
          carve.Take<T>(rows),   carve.Take<T>(pairs),
          carve.Take<T>(pairs),  carve.Take<T>(states),
          carve.Take<T>(states), carve.Take<T>(stride),
          carve.Take<T>(stride), carve.Take<const std::byte*>(scan_tokens * ScanFetch::kMost)};
}

/// [channels, state_dim] of the tile, to [state_dim][stride], and back. Null: zeros.
template <class T>
HWY_INLINE void LoadStates(const ScanProblem<T>& p, const ScanTile& tile, const T* from, T* to) {
  if (from)
    Transpose(from + tile.first * p.state_dim, p.state_dim, tile.count, p.state_dim, tile.stride, to);
  else
    Fill(T{0}, p.state_dim * tile.stride, to);
}
template <class T>
HWY_INLINE void StoreStates(const ScanProblem<T>& p, const ScanTile& tile, const T* from, T* to) {
  Transpose(from, tile.stride, p.state_dim, tile.count, p.state_dim, to + tile.first * p.state_dim,
            p.state_dim);
}
/// The state of sequence n in a tensor of states; null where there is none.
template <class T, class P>
HWY_INLINE P* StateOf(const ScanProblem<T>& p, P* states, int64_t n) {
  return states ? states + n * p.state_size() : nullptr;
}

/// What does not change along the tokens.
template <class T>
HWY_INLINE void PrepareScan(const ScanProblem<T>& p, int64_t n, const ScanTile& tile, const ScanRows<T>& r) {
  LoadStates(p, tile, p.a, r.rate);
  Scale(static_cast<T>(kLog2E), p.state_dim * tile.stride, r.rate);
  LoadStates(p, tile, p.initial_state.of(n, p.state_size()), r.state);
  Fill(T{0}, tile.stride, r.d);
  Fill(T{0}, tile.stride, r.bias);
  if (p.d) Copy(p.d + tile.first, tile.count, r.d);
  if (p.delta_bias) Copy(p.delta_bias + tile.first, tile.count, r.bias);
}

template <class T>
HWY_INLINE void ReadTile(const StoredRows<const std::byte>& from, const TokenSequence& sequence, int64_t t,
                         const ScanTile& tile, T* to) {
  read_stored(from, sequence.entry, sequence.row(t), tile.first, tile.count, to);
  Fill(T{0}, tile.stride - tile.count, to + tile.count);
}

/// Rows of tokens [begin, begin + count): x, steps, inputs, b and c; outputs start as D·x. `slopes`, where
/// wanted, are the derivatives of steps by delta.
template <class T>
HWY_NOINLINE void GatherScan(const ScanProblem<T>& p, const TokenSequence& sequence, int64_t begin,
                             int64_t count, const ScanTile& tile, const ScanRows<T>& r, T* slopes) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = sequence.row(begin + i), at = i * tile.stride;
    ReadTile(p.x, sequence, begin + i, tile, r.x + at);
    ReadTile(p.delta, sequence, begin + i, tile, r.step + at);
    read_stored(p.b, sequence.entry, row, tile.group * p.b_group, p.state_dim, r.b + i * p.state_dim);
    read_stored(p.c, sequence.entry, row, tile.group * p.c_group, p.state_dim, r.c + i * p.state_dim);
    for (int64_t j = 0; j < tile.columns; j += static_cast<int64_t>(hn::Lanes(d))) {
      const auto delta = hn::Add(hn::LoadU(d, r.step + at + j), hn::LoadU(d, r.bias + j));
      const auto x = hn::LoadU(d, r.x + at + j), step = p.softplus ? Softplus(d, delta) : delta;
      hn::StoreU(step, d, r.step + at + j);
      hn::StoreU(hn::Mul(step, x), d, r.input + at + j);
      hn::StoreU(hn::Mul(hn::LoadU(d, r.d + j), x), d, r.output + at + j);
      if (slopes) hn::StoreU(p.softplus ? Sigmoid(d, delta) : hn::Set(d, T(1)), d, slopes + at + j);
    }
  }
}

#define FOVEA_UNROLL _Pragma("GCC unroll 8")
/// Elements [n, n + kStates) of the states of one vector of channels, through the tokens of a block. Adds
/// their share to the outputs. Where `states` is given, it keeps the states before the block and behind every
/// token, [1 + tokens][state_dim][lanes], and `decays` the decays, [tokens][state_dim][lanes].
template <int kStates, bool kKeep, class T>
HWY_INLINE void ScanStates(const ScanProblem<T>& p, int64_t count, int64_t stride, int64_t at, int64_t n,
                           const ScanRows<T>& r, const ScanFetch& fetch, T* states, T* decays) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = p.state_dim;
  V state[kStates], rate[kStates];
  FOVEA_UNROLL for (int i = 0; i < kStates; ++i) {
    state[i] = hn::LoadU(d, r.state + (n + i) * stride + at);
    rate[i] = hn::LoadU(d, r.rate + (n + i) * stride + at);
    if constexpr (kKeep) hn::StoreU(state[i], d, states + (n + i) * lanes);
  }
  for (int64_t t = 0; t < count; ++t) {
    const V step = hn::LoadU(d, r.step + t * stride + at), input = hn::LoadU(d, r.input + t * stride + at);
    V output = hn::LoadU(d, r.output + t * stride + at);
    const T *b = r.b + t * dim + n, *c = r.c + t * dim + n;
    fetch.Lines(t, at);
    FOVEA_UNROLL for (int i = 0; i < kStates; ++i) {
      const V decay = PowerOf2(d, hn::Mul(step, rate[i]));
      state[i] = hn::MulAdd(decay, state[i], hn::Mul(input, hn::Set(d, b[i])));
      output = hn::MulAdd(hn::Set(d, c[i]), state[i], output);
      if constexpr (kKeep) {
        hn::StoreU(decay, d, decays + (t * dim + n + i) * lanes);
        hn::StoreU(state[i], d, states + ((t + 1) * dim + n + i) * lanes);
      }
    }
    hn::StoreU(output, d, r.output + t * stride + at);
  }
  FOVEA_UNROLL for (int i = 0; i < kStates; ++i) hn::StoreU(state[i], d, r.state + (n + i) * stride + at);
}
#undef FOVEA_UNROLL

/// All elements of the states of one vector of channels.
template <bool kKeep, class T>
HWY_NOINLINE void ScanVector(const ScanProblem<T>& p, int64_t count, int64_t stride, int64_t at,
                             const ScanRows<T>& r, const ScanFetch& fetch, T* states, T* decays) {
  int64_t n = 0;
  for (; n + kScanStates <= p.state_dim; n += kScanStates) {
    ScanStates<kScanStates, kKeep>(p, count, stride, at, n, r, n == 0 ? fetch : ScanFetch(), states, decays);
  }
  for (; n < p.state_dim; ++n)
    ScanStates<1, kKeep>(p, count, stride, at, n, r, n == 0 ? fetch : ScanFetch(), states, decays);
}

/// Outputs behind their gate, to the caller's rows.
template <class T>
HWY_NOINLINE void WriteOutputs(const ScanProblem<T>& p, const ScanResults<T>& results,
                               const TokenSequence& sequence, int64_t begin, int64_t count,
                               const ScanTile& tile, const ScanRows<T>& r) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < count; ++i) {
    T* output = r.output + i * tile.stride;
    if (p.z.data) {
      ReadTile(p.z, sequence, begin + i, tile, r.gate);
      for (int64_t j = 0; j < tile.columns; j += static_cast<int64_t>(hn::Lanes(d))) {
        const auto z = hn::LoadU(d, r.gate + j);
        hn::StoreU(hn::Mul(hn::LoadU(d, output + j), hn::Mul(z, Sigmoid(d, z))), d, output + j);
      }
    }
    write_stored(output, tile.first, tile.count, results.output, sequence.entry, sequence.row(begin + i));
  }
}

template <class T>
HWY_NOINLINE void ScanForwardUnit(const ScanProblem<T>& p, const ScanResults<T>& results, int64_t n,
                                  const ScanTile& tile, std::byte* memory) {
  const FlushSubnormals flush;
  Carve carve(memory);
  const ScanRows<T> r = TakeScanRows(p, carve);
  const TokenSequence& sequence = p.sequences[n];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  PrepareScan(p, n, tile, r);
  for (int64_t begin = 0; begin < sequence.count; begin += scan_tokens) {
    throw_if_cancelled();
    const int64_t count = HWY_MIN(scan_tokens, sequence.count - begin);
    GatherScan<T>(p, sequence, begin, count, tile, r, nullptr);
    ScanFetch fetch{r.fetched};
    const int64_t next = begin + count, next_count = HWY_MIN(scan_tokens, sequence.count - next);
    fetch.Add(p.x, sequence, next, next_count, tile);
    fetch.Add(p.delta, sequence, next, next_count, tile);
    if (results.output.data) {
      fetch.Add(p.z, sequence, begin, count, tile);
      fetch.Add(results.output, sequence, begin, count, tile);
    }
    for (int64_t at = 0; at < tile.columns; at += lanes)
      ScanVector<false, T>(p, count, tile.stride, at, r, fetch, nullptr, nullptr);
    if (results.output.data) WriteOutputs(p, results, sequence, begin, count, tile, r);
  }
  if (T* const final = results.final_state.of(n, p.state_size())) StoreStates(p, tile, r.state, final);
}

template <class T>
size_t ScanForwardUnitBytes(const ScanProblem<T>& p) {
  Carve carve(nullptr);
  TakeScanRows(p, carve);
  return carve.Used();
}
template <class T>
size_t ScanForwardBytes(const ScanProblem<T>& p, int threads) {
  return FromThreadToThread(ScanForwardUnitBytes(p)) * static_cast<size_t>(threads);
}
template <class T>
void ScanForward(const ScanProblem<T>& p, const ScanResults<T>& results, Executor& executor,
                 std::byte* memory) {
  const size_t bytes = FromThreadToThread(ScanForwardUnitBytes(p));
  const int64_t tiles = ScanTiles(p);
  executor.parallel_for(p.sequence_count * tiles, [&](int64_t unit, int worker) {
    ScanForwardUnit(p, results, unit / tiles, ScanTileOf(p, unit % tiles),
                    memory + bytes * static_cast<size_t>(worker));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
