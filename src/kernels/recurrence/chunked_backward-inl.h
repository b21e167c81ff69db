// Backward by chunks, from the last chunk of a sequence to the first. With Z the derivative by the state at a
// chunk's end, dO by its outputs, and the names of recurrence/chunked_forward-inl.h:
//
//   dW  = QK^T dO + K_end Z        (low rank: this is dY, and dW = QB^T dO + B_end Z)
//   X   solves (I - N)^T X = dW,   N = EK of a delta write, EB of a low-rank one; additive: X = dW
//   dY  = X                        (low rank: + EK^T X)
//   by pairs: dQK = dO W^T, dEK = X W^T (low rank: dQK = dO Y^T, dQB = dO W^T, dEK = X Y^T, dEB = X W^T)
//   by rows:  dQ_start = dO S^T, dE_start = X S^T, dK_end = W Z^T (low rank: Y Z^T, and dB_end = W Z^T)
//   Z   ← decays ∘ Z + Q_start^T dO + E_start^T X
//
// Forward may have saved the states S. Otherwise they are computed again. Of a long sequence they are first
// computed for the starts of segments, then for the chunks of one segment after the other.
#if defined(FOVEA_RECURRENCE_CHUNKED_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_CHUNKED_BACKWARD_INL_H_
#undef FOVEA_RECURRENCE_CHUNKED_BACKWARD_INL_H_
#else
#define FOVEA_RECURRENCE_CHUNKED_BACKWARD_INL_H_
#endif

#include "kernels/recurrence/gate_gradients-inl.h"
#include "kernels/recurrence/key_sums_backward-inl.h"
#include "kernels/recurrence/row_products-inl.h"
#include "kernels/recurrence/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The rows of a whole chunk where the caller has them, as backward reads rows of values and of derivatives
/// by outputs; null where they must be copied.
template <class T>
HWY_INLINE const T* RowsInPlace(const RecurrenceProblem<T>& p, const StoredOperand<const std::byte>& from,
                                int64_t h, const ChunkAt& at, const Columns& columns) {
  const TokenSequence& sequence = p.sequences[at.n];
  if (sequence.rows || at.count < kChunk || columns.count != columns.stride || !RowsAreOf<T>(from.dtype) ||
      LieFarApart(from, columns.count))
    return nullptr;
  const std::byte* first = RecurrenceRow(from, sequence.entry, h, sequence.begin + at.begin);
  return reinterpret_cast<const T*>(first) + columns.first;
}

/// Y, with rows of zeros behind the tokens.
template <class T>
HWY_INLINE RowsAt<T> GatherTargets(const RecurrenceProblem<T>& p, const ChunkAt& at, const Columns& columns,
                                   T* targets) {
  if (const T* rows = p.write == WriteKind::delta ? nullptr : RowsInPlace(p, p.value, at.h, at, columns))
    return {rows, p.value.row_stride};
  GatherRows(
      p.value, p.sequences[at.n], at.h, at, columns.first, columns.count, columns.stride,
      [&](int64_t i) { return p.write == WriteKind::delta ? BetaAt(p, at, i) : T(1); }, targets);
  return {targets, columns.stride};
}

/// The backward pass of one unit. States are computed again by `Terms`, as forward computed them.
template <class T, class Terms>
class BackwardUnit {
 public:
  using Element = typename Terms::Element;
  using Matrix = typename Terms::Matrix;

  BackwardUnit(const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g,
               const GradientTargets<T>& targets, int64_t n, int64_t h, int64_t tile, std::byte* memory)
      : p_(p),
        g_(g),
        targets_(targets),
        n_(n),
        h_(h),
        tile_(tile),
        segment_tokens_(SegmentChunks(p) * kChunk),
        columns_(ColumnsOf(p, tile)),
        queries_(g.d_output.data != nullptr),
        low_rank_(p.write == WriteKind::low_rank),
        carve_(memory),
        fetch_(p, carve_),
        c_(TakeChunk(p, carve_)),
        f_(TakeForwardBuffers(p, carve_)),
        terms_(p, columns_, c_, f_, carve_),
        s_(TakeBackwardBuffers(p, c_, carve_)),
        m_(p, columns_, carve_),
        state_size_(StateSize(p)),
        tile_size_(TileSize(p)),
        sums_{p, g, c_, s_.sum_reads, s_.z + tile_size_} {}

