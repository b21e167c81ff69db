// Rows of the next chunk, fetched from memory while products of this one are computed.
#if defined(FOVEA_RECURRENCE_FETCHED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_FETCHED_ROWS_INL_H_
#undef FOVEA_RECURRENCE_FETCHED_ROWS_INL_H_
#else
#define FOVEA_RECURRENCE_FETCHED_ROWS_INL_H_
#endif

#include "kernels/recurrence/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Lines that a loop fetches, one in each of kRun steps. By AVX-512, sixteen at once before each block took
/// 450 of 8,500 cycles of a forward chunk with decays by channel, and those left at its end 300 more.
struct LineRun {
  const std::byte* line;
  int64_t step;

  HWY_INLINE void Next() {
    FetchLine(line);
    line += step;
  }
};
constexpr int64_t kRun = 16;

/// Rows that will be read or written soon. A chunk of a tensor with rows of 64 numbers is a page, where the
/// processor's own prefetchers stop. Without this, forward took an eighth more time. Lines are fetched a few
/// at a time between blocks of products: 128 at once took 5 cycles each. By AVX2 a row of blocks is four
/// times as long, so lines are fetched before each block, and not before each row.
template <class T>
class FetchedRows {
 public:
  FetchedRows(const RecurrenceProblem<T>& p, Carve& carve)
      : pieces_(carve.Take<Piece>(kChunk * MostRows(p) + 1)) {}

  HWY_INLINE void Restart() { next_ = end_ = 0; }
  template <class Byte>
  HWY_INLINE void Add(const RecurrenceProblem<T>& p, const StoredOperand<Byte>& from, int64_t h,
                      const ChunkAt& at, int64_t first, int64_t count) {
    if (!from.data) return;
    const TokenSequence& sequence = p.sequences[at.n];
    const int64_t size = static_cast<int64_t>(size_of(from.dtype));
    const auto row = [&](int64_t i) {
      return RecurrenceRow(from, sequence.entry, h, sequence.row(at.begin + i)) + first * size;
    };
    if (!sequence.rows) {
      if (at.count > 0) AddPiece({row(0), from.row_stride * size, at.count, count * size});
      return;
    }
    for (int64_t i = 0; i < at.count; ++i) pieces_[end_++] = {row(i), 0, 1, count * size};
  }
  HWY_INLINE void Add(const T* rows, int64_t count, int64_t dim) {
    const int64_t bytes = dim * static_cast<int64_t>(sizeof(T));
    if (count > 0) AddPiece({reinterpret_cast<const std::byte*>(rows), bytes, count, bytes});
  }
  HWY_INLINE void Some() {
    for (int64_t lines = 0; lines < kLinesAtOnce && next_ < end_;) {
      Piece& piece = pieces_[next_];
      for (int64_t j = 0; j < piece.bytes; j += kLine, ++lines) FetchLine(piece.row + j);
      piece.row += piece.stride;
      if (--piece.rows == 0) ++next_;
    }
  }
  HWY_INLINE void Rest() {
    while (next_ < end_) Some();
  }
  /// The next kRun lines for a loop of that many steps: side by side, or one of each row of a whole chunk
  /// where heads lie between two tokens. Where rows or loops are shorter, some lines are fetched at once, and
  /// the run is one line that the caches have.
  HWY_INLINE LineRun Run(int64_t steps) {
    const LineRun none{reinterpret_cast<const std::byte*>(this), 0};
    if (next_ >= end_) return none;
    Piece& piece = pieces_[next_];
    if (steps >= kRun && piece.rows == kRun && piece.bytes % kLine == 0 && piece.bytes < kLine * kRun) {
      const LineRun run{piece.row, piece.stride};
      piece.row += kLine;
      piece.bytes -= kLine;
      if (piece.bytes == 0) ++next_;
      return run;
    }
    if (piece.bytes != kLine * kRun || steps < kRun) {
      Some();
      return none;
    }
    const LineRun run{piece.row, kLine};
    piece.row += piece.stride;
    if (--piece.rows == 0) ++next_;
    return run;
  }

 private:
  /// Of backward: key, value, erase, a, b, log_decay and their gradients; query, its gradient, d_output,
  /// output. And W of saved chunks, whose states are key_dim rows more.
  static int64_t MostRows(const RecurrenceProblem<T>& p) { return 13 + 4 * ReadersOf(p); }
  static constexpr int64_t kLine = 64, kLinesAtOnce = kTileVectors == 4 ? 16 : 8;
  /// Rows that are still to be fetched. The stride and the size of each are in bytes.
  struct Piece {
    const std::byte* row;
    int64_t stride, rows, bytes;
  };
  /// Rows side by side are fetched as longer ones, which takes fewer steps.
  HWY_INLINE void AddPiece(Piece piece) {
    constexpr int64_t kBytes = kLine * kLinesAtOnce;
    if (piece.stride == piece.bytes && piece.rows * piece.bytes % kBytes == 0)
      piece = {piece.row, kBytes, piece.rows * piece.bytes / kBytes, kBytes};
    pieces_[end_++] = piece;
  }
  Piece* pieces_;
  int64_t next_ = 0, end_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
