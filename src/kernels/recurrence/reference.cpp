#include "kernels/recurrence/reference.h"

#include "fovea/core/cancellation.h"
#include "kernels/recurrence/reference_step.h"
#include "kernels/reference/reference.h"

namespace fovea::kernels {
namespace {

using namespace reference_recurrence;

Vector output_of(ReadKind read, const Token& t, const Vector& query, const Matrix& before, const Step& s) {
  if (read == ReadKind::after_write) return transposed_times(s.after, query);
  Vector output = transposed_times(read == ReadKind::before_decay ? before : s.decayed, query);
  add(own_share(read, t, query), t.target, output);
  return output;
}

template <class T>
void run_head(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, std::int64_t n,
              std::int64_t h) {
  const TokenSequence& sequence = p.sequences[n];
  Matrix state(static_cast<std::size_t>(p.key_dim), static_cast<std::size_t>(p.value_dim));
  const std::int64_t offset = h * p.state_size();
  if (const T* const initial = p.initial_states(n))
    state.elements.assign(initial + offset, initial + offset + p.state_size());
  for (std::int64_t i = 0; i < sequence.count; ++i) {
    throw_if_cancelled();
    const Token t = token_of(p, sequence, h, i);
    Step s = step(p.write, t, state);
    for (std::int64_t reader = 0; results.output.data && reader < p.readers(); ++reader) {
      const Vector output = output_of(p.read, t, t.queries[static_cast<std::size_t>(reader)], state, s);
      write_row<T>(output, results.output, sequence.entry, p.output_head(h, reader), sequence.row(i));
    }
    state = std::move(s.after);
  }
  T* const final = results.final_state.of(n, p.states_size());
  for (std::int64_t j = 0; final && j < p.state_size(); ++j)
    final[offset + j] = static_cast<T>(state.elements[static_cast<std::size_t>(j)]);
}

template <class T>
RecurrenceCode<T> code() {
  return {.forward_bytes = [](const RecurrenceProblem<T>&, int) { return std::size_t{0}; },
          .forward =
              [](const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, Executor& executor,
                 std::byte*) {
                executor.parallel_for(p.sequence_count * p.heads, [&](std::int64_t unit, int) {
                  run_head(p, results, unit / p.heads, unit % p.heads);
                });
              },
          .backward_bytes = [](const RecurrenceProblem<T>&, int) { return std::size_t{0}; },
          .backward = [](const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g, Executor&,
                         std::byte*) { reference_recur_backward(p, g); }};
}

}  // namespace

RecurrenceCandidate recurrence_reference_candidate() {
  RecurrenceCandidate reference{
      {.name = "reference", .isa = reference_candidate().isa, .f32 = code<float>(), .f64 = code<double>()}};
  reference.refuse = [](const RecurrenceRequest&) -> const char* { return nullptr; };
  return reference;
}

}  // namespace fovea::kernels