  HWY_NOINLINE void Run() {
    const FlushSubnormals flush;
    const int64_t unit = n_ * p_.heads + h_;
    Fill(T{0}, c_.dim, s_.bonus);
    FillReachTables(p_, c_);
    LoadState(p_, g_.d_final_state, unit, columns_, s_.z);
    LoadSums(p_, columns_.writes_sums ? g_.d_final_state : nullptr, unit, s_.z + tile_size_);
    const T constant = g_.saved ? FromSaved() : FromAgain();
    if (g_.initial_state) {
      StoreState(p_, s_.z, unit, columns_, g_.initial_state);
      if (columns_.writes_sums) StoreSums(p_, s_.z + tile_size_, unit, g_.initial_state);
    }
    const int64_t slot = (n_ * TilesOf(p_).count + tile_) * p_.heads + h_;
    if (targets_.constant_log_decay) targets_.constant_log_decay[slot] = constant;
    if (targets_.bonus) Copy(s_.bonus, p_.key_dim, targets_.bonus + slot * p_.key_dim);
  }

 private:
  /// All chunks, with the states and W that forward saved. Returns the derivative by a constant gate.
  HWY_INLINE T FromSaved() {
    const T* saved = SavedChunks(p_, n_, h_, tile_, g_.saved);
    T constant = 0;
    for (int64_t chunk = (p_.sequences[n_].count + kChunk - 1) / kChunk - 1; chunk >= 0; --chunk) {
      const T* state = saved + chunk * SavedSize(p_);
      constant += Backward(At(0, chunk), state, c_.e ? state + state_size_ : nullptr);
    }
    return constant;
  }
  /// Likewise, with states that are computed again.
  HWY_INLINE T FromAgain() {
    const int64_t segments = (p_.sequences[n_].count + segment_tokens_ - 1) / segment_tokens_;
    LoadState(p_, p_.initial_states(n_), h_, columns_, s_.states);
    LoadSums(p_, p_.initial_states(n_), h_, s_.states + tile_size_);
    for (int64_t segment = 0; segment < segments; ++segment) {
      Copy(s_.states, state_size_, s_.checkpoints + segment * state_size_);
      if (segment + 1 < segments) Advance(segment, false);
    }
    T constant = 0;
    for (int64_t segment = segments - 1; segment >= 0; --segment) {
      Copy(s_.checkpoints + segment * state_size_, state_size_, s_.states);
      for (int64_t chunk = Advance(segment, true) - 1; chunk >= 0; --chunk) {
        constant += Backward(At(segment, chunk), s_.states + chunk * state_size_,
                             s_.written ? s_.written + chunk * kChunk * columns_.stride : nullptr);
      }
    }
    return constant;
  }

  HWY_INLINE ChunkAt At(int64_t segment, int64_t chunk) const {
    const int64_t begin = segment * segment_tokens_ + chunk * kChunk;
    return {n_, h_, begin, HWY_MIN(kChunk, p_.sequences[n_].count - begin)};
  }

