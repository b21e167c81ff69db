#include "fovea/plan/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

#include "core/clones.h"
#include "plan/call.h"
#include "plan/rows.h"

namespace fovea {
namespace {

constexpr std::int64_t most_positions = std::int64_t{1} << 40;
constexpr std::int64_t most_rotary_dim = 65536;
// About the number of elements that a parallel unit rotates: some microseconds of work.
constexpr std::int64_t unit_elements = 32768;

void check_length(const char* function, const char* argument, std::int64_t length) {
  if (length < 0 || length > most_positions)
    throw InvalidArgument(function, argument, "a number in [0, 2^40]", std::to_string(length));
}

// Pair i of d / 2: base^(-2i / d).
std::vector<double> unscaled(double base, std::int64_t d) {
  std::vector<double> inverse(static_cast<std::size_t>(d / 2));
  for (std::size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(d));
  return inverse;
}

// The base for which the slowest frequency is divided by `factor`.
double ntk_base(const Rope& rope, double factor) {
  const auto d = static_cast<double>(rope.rotary_dim);
  return rope.base * std::pow(factor, d / (d - 2.0));
}

struct Scale {
  const Rope& rope;
  std::int64_t sequence_len;
  RopeFrequencies result;

  void divide(double factor) {
    for (double& inverse : result.inverse) inverse /= factor;
  }
  void operator()(const NoScaling&) {}
  void operator()(const LinearScaling& linear) { divide(linear.factor); }
  void operator()(const NtkScaling& ntk) {
    result.inverse = unscaled(ntk_base(rope, ntk.factor), rope.rotary_dim);
  }
  void operator()(const DynamicNtkScaling& dynamic) {
    const auto original = static_cast<double>(dynamic.original_max_positions);
    const double length = std::max(static_cast<double>(sequence_len), original);
    const double factor = 1.0 + dynamic.factor * (length / original - 1.0);
    result.inverse = unscaled(ntk_base(rope, factor), rope.rotary_dim);
  }
  void operator()(const YarnScaling& yarn) {
    const auto d = static_cast<double>(rope.rotary_dim);
    // The number of the pair (a real number) that makes so many turns within the original positions.
    const auto pair_of = [&](double turns) {
      const double wavelength = static_cast<double>(yarn.original_max_positions) / turns;
      return d * std::log(wavelength / (2.0 * std::numbers::pi)) / (2.0 * std::log(rope.base));
    };
    double first = pair_of(yarn.beta_fast), last = pair_of(yarn.beta_slow);
    if (yarn.ends == YarnScaling::Ends::rounded) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::clamp(first, 0.0, d - 1.0);
    last = std::clamp(last, 0.0, d - 1.0);
    if (first == last) last += 0.001;  // makes a step, as transformers does
    for (std::size_t i = 0; i < result.inverse.size(); ++i) {
      const double slowed = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
      result.inverse[i] *= 1.0 - slowed + slowed / yarn.factor;
    }
    result.attention_factor = yarn.attention_factor.value_or(0.1 * std::log(yarn.factor) + 1.0);
  }
  void operator()(const LongRopeScaling& longrope) {
    const std::vector<double>& factors =
        sequence_len > longrope.original_max_positions ? longrope.long_factors : longrope.short_factors;
    for (std::size_t i = 0; i < factors.size(); ++i) result.inverse[i] /= factors[i];
    result.attention_factor = longrope.attention_factor;
  }
  void operator()(const Llama3Scaling& llama3) {
    for (double& inverse : result.inverse) {
      const double turns =
          static_cast<double>(llama3.original_max_positions) * inverse / (2.0 * std::numbers::pi);
      const double kept = std::clamp(
          (turns - llama3.low_freq_factor) / (llama3.high_freq_factor - llama3.low_freq_factor), 0.0, 1.0);
      inverse *= kept + (1.0 - kept) / llama3.factor;
    }
  }
};

template <class T>
void fill(const RopeFrequencies& frequencies, std::int64_t positions, T* cosines, T* sines,
          Executor& executor) {
  const auto pairs = static_cast<std::int64_t>(frequencies.inverse.size());
  const std::int64_t rows = std::max<std::int64_t>(1, 1024 / pairs);
  executor.parallel_for((positions + rows - 1) / rows, [&](std::int64_t unit, int) {
    for (std::int64_t p = unit * rows; p < std::min(positions, (unit + 1) * rows); ++p) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(p) * frequencies.inverse[static_cast<std::size_t>(i)];
        cosines[p * pairs + i] = static_cast<T>(std::cos(angle) * frequencies.attention_factor);
        sines[p * pairs + i] = static_cast<T>(std::sin(angle) * frequencies.attention_factor);
      }
    }
  });
}

