// One token of one state head in double: what it brings, and the step of the state.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/recurrence/stored_rows.h"

namespace fovea::kernels::reference_recurrence {

using Vector = std::vector<double>;

inline double dot(const Vector& x, const Vector& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}
/// y += f·x.
inline void add(double f, const Vector& x, Vector& y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += f * x[i];
}

/// A state, or a derivative by one: [rows, columns].
struct Matrix {
  std::size_t rows = 0, columns = 0;
  Vector elements;
  Matrix(std::size_t m, std::size_t n) : rows(m), columns(n), elements(m * n) {}
  double& at(std::size_t i, std::size_t j) { return elements[i * columns + j]; }
  double at(std::size_t i, std::size_t j) const { return elements[i * columns + j]; }
};

/// M y.
inline Vector times(const Matrix& m, const Vector& y) {
  Vector result(m.rows);
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t j = 0; j < m.columns; ++j) result[i] += m.at(i, j) * y[j];
  }
  return result;
}
/// M^T x.
inline Vector transposed_times(const Matrix& m, const Vector& x) {
  Vector result(m.columns);
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t j = 0; j < m.columns; ++j) result[j] += m.at(i, j) * x[i];
  }
  return result;
}
/// M += f·x y^T.
inline void add_outer(double f, const Vector& x, const Vector& y, Matrix& m) {
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t j = 0; j < m.columns; ++j) m.at(i, j) += f * x[i] * y[j];
  }
}
/// diag(factors) M.
inline Matrix scaled_rows(const Vector& factors, const Matrix& m) {
  Matrix result = m;
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t j = 0; j < m.columns; ++j) result.at(i, j) *= factors[i];
  }
  return result;
}

/// What a token brings to one state head.
struct Token {
  std::vector<Vector> queries;     // one for each reader, scaled
  Vector key, value, erase, a, b;  // as given; erase is the key where there is none
  Vector target;                   // y: beta·value
  Vector erased;                   // r: beta·erase
  Vector factors;                  // e^g
  Vector bonus;
  double beta = 1, self_weight = 0;
};

/// A row whose numbers are of T, or of 16 bits where T is float.
template <class T>
Vector row_of(const StoredOperand<const std::byte>& operand, std::int64_t entry, std::int64_t head,
              std::int64_t row, std::int64_t dim) {
  if (!operand.data) return {};
  std::vector<T> numbers(static_cast<std::size_t>(dim));
  read_stored(operand.head(head), entry, row, 0, dim, numbers.data());
  return Vector(numbers.begin(), numbers.end());
}
template <class T>
void write_row(const Vector& row, const StoredOperand<std::byte>& to, std::int64_t entry, std::int64_t head,
               std::int64_t token) {
  const std::vector<T> numbers(row.begin(), row.end());
  write_stored(numbers.data(), 0, static_cast<std::int64_t>(numbers.size()), to.head(head), entry, token);
}

template <class T>
Token token_of(const RecurrenceProblem<T>& p, const TokenSequence& sequence, std::int64_t h,
               std::int64_t token) {
  const std::int64_t entry = sequence.entry, row = sequence.row(token), dim = p.key_dim;
  Token t;
  for (std::int64_t reader = 0; reader < p.readers(); ++reader) {
    t.queries.push_back(row_of<T>(p.query, entry, p.query_head(h, reader), row, dim));
    for (double& element : t.queries.back()) element *= p.scale;
  }
  t.key = row_of<T>(p.key, entry, p.key_head(h), row, dim);
  t.value = row_of<T>(p.value, entry, h, row, p.value_dim);
  t.erase = p.erase.data ? row_of<T>(p.erase, entry, h, row, dim) : t.key;
  t.a = row_of<T>(p.a, entry, h, row, dim);
  t.b = row_of<T>(p.b, entry, h, row, dim);
  if (p.beta.data) t.beta = static_cast<double>(*p.beta.row(entry, h, row));
  if (p.self_weight.data) t.self_weight = static_cast<double>(*p.self_weight.row(entry, h, row));
  if (p.bonus) t.bonus.assign(p.bonus + h * dim, p.bonus + (h + 1) * dim);
  t.target = t.value;
  t.erased = t.erase;
  for (double& element : t.target) element *= t.beta;
  for (double& element : t.erased) element *= t.beta;
  t.factors.assign(static_cast<std::size_t>(dim), 1.0);
  if (p.decay != DecayKind::none) {
    const T* gates = p.log_decay.row(entry, h, row);
    for (std::int64_t i = 0; i < dim; ++i)
      t.factors[static_cast<std::size_t>(i)] =
          std::exp(static_cast<double>(gates[p.decay == DecayKind::key ? i : 0]));
  }
  return t;
}

/// The states around the write of a token. `written` is u of a delta write, y of the others; `product` is p
/// of a low-rank write.
struct Step {
  Matrix decayed, after;
  Vector written, product;
};

inline Step step(WriteKind write, const Token& t, const Matrix& before) {
  Step s{scaled_rows(t.factors, before), Matrix(0, 0), t.target, {}};
  s.after = s.decayed;
  if (write == WriteKind::delta) add(-1.0, transposed_times(s.decayed, t.erased), s.written);
  if (write == WriteKind::low_rank) {
    s.product = transposed_times(before, t.a);
    add_outer(1.0, t.b, s.product, s.after);
  }
  add_outer(1.0, t.key, s.written, s.after);
  return s;
}

/// ⟨q, diag(u) k⟩ of BeforeDecay, w ⟨q, k⟩ of SelfWeight: how much of its own target a token reads.
inline double own_share(ReadKind read, const Token& t, const Vector& query) {
  if (read == ReadKind::self_weight) return t.self_weight * dot(query, t.key);
  double sum = 0;
  for (std::size_t i = 0; i < query.size(); ++i) sum += query[i] * t.bonus[i] * t.key[i];
  return sum;
}

}  // namespace fovea::kernels::reference_recurrence