  /// From the state before a segment to those before its chunks and behind the last, if they are kept; else
  /// to that behind the last, in the same place. Returns the number of chunks.
  HWY_NOINLINE int64_t Advance(int64_t segment, bool keeps) {
    const int64_t left = p_.sequences[n_].count - segment * segment_tokens_,
                  chunks = (HWY_MIN(left, segment_tokens_) + kChunk - 1) / kChunk;
    terms_.Start(s_.states);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      throw_if_cancelled();
      const ChunkAt at = At(segment, chunk);
      fetch_.Restart();
      if (chunk + 1 < chunks)
        AddFetched(p_, RecurrenceResults<T>(), At(segment, chunk + 1), columns_, fetch_);
      T *from = s_.states, *to = from, *written = f_.written;
      if (keeps) {
        from += chunk * state_size_;
        to = from + state_size_;
        if (s_.written) written = s_.written + chunk * kChunk * columns_.stride;
      }
      [[maybe_unused]] const auto held = terms_.HoldEngine();
      terms_.Prepare(at, false);
      WriteRows(terms_, from, written, fetch_);
      if (s_.written) Fill(T{0}, (kChunk - at.count) * columns_.stride, written + at.count * columns_.stride);
      UpdateState<Terms, T>(terms_, written, from, to, nullptr, fetch_);
      UpdateSums(terms_, from + tile_size_, to + tile_size_);
      fetch_.Rest();
    }
    return chunks;
  }

  /// Lists the rows to fetch: the gradients that this chunk writes, and the operands that the next chunk
  /// reads. Backward goes through the chunks in reverse, so the next chunk is the one at smaller positions.
  HWY_INLINE void AddFetchedGradients(const ChunkAt& at) {
    fetch_.Restart();
    if (at.begin > 0) {
      const ChunkAt before{at.n, at.h, at.begin - kChunk, kChunk};
      AddFetched(p_, RecurrenceResults<T>(), before, columns_, fetch_);
      if (g_.saved) {
        const T* saved = SavedChunks(p_, n_, h_, tile_, g_.saved) + before.begin / kChunk * SavedSize(p_);
        fetch_.Add(saved, SavedSize(p_) / columns_.stride, columns_.stride);
      }
      for (int64_t reader = 0; queries_ && reader < c_.readers; ++reader) {
        fetch_.Add(p_, p_.query, QueryHeadOf(p_, h_, reader), before, 0, p_.key_dim);
        fetch_.Add(p_, g_.d_output, h_ * c_.readers + reader, before, columns_.first, columns_.count);
        if (columns_.writes_sums)
          fetch_.Add(p_, g_.output, h_ * c_.readers + reader, before, 0, p_.value_dim);
      }
    }
    const auto add = [&](const GradientTarget<T>& target, int64_t head) {
      if (!target.partial) fetch_.Add(p_, target.direct, head, at, 0, target.dim);
    };
    for (int64_t reader = 0; reader < c_.readers; ++reader) add(targets_.query, QueryHeadOf(p_, h_, reader));
    add(targets_.key, KeyHeadOf(p_, h_));
    for (const GradientTarget<T>* target : {&targets_.erase, &targets_.a, &targets_.b}) add(*target, h_);
    if (p_.decay == DecayKind::key) add(targets_.log_decay, h_);
    fetch_.Add(p_, g_.value, h_, at, columns_.first, columns_.count);
  }

  /// One chunk, from the state before it and W, which is null where it is Y. Returns the derivative by a
  /// constant gate.
  HWY_INLINE T Backward(const ChunkAt& at, const T* state, const T* written) {
    throw_if_cancelled();
    AddFetchedGradients(at);
    PrepareChunk(p_, at, queries_, c_);
    y_ = GatherTargets(p_, at, columns_, s_.targets);
    GatherOutputGradients(at);
    SetMatrices(at, state);
    WrittenGradients(at);
    PairAndRowGradients(at, written ? RowsAt<T>{written, columns_.stride} : y_);
    if (columns_.writes_sums) sums_.AddTo(at, queries_, state + tile_size_, s_.rows);
    const bool gates = p_.decay != DecayKind::none, by_channel = p_.decay == DecayKind::key;
    const auto end_gradients = [&](T state_z) {
      const bool sums = columns_.writes_sums;
      EndGradients(p_, at, c_, s_.rows, state, s_.z, state_z, columns_.stride,
                   sums ? state + tile_size_ : nullptr, s_.z + tile_size_, s_.ends);
    };
    if (by_channel) end_gradients(T(0));
    const T state_z = UpdateZ(at, gates && !by_channel ? state : nullptr);
    if (gates && !by_channel) end_gradients(state_z);
    if (columns_.writes_sums) sums_.UpdateZ(at, queries_);
    const bool mild = by_channel && MildDecays(c_, at.count);
    if (mild && MildGradients(at, queries_, c_, s_.rows)) {
      MildPairsBackward(p_, at, queries_, c_, s_.rows, fetch_);
    } else if (by_channel) {
      if (mild) GatherDecays(p_, at, c_);
      ReaderRowsBackward(p_, at, queries_, c_, s_.rows);
      WriterRowsBackward(p_, at, queries_, c_, s_.rows, s_.products);
    } else {
      ScalarPairsBackward(p_, at, queries_, c_, s_.rows, fetch_);
    }
    if (gates) GateGradients(p_, at, queries_, c_, s_.rows, s_.ends);
    if (queries_ && p_.read != ReadKind::after_write) OwnGradients(at);
    StoreRows(at);
    StoreWeights(at);
    fetch_.Rest();
    T constant = 0;
    for (int64_t i = 0; p_.decay == DecayKind::constant && i < at.count; ++i) constant += s_.rows.decays[i];
    return constant;
  }

  HWY_INLINE void GatherOutputGradients(const ChunkAt& at) {
    d_outputs_ = {s_.d_outputs, columns_.stride};
    if (queries_ && c_.readers == 1 && !p_.sums_keys) {
      if (const T* rows = RowsInPlace(p_, g_.d_output, h_, at, columns_)) {
        d_outputs_ = {rows, g_.d_output.row_stride};
        return;
      }
    }
    for (int64_t reader = 0; queries_ && reader < c_.readers; ++reader) {
      T factors[kChunk];
      sums_.InverseDenominators(at, reader, factors);
      if (columns_.writes_sums) sums_.SetReads(at, reader, factors);
      GatherRows(
          g_.d_output, p_.sequences[n_], h_ * c_.readers + reader, at, columns_.first, columns_.count,
          columns_.stride, [&](int64_t i) { return factors[i]; },
          s_.d_outputs + reader * kChunk * columns_.stride);
    }
  }

  /// The matrices that W and X, which come later, do not change.
  HWY_INLINE void SetMatrices(const ChunkAt& at, const T* state) {
    const int64_t rows = queries_ ? c_.QueryRows(at.count) : 0;
    m_.z.Set(s_.z, columns_.stride, p_.key_dim);
    if (queries_ || c_.e) m_.state.Set(state, columns_.stride, p_.key_dim);
    m_.d_outputs.Set(d_outputs_.data, d_outputs_.stride, rows);
    m_.k_end.Set(c_.k_end, c_.dim, at.count);
    m_.q_start.Set(c_.q_start, c_.dim, rows);
    m_.qk.Set(c_.qk, kChunk, rows);
    if (c_.e) m_.e_start.Set(c_.e_start, c_.dim, at.count);
    if (!low_rank_) return;
    m_.b_end.Set(c_.b_end, c_.dim, at.count);
    m_.qb.Set(c_.qb, kChunk, rows);
    m_.y.Set(y_.data, y_.stride, kChunk);
  }

  /// dY and X.
  HWY_NOINLINE void WrittenGradients(const ChunkAt& at) {
    const int64_t stride = columns_.stride;
    const auto by_rows = [&](const Matrix& ends, const Matrix& pairs, T* to) {
      ChunkSum<T, Element> sum{
          .to = to, .to_stride = stride, .first = TermOf(ends.LeftRows(), m_.z.RightRows())};
      sum.more[0] = TermOf(pairs.LeftColumns(), m_.d_outputs.RightRows());
      sum.more[0].triangle = WriterTriangle(c_);
      sum.more_count = 1;
      Sum(at.count, stride, sum, fetch_);
      Fill(T{0}, (kChunk - at.count) * stride, to + at.count * stride);
    };
    by_rows(m_.k_end, m_.qk, s_.d_targets);
    if (p_.write == WriteKind::delta) Solve<true>(c_.ek, at.count, stride, s_.d_written);
    if (low_rank_) {
      by_rows(m_.b_end, m_.qb, s_.d_written);
      Solve<true>(c_.eb, at.count, stride, s_.d_written);
      Product<true, T>(at.count, stride,
                       {c_.ek, 1, kChunk, s_.d_written, stride, s_.d_targets, stride, at.count});
    }
    if (c_.e) m_.x.Set(s_.d_written, stride, kChunk);
  }

  /// Sixteen rows of X, as products X M^T read them: transposed, unless kProductsOfRows.
  HWY_INLINE auto SixteenRows(const Matrix& x, int64_t first, Element* buffer) {
    if constexpr (kProductsOfRows<Element>)
      return x.LeftRows(first);
    else
      return x.RightColumns(first, buffer);
  }
  /// to [16][dim] = X M^T, for a state tile M.
  template <class Rows>
  HWY_INLINE void TimesStateTransposed(const Rows& x, const Matrix& tile, T* to) {
    if constexpr (kProductsOfRows<Element>) {
      FourColumns(x.data, x.row, columns_.stride, m_.transposed);
      ProductsOfRows(m_.transposed, tile.LeftRows(), p_.key_dim, to, c_.dim, fetch_);
    } else {
      const ChunkSum<T, Element> sum{
          .to = s_.products, .to_stride = kChunk, .first = TermOf(tile.LeftRows(), x)};
      Sum(p_.key_dim, kChunk, sum, fetch_);
      Transpose(s_.products, kChunk, p_.key_dim, kChunk, c_.dim, to);
    }
  }
  /// to [count][16] = X Y^T by decays of pairs, for the rows of X from `first` on.
  template <class Rows>
  HWY_INLINE void TimesRowsTransposed(const Matrix& x, int64_t first, int64_t count, const Rows& y,
                                      const T* gamma, T* to) {
    if constexpr (kProductsOfRows<Element>) {
      const auto rows = x.LeftRows(first);
      PairProducts<T, T>({rows.data, rows.row}, count, rows.depth, {{y.data, y.row}, kChunk, nullptr}, gamma,
                         nullptr, to);
    } else {
      const ChunkSum<T, Element> sum{.to = to, .to_stride = kChunk, .first = TermOf(x.LeftRows(first), y)};
      Sum(count, kChunk, sum, fetch_);
      MultiplyInto(gamma, count * kChunk, to);
    }
  }

  HWY_NOINLINE void PairAndRowGradients(const ChunkAt& at, const RowsAt<T>& written) {
    const auto by_queries = [&](const auto& y, T* to) {
      const int64_t count = c_.readers == 1 ? at.count : kChunk;
      for (int64_t first = 0; queries_ && first < c_.readers * kChunk; first += kChunk)
        TimesRowsTransposed(m_.d_outputs, first, count, y, c_.q_gamma, to + first * kChunk);
    };
    m_.w.Set(written.data, written.stride, kChunk);
    const auto by_k = SixteenRows(low_rank_ ? m_.y : m_.w, 0, m_.transposed);
    TimesStateTransposed(by_k, m_.z, s_.rows.dk);
    by_queries(by_k, s_.rows.qk);
    if (c_.e) TimesRowsTransposed(m_.x, 0, at.count, by_k, c_.e_gamma, s_.rows.ek);
    if (low_rank_) {
      const auto by_b = SixteenRows(m_.w, 0, m_.more_transposed);
      TimesStateTransposed(by_b, m_.z, s_.rows.db);
      by_queries(by_b, s_.rows.qb);
      TimesRowsTransposed(m_.x, 0, at.count, by_b, c_.e_gamma, s_.rows.eb);
    }
    if (c_.e) TimesStateTransposed(SixteenRows(m_.x, 0, m_.transposed), m_.state, s_.rows.de);
    for (int64_t reader = 0; queries_ && reader < c_.readers; ++reader) {
      const int64_t first = reader * kChunk;
      TimesStateTransposed(SixteenRows(m_.d_outputs, first, m_.transposed), m_.state,
                           s_.rows.dq + first * c_.dim);
    }
    if (!queries_) Fill(T{0}, c_.readers * kChunk * c_.dim, s_.rows.dq);
  }

  /// Returns ⟨state, Z⟩ of the Z before, sums of keys included; 0 for a null state.
  HWY_INLINE T UpdateZ(const ChunkAt& at, const T* state) {
    const int64_t stride = columns_.stride;
    ChunkSum<T, Element> sum{.to = s_.z, .to_stride = stride, .from = s_.z, .from_stride = stride};
    DecayFrom(p_, at, c_, sum);
    if (queries_) sum.first = TermOf(m_.q_start.LeftColumns(), m_.d_outputs.RightRows());
    if (c_.e) {
      sum.more[0] = TermOf(m_.e_start.LeftColumns(), m_.x.RightRows());
      sum.more_count = 1;
    }
    T dot = 0;
    if (state && AddsSideBySide(sum, stride)) {
      sum.dotted = state;
      sum.dot = &dot;
    } else if (state) {
      dot = LongDot(state, s_.z, tile_size_);
    }
    Sum(p_.key_dim, stride, sum, fetch_);
    if (state) dot += LongDot(state + tile_size_, s_.z + tile_size_, state_size_ - tile_size_);
    return dot;
  }

  /// What a token reads of its own pair, by its query, its key, its target and its weight or the bonus.
  HWY_NOINLINE void OwnGradients(const ChunkAt& at) {
    const TokenSequence& sequence = p_.sequences[n_];
    const T* bonus = p_.bonus ? p_.bonus + h_ * p_.key_dim : nullptr;
    for (int64_t i = 0; i < at.count; ++i) {
      const int64_t row = sequence.row(at.begin + i);
      T *k = c_.k + i * c_.dim, *dk = s_.rows.dk + i * c_.dim, d_weight = 0;
      for (int64_t r = i; r < c_.readers * kChunk; r += kChunk) {
        const T *q = c_.q + r * c_.dim, *d_output = d_outputs_.data + r * d_outputs_.stride;
        T* dq = s_.rows.dq + r * c_.dim;
        T cross = Dot(d_output, y_.data + i * y_.stride, columns_.count);
        if (columns_.writes_sums) cross += sums_.reads[r];
        AddScaled(c_.own[r], d_output, columns_.stride, s_.d_targets + i * columns_.stride);
        if (bonus) {
          for (int64_t j = 0; j < p_.key_dim; ++j) {
            dq[j] += cross * bonus[j] * k[j];
            dk[j] += cross * bonus[j] * q[j];
            s_.bonus[j] += cross * q[j] * k[j];
          }
          continue;
        }
        const T weight = *RecurrenceRow(p_.self_weight, sequence.entry, h_, row);
        d_weight += cross * Dot(q, k, p_.key_dim);
        AddScaled(cross * weight, k, p_.key_dim, dq);
        AddScaled(cross * weight, q, p_.key_dim, dk);
      }
      if (!bonus && g_.self_weight.data)
        targets_.self_weight.WriteOne(p_, tile_, sequence.entry, h_, row, d_weight);
    }
  }

  /// The rows of queries, keys, values, erase, a and b.
  HWY_NOINLINE void StoreRows(const ChunkAt& at) {
    const TokenSequence& sequence = p_.sequences[n_];
    const int64_t tiles = TilesOf(p_).count, dim = c_.dim;
    const int64_t query_group = p_.query_heads < p_.heads ? p_.heads / p_.query_heads : 1,
                  key_group = p_.heads / p_.key_heads;
    const auto put = [&](const GradientTarget<T>& target, int64_t slot, int64_t head, T factor, const T* x) {
      target.WriteRows(p_, slot, at, head, factor, x, s_.row);
    };
    const bool maps = p_.features == RowFeatures::elu_plus_one, delta = p_.write == WriteKind::delta;
    const T scale = static_cast<T>(p_.scale);
    for (int64_t reader = 0; reader < c_.readers; ++reader) {
      const int64_t first = reader * kChunk * dim;
      if (maps && queries_) TimesFeatureSlope(c_.q + first, scale, at.count * dim, s_.rows.dq + first);
      put(targets_.query, tile_ + tiles * (h_ % query_group), QueryHeadOf(p_, h_, reader),
          maps ? T(1) : scale, s_.rows.dq + first);
    }
    if (maps) TimesFeatureSlope(c_.k, T(1), at.count * dim, s_.rows.dk);
    for (int64_t i = 0; delta && !p_.erase.data && i < at.count; ++i)
      AddScaled(-BetaAt(p_, at, i), s_.rows.de + i * dim, dim, s_.rows.dk + i * dim);
    put(targets_.key, tile_ + tiles * (h_ % key_group), KeyHeadOf(p_, h_), T(1), s_.rows.dk);
    if (low_rank_) {
      put(targets_.a, tile_, h_, T(1), s_.rows.de);
      put(targets_.b, tile_, h_, T(1), s_.rows.db);
    }
    if (!delta) {
      if (g_.value.data)
        WriteScaledRows(p_, at, T(1), s_.d_targets, columns_.stride, columns_.first, columns_.count, s_.row,
                        g_.value, h_);
      return;
    }
    for (int64_t i = 0; i < at.count; ++i) {
      const int64_t row = sequence.row(at.begin + i), entry = sequence.entry;
      const T beta = BetaAt(p_, at, i);
      if (g_.erase.data) targets_.erase.Write(p_, tile_, entry, h_, row, -beta, s_.rows.de + i * dim, s_.row);
      if (g_.value.data)
        WriteScaled(beta, s_.d_targets + i * columns_.stride, columns_.first, columns_.count, s_.row,
                    g_.value, entry, h_, row);
    }
  }

  /// Beta and the gates. erase and value are read again, because e and Y carry beta.
  HWY_NOINLINE void StoreWeights(const ChunkAt& at) {
    const TokenSequence& sequence = p_.sequences[n_];
    const int64_t entry = sequence.entry;
    if (p_.decay == DecayKind::key)
      targets_.log_decay.WriteRows(p_, tile_, at, h_, T(1), s_.rows.decays, s_.row);
    for (int64_t i = 0; i < at.count; ++i) {
      const int64_t row = sequence.row(at.begin + i);
      if (g_.beta.data) {
        ReadStored(p_.value, entry, h_, row, columns_.first, columns_.count, s_.row);
        const T by_value = Dot(s_.row, s_.d_targets + i * columns_.stride, columns_.count);
        const T* erase = c_.k + i * c_.dim;
        if (p_.erase.data) {
          ReadStored(p_.erase, entry, h_, row, 0, p_.key_dim, s_.row);
          erase = s_.row;
        }
        targets_.beta.WriteOne(p_, tile_, entry, h_, row,
                               by_value - Dot(erase, s_.rows.de + i * c_.dim, p_.key_dim));
      }
      // OwnGradients, which writes it else, has not run.
      if (!queries_ && g_.self_weight.data) targets_.self_weight.WriteOne(p_, tile_, entry, h_, row, T(0));
      if (p_.decay != DecayKind::key && g_.log_decay.data)
        targets_.log_decay.WriteOne(p_, tile_, entry, h_, row, s_.rows.decays[i]);
    }
  }

  const RecurrenceProblem<T>& p_;
  const RecurrenceGradientProblem<T>& g_;
  const GradientTargets<T>& targets_;
  int64_t n_, h_, tile_, segment_tokens_;
  Columns columns_;
  bool queries_, low_rank_;
  Carve carve_;
  FetchedRows<T> fetch_;
  Chunk<T> c_;
  ForwardBuffers<T> f_;
  Terms terms_;
  BackwardBuffers<T> s_;
  BackwardMatrices<Matrix> m_;
  RowsAt<T> y_{}, d_outputs_{};  // [16] and [readers · 16] rows of columns
  int64_t state_size_, tile_size_;
  SumGradients<T> sums_;
};