enum class Direction { forward, back };

// `from` and `to` may be the same.
template <RopeLayout layout, class T, class Compute>
[[gnu::always_inline]] inline void turn_pairs(const T* from, const Compute* cosines, const Compute* sines,
                                              Compute sign, std::int64_t pairs, T* to) {
  constexpr bool split = layout == RopeLayout::half_split;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t a = split ? i : 2 * i, b = split ? pairs + i : 2 * i + 1;
    const auto x = static_cast<Compute>(from[a]), y = static_cast<Compute>(from[b]);
    const Compute c = cosines[i], s = sign * sines[i];
    to[a] = static_cast<T>(x * c - y * s);
    to[b] = static_cast<T>(y * c + x * s);
  }
}

// GCC clones no templates. Models rotate halves of rows in f32.
FOVEA_CLONES void turn_halves(const float* from, const float* cosines, const float* sines, float sign,
                              std::int64_t pairs, float* to) {
  turn_pairs<RopeLayout::half_split>(from, cosines, sines, sign, pairs, to);
}

template <RopeLayout layout, Direction direction, class T, class Compute>
void turn_row(const T* from, const Compute* cosines, const Compute* sines, std::int64_t pairs, T* to) {
  constexpr Compute sign = direction == Direction::forward ? 1 : -1;
  if constexpr (layout == RopeLayout::half_split && std::is_same_v<T, float>)
    turn_halves(from, cosines, sines, sign, pairs, to);
  else
    turn_pairs<layout>(from, cosines, sines, sign, pairs, to);
}

template <class Compute>
struct TableRows {
  const Compute* data;
  std::int64_t entry_stride, row_stride;
  explicit TableRows(const ConstTensorView& table)
      : data(table.data<Compute>()),
        entry_stride(table.rank() == 3 ? table.stride(0) : 0),
        row_stride(table.stride(table.rank() - 2)) {}
  const Compute* row(std::int64_t entry, std::int64_t position) const {
    return data + entry * entry_stride + position * row_stride;
  }
};

template <RopeLayout layout, Direction direction, class T>
void turn(const RopeTable& table, const ConstTensorView& input, const RopePositions& positions,
          const TensorView& output, Executor& executor) {
  using Compute = Wide<T>;
  const std::int64_t batch = input.size(0), heads = input.size(1), length = input.size(2),
                     dim = input.size(3), pairs = table.rotary_dim() / 2;
  const auto from = operand_of<T>(input);
  const auto to = operand_of<T>(output);
  const TableRows<Compute> cosines(table.cosines()), sines(table.sines());
  const std::span<const std::int64_t> list = positions.list();
  const std::int64_t list_stride = static_cast<std::int64_t>(list.size()) == length ? 0 : length;
  // A unit is a block of rows with all heads, which share the rows of the table.
  const std::int64_t rows = std::clamp<std::int64_t>(unit_elements / (heads * dim), 1, length),
                     blocks = (length + rows - 1) / rows;
  executor.parallel_for(batch * blocks, [&](std::int64_t unit, int) {
    const std::int64_t entry = unit / blocks, first = unit % blocks * rows,
                       end = std::min(length, first + rows);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t l = first; l < end; ++l) {
        const std::int64_t position = positions.listed()
                                          ? list[static_cast<std::size_t>(entry * list_stride + l)]
                                          : positions.first() + l;
        const T* source = from.row(entry, h, l);
        T* result = to.row(entry, h, l);
        turn_row<layout, direction>(source, cosines.row(entry, position), sines.row(entry, position), pairs,
                                    result);
        if (source != result) std::copy(source + 2 * pairs, source + dim, result + 2 * pairs);
      }
    }
  });
}

