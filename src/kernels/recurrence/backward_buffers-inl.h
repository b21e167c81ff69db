// The memory of backward by chunks: buffers of a unit, and the matrices that its products read.
#if defined(FOVEA_RECURRENCE_BACKWARD_BUFFERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_BACKWARD_BUFFERS_INL_H_
#undef FOVEA_RECURRENCE_BACKWARD_BUFFERS_INL_H_
#else
#define FOVEA_RECURRENCE_BACKWARD_BUFFERS_INL_H_
#endif

#include "kernels/recurrence/chunked_forward-inl.h"
#include "kernels/recurrence/pairs_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The chunks of a segment. They change no bits: a state that is computed again is the same.
template <class T>
HWY_INLINE int64_t SegmentChunks(const RecurrenceProblem<T>& p) {
  const int64_t size = HWY_MAX(StateSize(p), kChunk * Padded<T>(TilesOf(p).width)),  // W is kept too
      bytes = size * static_cast<int64_t>(sizeof(T)),
                most = HWY_MAX(recurrence_segment_bytes / bytes, recurrence_segment_chunks);
  return HWY_MAX(HWY_MIN((p.longest + kChunk - 1) / kChunk, most), 1);
}

/// The scratch buffers of a unit besides those of forward. Rows of values have columns.stride elements.
template <class T>
struct BackwardBuffers {
  ChunkGradient<T> rows;
  T* targets;      // [16][stride]
  T* d_outputs;    // [readers · 16][stride]
  T* d_written;    // [16][stride]: dW, then X
  T* d_targets;    // [16][stride]: dY; the same memory as d_written but for a low-rank write
  T* products;     // [key_dim][16]
  T* ends;         // [dim]: the derivative by the sum of all gates of a chunk
  T* bonus;        // [dim]
  T* row;          // [dim] and [stride]: a scratch buffer
  T* sum_reads;    // [readers · 16]: the derivative by what a row reads of the sums of keys
  T* z;            // see StateSize
  T* checkpoints;  // [segments][state]: before each segment
  T* states;       // [chunks of a segment + 1][state]: before each, and behind the last
  T* written;      // [chunks of a segment][16][stride]: W of each; null where W = Y
};

template <class T>
HWY_INLINE BackwardBuffers<T> TakeBackwardBuffers(const RecurrenceProblem<T>& p, const Chunk<T>& c,
                                                  Carve& carve) {
  const int64_t stride = Padded<T>(TilesOf(p).width), values = kChunk * stride, state = StateSize(p),
                chunks = SegmentChunks(p), tokens = chunks * kChunk,
                segments = (p.longest + tokens - 1) / tokens;
  BackwardBuffers<T> s;
  s.rows = TakeChunkGradient(p, c, carve);
  s.targets = carve.Take<T>(values);
  s.d_outputs = carve.Take<T>(c.readers * values);
  s.d_written = carve.Take<T>(values);
  s.d_targets = p.write == WriteKind::low_rank ? carve.Take<T>(values) : s.d_written;
  s.products = carve.Take<T>(c.dim * kChunk);
  s.ends = carve.Take<T>(c.dim);
  s.bonus = carve.Take<T>(c.dim);
  s.row = carve.Take<T>(HWY_MAX(c.dim, stride));
  s.sum_reads = carve.Take<T>(p.sums_keys ? c.readers * kChunk : 0);
  s.z = carve.Take<T>(state);
  s.checkpoints = carve.Take<T>(segments * state);
  s.states = carve.Take<T>((chunks + 1) * state);
  s.written = p.write == WriteKind::additive ? nullptr : carve.Take<T>(chunks * values);
  return s;
}

/// The matrices of a chunk that products read.
template <class Matrix>
struct BackwardMatrices {
  Matrix z, state;                                         // [key_dim][columns]
  Matrix d_outputs;                                        // [readers · 16][columns]
  Matrix x, w, y;                                          // [16][columns]; y of a low-rank write alone
  Matrix k_end, b_end;                                     // [16][key_dim]
  Matrix q_start, e_start;                                 // [readers · 16][key_dim], [16][key_dim]
  Matrix qk, qb;                                           // [readers · 16][16]
  typename Matrix::Element *transposed, *more_transposed;  // [columns][16]

  template <class T>
  BackwardMatrices(const RecurrenceProblem<T>& p, const Columns& columns, Carve& carve)
      : BackwardMatrices(p.key_dim, columns.count, Padded<T>(TilesOf(p).width), ReadersOf(p) * kChunk,
                         carve) {}

 private:
  BackwardMatrices(int64_t dim, int64_t count, int64_t stride, int64_t readers, Carve& carve)
      : z(dim, count, stride, true, carve),
        state(dim, count, stride, false, carve),
        d_outputs(readers, count, stride, true, carve),
        x(kChunk, count, stride, true, carve),
        w(kChunk, count, stride, false, carve),
        y(kChunk, count, stride, false, carve),
        k_end(kChunk, dim, dim, false, carve),
        b_end(kChunk, dim, dim, false, carve),
        q_start(readers, dim, dim, true, carve),
        e_start(kChunk, dim, dim, true, carve),
        qk(readers, kChunk, kChunk, true, carve),
        qb(readers, kChunk, kChunk, true, carve),
        transposed(carve.Take<typename Matrix::Element>(HWY_MAX(stride, kChunk) * kChunk)),
        more_transposed(carve.Take<typename Matrix::Element>(HWY_MAX(stride, kChunk) * kChunk)) {}
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