template <class T, class Terms>
size_t BackwardUnitBytes(const RecurrenceProblem<T>& p) {
  Carve carve(nullptr);
  FetchedRows<T>(p, carve);
  const Chunk<T> c = TakeChunk(p, carve);
  const ForwardBuffers<T> f = TakeForwardBuffers(p, carve);
  Terms(p, ColumnsOf(p, 0), c, f, carve);
  TakeBackwardBuffers(p, c, carve);
  BackwardMatrices<typename Terms::Matrix>(p, ColumnsOf(p, 0), carve);
  return carve.Used();
}
template <class T, class Terms = NumberTerms<T>>
size_t ChunkedBackwardBytes(const RecurrenceProblem<T>& p, int threads) {
  Carve carve(nullptr);
  TakeTargets(p, RecurrenceGradientProblem<T>(), carve);
  return carve.Used() + FromThreadToThread(BackwardUnitBytes<T, Terms>(p)) * static_cast<size_t>(threads);
}
template <class T, class Terms = NumberTerms<T>>
void ChunkedBackward(const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g, Executor& executor,
                     std::byte* memory) {
  Carve carve(memory);
  const GradientTargets<T> targets = TakeTargets(p, g, carve);
  const size_t bytes = FromThreadToThread(BackwardUnitBytes<T, Terms>(p));
  std::byte* scratch = memory + carve.Used();
  const int64_t tiles = TilesOf(p).count, of_sequence = p.heads * tiles;
  executor.parallel_for(p.sequence_count * of_sequence, [&](int64_t unit, int worker) {
    BackwardUnit<T, Terms>(p, g, targets, unit / of_sequence, unit % of_sequence / tiles, unit % tiles,
                           scratch + bytes * static_cast<size_t>(worker))
        .Run();
  });
  ReduceTargets(p, g, targets, executor);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