void check_positions(const char* function, const RopeTable& table, const RopePositions& positions,
                     std::int64_t batch, std::int64_t length) {
  const auto outside = [&](const std::string& got) {
    throw InvalidArgument(function, "positions",
                          "positions in [0, " + std::to_string(table.positions()) + "), those of the table",
                          got);
  };
  if (!positions.listed()) {
    if (positions.first() < 0 || length > table.positions() || positions.first() > table.positions() - length)
      outside(std::to_string(positions.first()) +
              (length > 1 ? " and the " + std::to_string(length - 1) + " after it" : ""));
    return;
  }
  const auto count = static_cast<std::int64_t>(positions.list().size());
  if (count != length && count != batch * length) {
    throw InvalidArgument(function, "positions",
                          "a list [length] or [batch, length], " + std::to_string(length) + " or " +
                              std::to_string(batch * length),
                          std::to_string(count));
  }
  for (const std::int64_t position : positions.list())
    if (position < 0 || position >= table.positions()) outside(std::to_string(position));
}

// The names of a function and its views, for errors.
struct Names {
  const char *function, *input, *output;
};

void check(const Names& names, const RopeTable& table, const ConstTensorView& input,
           const RopePositions& positions, const TensorView& output) {
  const std::int64_t rotary_dim = table.rotary_dim();
  const DType dtype = input.dtype(), held = table.cosines().dtype();
  if (input.rank() != 4 || input.size(3) < rotary_dim) {
    throw InvalidArgument(names.function, names.input,
                          "[batch, heads, length, head_dim] with a head_dim of at least rotary_dim " +
                              std::to_string(rotary_dim),
                          to_string(input.shape()));
  }
  if ((dtype == DType::f64) != (held == DType::f64)) {
    throw InvalidArgument(
        names.function, names.input,
        held == DType::f64 ? "f64, the dtype of the table" : "f32, bf16 or f16, because the table is f32",
        std::string(to_string(dtype)));
  }
  if (table.cosines().rank() == 3 && table.cosines().size(0) != input.size(0)) {
    throw InvalidArgument(names.function, "cosines",
                          "tables of " + std::to_string(input.size(0)) + " batch entries, as the input has",
                          to_string(table.cosines().shape()));
  }
  check_view(names.function, names.input, input, dtype, input.shape());
  check_written(names.function, names.output, output, dtype, input.shape());
  if (!same_view(input, output) && extents_overlap(input, output)) {
    throw InvalidArgument(names.function, names.output,
                          std::string("the view ") + names.input + " itself, or memory apart from it",
                          "overlapping memory");
  }
  if (extents_overlap(table.cosines(), output) || extents_overlap(table.sines(), output)) {
    throw InvalidArgument(names.function, names.output, "memory apart from the table's",
                          "overlapping memory");
  }
  check_positions(names.function, table, positions, input.size(0), input.size(2));
}

template <Direction direction>
void run(const Names& names, const RopeTable& table, const ConstTensorView& input,
         const RopePositions& positions, const TensorView& output, Executor* executor) {
  check(names, table, input, positions, output);
  if (input.count() == 0) return;
  Executor& workers = executor ? *executor : default_executor();
  with_type(input.dtype(), [&](auto element) {
    using T = decltype(element);
    if (table.layout() == RopeLayout::half_split)
      turn<RopeLayout::half_split, direction, T>(table, input, positions, output, workers);
    else
      turn<RopeLayout::interleaved, direction, T>(table, input, positions, output, workers);
  });
}

}  // namespace

RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t sequence_len) {
  check_rope(rope);
  check_length("rope_frequencies", "sequence_len", sequence_len);
  Scale scale{rope, sequence_len, {unscaled(rope.base, rope.rotary_dim), 1.0}};
  std::visit(scale, rope.scaling);
  return scale.result;
}

