// Backward of the specification: the states of a sequence are all kept, and the derivative by the state, G,
// goes backwards through the tokens.
#include "fovea/core/cancellation.h"
#include "kernels/recurrence/reference.h"
#include "kernels/recurrence/reference_step.h"

namespace fovea::kernels {
namespace {

using namespace reference_recurrence;

// The derivatives by what a token brings, as in Token.
struct TokenGradient {
  std::vector<Vector> queries;
  Vector key, target, erased, a, b, log_decay, bonus;
  double self_weight = 0;
  explicit TokenGradient(const Token& t)
      : queries(t.queries.size(), Vector(t.key.size())),
        key(t.key.size()),
        target(t.target.size()),
        erased(t.key.size()),
        a(t.key.size()),
        b(t.key.size()),
        log_decay(t.key.size()),
        bonus(t.key.size()) {}
};

// What a token reads of its own pair: ⟨q, diag(u) k⟩ y or w ⟨q, k⟩ y.
void own_pair_backward(ReadKind read, const Token& t, const Vector& query, const Vector& d_output,
                       Vector& d_query, TokenGradient& d) {
  const double c = dot(d_output, t.target);
  add(own_share(read, t, query), d_output, d.target);
  if (read == ReadKind::self_weight) {
    d.self_weight += c * dot(query, t.key);
    add(c * t.self_weight, t.key, d_query);
    add(c * t.self_weight, query, d.key);
    return;
  }
  for (std::size_t i = 0; i < query.size(); ++i) {
    d_query[i] += c * t.bonus[i] * t.key[i];
    d.key[i] += c * t.bonus[i] * query[i];
    d.bonus[i] += c * query[i] * t.key[i];
  }
}

// In: `g` is the derivative by the state behind the token. Out: by the state before it.
TokenGradient step_backward(WriteKind write, ReadKind read, const Token& t, const Matrix& before,
                            const std::vector<Vector>& d_outputs, Matrix& g) {
  const Step s = step(write, t, before);
  TokenGradient d(t);
  const Matrix& seen = read == ReadKind::after_write    ? s.after
                       : read == ReadKind::before_decay ? before
                                                        : s.decayed;
  for (std::size_t reader = 0; reader < d_outputs.size(); ++reader) {
    d.queries[reader] = times(seen, d_outputs[reader]);
    if (read == ReadKind::after_write)
      add_outer(1.0, t.queries[reader], d_outputs[reader], g);
    else
      own_pair_backward(read, t, t.queries[reader], d_outputs[reader], d.queries[reader], d);
  }
  const Vector d_written = transposed_times(g, t.key);
  add(1.0, times(g, s.written), d.key);
  add(1.0, d_written, d.target);
  Vector d_product;
  if (write == WriteKind::low_rank) {
    d_product = transposed_times(g, t.b);
    d.b = times(g, s.product);
    d.a = times(before, d_product);
  }
  Matrix d_decayed = g;
  if (write == WriteKind::delta) {
    add(-1.0, times(s.decayed, d_written), d.erased);
    add_outer(-1.0, t.erased, d_written, d_decayed);
  }
  for (std::size_t reader = 0; read == ReadKind::self_weight && reader < d_outputs.size(); ++reader)
    add_outer(1.0, t.queries[reader], d_outputs[reader], d_decayed);
  for (std::size_t i = 0; i < g.rows; ++i) {
    for (std::size_t j = 0; j < g.columns; ++j) d.log_decay[i] += d_decayed.at(i, j) * s.decayed.at(i, j);
  }
  g = scaled_rows(t.factors, d_decayed);
  if (write == WriteKind::low_rank) add_outer(1.0, t.a, d_product, g);
  for (std::size_t reader = 0; read == ReadKind::before_decay && reader < d_outputs.size(); ++reader)
    add_outer(1.0, t.queries[reader], d_outputs[reader], g);
  return d;
}

// Gradients that several heads add to, in double: [heads, tokens, dim] of one sequence.
struct Sums {
  std::int64_t tokens, dim;
  Vector elements;
  Sums(std::int64_t heads, std::int64_t count, std::int64_t row_dim)
      : tokens(count), dim(row_dim), elements(static_cast<std::size_t>(heads * count * row_dim)) {}
  void add_row(std::int64_t head, std::int64_t token, double f, const Vector& row) {
    for (std::int64_t i = 0; i < dim; ++i)
      elements[static_cast<std::size_t>((head * tokens + token) * dim + i)] +=
          f * row[static_cast<std::size_t>(i)];
  }
  template <class T>
  void write(const TokenSequence& sequence, const StoredOperand<std::byte>& to) const {
    if (!to.data) return;
    const std::int64_t heads =
        static_cast<std::int64_t>(elements.size()) / std::max<std::int64_t>(tokens * dim, 1);
    for (std::int64_t row = 0; row < heads * tokens; ++row) {
      const auto first = elements.begin() + row * dim;
      write_row<T>(Vector(first, first + dim), to, sequence.entry, row / tokens, sequence.row(row % tokens));
    }
  }
};

template <class T>
void write_numbers(const Vector& row, T* to) {
  for (std::size_t i = 0; i < row.size(); ++i) to[i] = static_cast<T>(row[i]);
}

// The gradients that sequences and heads share while a call runs.
struct Shared {
  Vector constant_log_decay, bonus;  // [heads], [heads, key_dim]
};

template <class T>
class Backward {
 public:
  Backward(const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g, std::int64_t n,
           Shared& shared)
      : p_(p),
        g_(g),
        n_(n),
        sequence_(p.sequences[n]),
        shared_(shared),
        d_query_(p.query_heads, sequence_.count, p.key_dim),
        d_key_(p.key_heads, sequence_.count, p.key_dim) {}