RopeTable::RopeTable(const Rope& rope, std::int64_t positions, DType dtype, Executor* executor)
    : layout_(rope.layout) {
  check_length("RopeTable", "positions", positions);
  const RopeFrequencies frequencies = rope_frequencies(rope, positions);
  const DType held = wide_dtype(dtype);
  const Shape shape{positions, rope.rotary_dim / 2};
  cosines_ = own_cosines_ = Tensor(held, shape);
  sines_ = own_sines_ = Tensor(held, shape);
  Executor& workers = executor ? *executor : default_executor();
  with_wide_type(held, [&](auto element) {
    using T = decltype(element);
    fill(frequencies, positions, own_cosines_.data<T>(), own_sines_.data<T>(), workers);
  });
}

RopeTable::RopeTable(std::span<const RopeTable> tables)
    : layout_(tables.empty() ? RopeLayout::half_split : tables[0].layout()) {
  std::int64_t positions = 0;
  for (std::size_t n = 0; n < tables.size(); ++n) {
    const RopeTable& table = tables[n];
    const bool fits = table.cosines().rank() == 2 && table.rotary_dim() == tables[0].rotary_dim() &&
                      table.cosines().dtype() == tables[0].cosines().dtype() && table.layout() == layout_;
    if (!fits) {
      const auto text = [](const RopeTable& x) {
        return std::string(to_string(x.cosines().dtype())) + " " + to_string(x.cosines().shape()) +
               (x.layout() == RopeLayout::interleaved ? " interleaved" : " half-split");
      };
      throw InvalidArgument(
          "RopeTable", "tables[" + std::to_string(n) + "]",
          "[positions, rotary_dim / 2] with the rotary_dim, dtype and layout of tables[0], " +
              text(tables[0]),
          text(table));
    }
    positions += table.positions();
  }
  if (tables.empty()) throw InvalidArgument("RopeTable", "tables", "at least one", "none");
  const DType held = tables[0].cosines().dtype();
  const Shape shape{positions, tables[0].rotary_dim() / 2};
  cosines_ = own_cosines_ = Tensor(held, shape);
  sines_ = own_sines_ = Tensor(held, shape);
  std::int64_t begin = 0;
  for (const RopeTable& table : tables) {
    const Tensor rows[] = {Tensor::copy_of(table.cosines()), Tensor::copy_of(table.sines())};
    const auto size = static_cast<std::int64_t>(size_of(held)) * table.rotary_dim() / 2;
    const auto bytes = static_cast<std::size_t>(size * table.positions());
    if (bytes == 0) continue;
    std::memcpy(own_cosines_.raw() + begin * size, rows[0].raw(), bytes);
    std::memcpy(own_sines_.raw() + begin * size, rows[1].raw(), bytes);
    begin += table.positions();
  }
}

RopeTable::RopeTable(ConstTensorView cosines, ConstTensorView sines, RopeLayout layout)
    : layout_(layout), cosines_(cosines), sines_(sines) {
  const int rank = cosines.rank();
  const std::int64_t pairs = rank > 0 ? cosines.size(rank - 1) : 0;
  if (!cosines || rank < 2 || rank > 3 || pairs < 1 || pairs > most_rotary_dim / 2) {
    throw InvalidArgument(
        "RopeTable", "cosines",
        "[positions, rotary_dim / 2] or [batch, positions, rotary_dim / 2], with a rotary_dim in [2, 65536]",
        to_string(cosines.shape()));
  }
  if (cosines.dtype() != DType::f32 && cosines.dtype() != DType::f64) {
    throw InvalidArgument("RopeTable", "cosines", "f32 or f64", std::string(to_string(cosines.dtype())));
  }
  check_view("RopeTable", "cosines", cosines, cosines.dtype(), cosines.shape());
  check_view("RopeTable", "sines", sines, cosines.dtype(), cosines.shape());
}

void rope_forward(const RopeTable& table, ConstTensorView input, RopePositions positions, TensorView output,
                  Executor* executor) {
  run<Direction::forward>({"rope_forward", "input", "output"}, table, input, positions, output, executor);
}

void rope_backward(const RopeTable& table, ConstTensorView d_output, RopePositions positions,
                   TensorView d_input, Executor* executor) {
  run<Direction::back>({"rope_backward", "d_output", "d_input"}, table, d_output, positions, d_input,
                       executor);
}

}  // namespace fovea