  void run() {
    for (std::int64_t h = 0; h < p_.heads; ++h) run_head(h);
    d_query_.template write<T>(sequence_, g_.query);
    d_key_.template write<T>(sequence_, g_.key);
  }

 private:
  void run_head(std::int64_t h) {
    const std::int64_t offset = (n_ * p_.heads + h) * p_.state_size();
    Matrix state(static_cast<std::size_t>(p_.key_dim), static_cast<std::size_t>(p_.value_dim)), g = state;
    if (const T* const initial = p_.initial_states(n_))
      state.elements.assign(initial + h * p_.state_size(), initial + (h + 1) * p_.state_size());
    if (g_.d_final_state)
      g.elements.assign(g_.d_final_state + offset, g_.d_final_state + offset + p_.state_size());
    std::vector<Matrix> before;
    for (std::int64_t i = 0; i < sequence_.count; ++i) {
      before.push_back(state);
      state = step(p_.write, token_of(p_, sequence_, h, i), state).after;
    }
    for (std::int64_t i = sequence_.count; i-- > 0;) {
      throw_if_cancelled();
      const Token t = token_of(p_, sequence_, h, i);
      const TokenGradient d =
          step_backward(p_.write, p_.read, t, before[static_cast<std::size_t>(i)], d_outputs(h, i), g);
      write_token(t, d, h, i);
    }
    if (g_.initial_state) write_numbers(g.elements, g_.initial_state + offset);
  }

  std::vector<Vector> d_outputs(std::int64_t h, std::int64_t token) const {
    std::vector<Vector> rows;
    for (std::int64_t reader = 0; g_.d_output.data && reader < p_.readers(); ++reader)
      rows.push_back(row_of<T>(g_.d_output, sequence_.entry, p_.output_head(h, reader), sequence_.row(token),
                               p_.value_dim));
    return rows;
  }

  void write_token(const Token& t, const TokenGradient& d, std::int64_t h, std::int64_t token) {
    const std::int64_t entry = sequence_.entry, row = sequence_.row(token);
    for (std::size_t reader = 0; reader < d.queries.size(); ++reader)
      d_query_.add_row(p_.query_head(h, static_cast<std::int64_t>(reader)), token, p_.scale,
                       d.queries[reader]);
    d_key_.add_row(p_.key_head(h), token, 1.0, d.key);
    if (!p_.erase.data) d_key_.add_row(p_.key_head(h), token, t.beta, d.erased);
    const auto put = [&](const StoredOperand<std::byte>& to, double factor, Vector x) {
      if (!to.data) return;
      for (double& element : x) element *= factor;
      write_row<T>(x, to, entry, h, row);
    };
    put(g_.value, t.beta, d.target);
    put(g_.erase, t.beta, d.erased);
    put(g_.a, 1.0, d.a);
    put(g_.b, 1.0, d.b);
    const auto put_weights = [&](const Operand<T*>& to, const Vector& x) {
      if (to.data) write_numbers(x, to.row(entry, h, row));
    };
    put_weights(g_.beta, {dot(t.erase, d.erased) + dot(t.value, d.target)});
    put_weights(g_.self_weight, {d.self_weight});
    double sum = 0;
    for (const double element : d.log_decay) sum += element;
    put_weights(g_.log_decay, p_.decay == DecayKind::key ? d.log_decay : Vector{sum});
    shared_.constant_log_decay[static_cast<std::size_t>(h)] += sum;
    for (std::size_t i = 0; i < d.bonus.size(); ++i)
      shared_.bonus[static_cast<std::size_t>(h) * d.bonus.size() + i] += d.bonus[i];
  }

  const RecurrenceProblem<T>& p_;
  const RecurrenceGradientProblem<T>& g_;
  std::int64_t n_;
  const TokenSequence& sequence_;
  Shared& shared_;
  Sums d_query_, d_key_;
};

}  // namespace

template <class T>
void reference_recur_backward(const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g) {
  Shared shared{Vector(static_cast<std::size_t>(p.heads)),
                Vector(static_cast<std::size_t>(p.heads * p.key_dim))};
  for (std::int64_t n = 0; n < p.sequence_count; ++n) Backward<T>(p, g, n, shared).run();
  if (g.constant_log_decay) write_numbers(shared.constant_log_decay, g.constant_log_decay);
  if (g.bonus) write_numbers(shared.bonus, g.bonus);
}

template void reference_recur_backward(const RecurrenceProblem<float>&,
                                       const RecurrenceGradientProblem<float>&);
template void reference_recur_backward(const RecurrenceProblem<double>&,
                                       const RecurrenceGradientProblem<double>&);

}  // namespace fovea::kernels
