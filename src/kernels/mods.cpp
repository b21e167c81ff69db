#include "kernels/mods.h"

#include <algorithm>
#include <cstring>

#include "kernels/problem.h"

namespace fovea::kernels {
namespace {

enum class Sum : std::uint8_t { table, scalar, rows, columns, dense };

template <class T>
Sum sum_of(const ProblemMod<T>& mod, const ModArgument<T>& argument) {
  if (mod.node->entries() > 0) return argument.sizes[2] > 1 ? Sum::dense : Sum::table;
  const bool queries = argument.sizes[2] > 1, keys = argument.sizes[3] > 1;
  return queries ? keys ? Sum::dense : Sum::rows : keys ? Sum::columns : Sum::scalar;
}

// The entry of a table for each distance between query and key in a tile of scores, found once a tile: all
// scores of a diagonal have the same distance.
struct Entries {
  std::array<std::int64_t, 64 + 128> list;
  std::int64_t least = 0;  // the distance that list[0] belongs to
  Entries(const ModNode& node, const ModPlace& at, std::int64_t position) {
    least = position - at.key - (at.count - 1);
    for (std::int64_t n = 0; n < at.rows + at.count - 1; ++n)
      list[static_cast<std::size_t>(n)] = node.entry(least + n);
  }
  // The entry for row r and key j of the tile.
  std::int64_t at(const ModPlace& place, std::int64_t r, std::int64_t j) const {
    return list[static_cast<std::size_t>(r + place.count - 1 - j)];
  }
};

// Mods compute whole vectors of mod_lanes scores. The lanes behind the last of `count` numbers repeat it.
template <class T>
void repeat_last(T* row, std::int64_t count) {
  const std::int64_t end = (count + mod_lanes - 1) / mod_lanes * mod_lanes;
  std::fill(row + count, row + end, row[count - 1]);
}

// `count` numbers that are `stride` apart, as a row.
template <class T>
void load_row(const T* from, std::int64_t stride, std::int64_t count, T* row) {
  if (stride == 1) {
    std::copy_n(from, count, row);
  } else {
    for (std::int64_t j = 0; j < count; ++j) row[j] = from[j * stride];
  }
  repeat_last(row, count);
}

template <class T>
bool wanted(const ModArgument<T>& argument) {
  return argument.gradient != nullptr;
}

// The values of a table that all queries share: one for each diagonal of the tile, from the largest distance
// to the smallest. A row begins one number before the row above it.
template <class T>
typename ModTile<T>::Argument diagonals(const Entries& entries, const T* table, std::int64_t stride,
                                        const ModPlace& at, T* to) {
  const std::int64_t count = at.rows + at.count - 1;
  for (std::int64_t n = 0; n < count; ++n)
    to[n] = table[entries.list[static_cast<std::size_t>(count - 1 - n)] * stride];
  std::fill_n(to + count, mod_lanes, to[count - 1]);
  return {to + at.rows - 1, -1};
}

// The values of an argument for a tile of scores, each row contiguous; one row where all rows share it.
template <class T>
typename ModTile<T>::Argument load(const Problem<T>& p, const ProblemMod<T>& mod, const ModArgument<T>& x,
                                   const ModPlace& at, T* to) {
  const T* base = x.data + at.batch * x.strides[0] + at.head * x.strides[1];
  if (mod.node->entries() > 0) {
    const Entries entries(*mod.node, at, position_of(p, at.batch, at.row));
    if (x.strides[2] == 0) return diagonals(entries, base, x.strides[3], at, to);
    for (std::int64_t r = 0; r < at.rows; ++r) {
      T* row = to + r * mod_stride;
      const T* from = base + (at.row + r) * x.strides[2];
      for (std::int64_t j = 0; j < at.count; ++j) row[j] = from[entries.at(at, r, j) * x.strides[3]];
      repeat_last(row, at.count);
    }
    return {to, mod_stride};
  }
  const std::int64_t rows = x.strides[2] != 0 ? at.rows : 1;
  for (std::int64_t r = 0; r < rows; ++r)
    load_row(base + (at.row + r) * x.strides[2] + at.key * x.strides[3], x.strides[3], at.count,
             to + r * mod_stride);
  return {to, rows > 1 ? mod_stride : 0};
}

template <class T>
ModTile<T> tile_of(const Problem<T>& p, const ProblemMod<T>& mod, const ModPlace& at,
                   const ModBuffers<T>& buffers) {
  ModTile<T> tile;
  tile.rows = at.rows;
  tile.count = at.count;
  tile.stride = mod_stride;
  tile.first = Site::at(entry_of(p, at.batch), at.head, position_of(p, at.batch, at.row), at.key);
  for (std::size_t k = 0; k < mod.count; ++k) {
    tile.arguments[k] = load(p, mod, mod.arguments[k], at,
                             buffers.arguments + static_cast<std::int64_t>(k) * buffers.rows * mod_stride);
  }
  return tile;
}

template <class T>
T total(const T* x, std::int64_t n) {
  T sum{0};
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

template <class T>
void add(const T* x, std::int64_t n, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

// Adds to the caller's tensor at once: only one unit of work at a time adds to an element.
template <class T>
void add_dense(const Problem<T>& p, const ProblemMod<T>& mod, const ModArgument<T>& x, const ModPlace& at,
               const T* values) {
  const ModStrides& s = x.gradient_strides;
  T* base = x.gradient + at.batch * s[0] + at.head * s[1] + at.row * s[2];
  if (mod.node->entries() > 0) {
    const Entries entries(*mod.node, at, position_of(p, at.batch, at.row));
    for (std::int64_t r = 0; r < at.rows; ++r) {
      for (std::int64_t j = 0; j < at.count; ++j)
        base[r * s[2] + entries.at(at, r, j) * s[3]] += values[r * mod_stride + j];
    }
    return;
  }
  for (std::int64_t r = 0; r < at.rows; ++r) {
    T* to = base + r * s[2] + at.key * s[3];
    for (std::int64_t j = 0; j < at.count; ++j) to[j * s[3]] += values[r * mod_stride + j];
  }
}

template <class T>
void add_up(const Problem<T>& p, const ProblemMod<T>& mod, const ModArgument<T>& x, const ModPlace& at,
            const T* values, T* region) {
  const std::int64_t head = at.batch * p.query_heads + at.head,
                     group_head = at.group * p.batch * p.query_heads + head;
  switch (sum_of(mod, x)) {
    case Sum::table: {
      T* to = region + group_head * mod.node->entries();
      const Entries entries(*mod.node, at, position_of(p, at.batch, at.row));
      for (std::int64_t r = 0; r < at.rows; ++r) {
        for (std::int64_t j = 0; j < at.count; ++j) to[entries.at(at, r, j)] += values[r * mod_stride + j];
      }
      return;
    }
    case Sum::scalar:
      for (std::int64_t r = 0; r < at.rows; ++r)
        region[group_head] += total(values + r * mod_stride, at.count);
      return;
    case Sum::rows:
      for (std::int64_t r = 0; r < at.rows; ++r)
        region[group_head * p.query_len + at.row + r] += total(values + r * mod_stride, at.count);
      return;
    case Sum::columns:
      for (std::int64_t r = 0; r < at.rows; ++r)
        add(values + r * mod_stride, at.count,
            region + (p.whole_row ? group_head : head) * p.key_len + at.key);
      return;
    case Sum::dense:
      return add_dense(p, mod, x, at, values);
  }
}

template <class T>
void clear(T* region, std::int64_t count, Executor& executor) {
  constexpr std::int64_t piece = 1 << 14;
  (count <= 2 * piece ? serial_executor() : executor)
      .parallel_for((count + piece - 1) / piece, [&](std::int64_t unit, int) {
        std::fill(region + unit * piece, region + std::min(count, (unit + 1) * piece), T{0});
      });
}

// A piece of the elements of a gradient that are one behind the other in its query or key axis, by the
// argument's own indices.
struct Piece {
  std::int64_t batch = 0, head = 0, row = 0, begin = 0, end = 0;
};

// Calls body(piece) for all elements of a gradient, on the executor. A piece lies along the key axis, or
// along the query axis where `down`, which has then the only index of the key axis.
template <class T, class Body>
void for_mod_pieces(const ModArgument<T>& x, bool down, Executor& executor, Body&& body) {
  constexpr std::int64_t longest = 256;
  const std::int64_t length = x.sizes[down ? 2 : 3], rows = down ? 1 : x.sizes[2],
                     across = (length + longest - 1) / longest, all = x.sizes[0] * x.sizes[1] * rows * across;
  // Threads take 64 pieces at a time: a piece of a dense gradient that is set to 0 takes a few ns.
  constexpr std::int64_t together = 64;
  const auto one = [&](std::int64_t n) {
    const std::int64_t begin = n % across * longest, line = n / across;
    body(Piece{line / rows / x.sizes[1], line / rows % x.sizes[1], line % rows, begin,
               std::min(length, begin + longest)});
  };
  (all <= together ? serial_executor() : executor)
      .parallel_for((all + together - 1) / together, [&](std::int64_t unit, int) {
        for (std::int64_t n = unit * together; n < std::min(all, (unit + 1) * together); ++n) one(n);
      });
}

// Runs the chain over a tile whose first stage is filled; `to` gets the result.
template <class T>
void run_chain(const Problem<T>& p, const ProblemMods<T>& list, const ModPlace& at, T* to,
               std::int64_t stride, const ModBuffers<T>& buffers) {
  const std::int64_t tile_size = buffers.rows * mod_stride;
  const auto mods = list.all();
  for (std::size_t n = 0; n < mods.size(); ++n) {
    ModTile<T> tile = tile_of(p, mods[n], at, buffers);
    T* stage = buffers.stages + static_cast<std::int64_t>(n) * tile_size;
    tile.scores = stage;
    // In place would be enough forward, but backward still needs the last mod's input.
    const bool last = n + 1 == mods.size();
    tile.result = !last ? stage + tile_size : buffers.d_scores ? buffers.d_scores : stage;
    mods[n].code.apply(mods[n].node->self(), tile);
    for (std::int64_t r = 0; last && r < at.rows; ++r)
      std::copy_n(tile.result + r * mod_stride, at.count, to + r * stride);
  }
}

// Takes the derivative back through the chain; buffers.d_scores becomes the derivative by the first stage.
template <class T>
void run_chain_back(const Problem<T>& p, const ProblemMods<T>& list, const ModPlace& at, const T* d_result,
                    std::int64_t stride, const ModBuffers<T>& buffers, const ModSums<T>& sums) {
  const auto mods = list.all();
  const std::int64_t tile_size = buffers.rows * mod_stride;
  for (std::int64_t r = 0; r < at.rows; ++r) {
    T* row = buffers.d_scores + r * mod_stride;
    std::copy_n(d_result + r * stride, at.count, row);
    std::fill_n(row + at.count, mod_lanes, T{0});  // as many as may be behind the last score
  }
  for (std::size_t n = mods.size(); n-- > 0;) {
    const ProblemMod<T>& mod = mods[n];
    ModTile<T> tile = tile_of(p, mod, at, buffers);
    tile.scores = buffers.stages + static_cast<std::int64_t>(n) * tile_size;
    tile.d_result = tile.d_scores = buffers.d_scores;
    for (std::size_t k = 0; k < mod.count; ++k) {
      if (wanted(mod.arguments[k]))
        tile.d_arguments[k] = buffers.d_arguments + static_cast<std::int64_t>(k) * tile_size;
    }
    mod.code.gradient(mod.node->self(), tile);
    for (std::size_t k = 0; k < mod.count; ++k) {
      if (tile.d_arguments[k]) add_up(p, mod, mod.arguments[k], at, tile.d_arguments[k], sums.regions[n][k]);
    }
  }
}

}  // namespace

template <class T>
std::size_t ProblemMods<T>::most_arguments() const {
  std::size_t most = 0;
  for (const ProblemMod<T>& mod : all()) most = std::max(most, mod.count);
  return most;
}

template <class T>
bool ProblemMods<T>::shared_dense_gradient(std::int64_t batch, std::int64_t heads) const {
  for (const ProblemMod<T>& mod : all()) {
    for (std::size_t k = 0; k < mod.count; ++k) {
      const ModArgument<T>& x = mod.arguments[k];
      if (wanted(x) && sum_of(mod, x) == Sum::dense && (x.sizes[0] < batch || x.sizes[1] < heads))
        return true;
    }
  }
  return false;
}

template <class T>
ModBufferSizes mod_buffer_sizes(const ProblemMods<T>& mods, std::int64_t rows, bool backward) {
  if (mods.empty()) return {};
  const std::int64_t tile = rows * mod_stride, arguments = static_cast<std::int64_t>(mods.most_arguments());
  return {.stages = tile * static_cast<std::int64_t>(mods.count),
          .arguments = tile * arguments,
          .d_scores = backward ? tile : 0,
          .d_arguments = backward ? tile * arguments : 0};
}

template <class T>
void apply_mods(const Problem<T>& p, const ModPlace& at, T* scores, std::int64_t stride,
                const ModBuffers<T>& buffers) {
  const T scale = static_cast<T>(p.scale);
  for (std::int64_t r = 0; r < at.rows; ++r) {
    T* row = buffers.stages + r * mod_stride;
#pragma omp simd
    for (std::int64_t j = 0; j < at.count; ++j) row[j] = scores[r * stride + j] * scale;
    repeat_last(row, at.count);
  }
  run_chain(p, p.mods, at, scores, stride, buffers);
}

template <class T>
void apply_weight_mods(const Problem<T>& p, const ModPlace& at, T* factors, std::int64_t stride,
                       const ModBuffers<T>& buffers) {
  std::fill_n(buffers.stages, at.rows * mod_stride, T{1});
  run_chain(p, p.weight_mods, at, factors, stride, buffers);
}

template <class T>
std::int64_t mod_sum_elements(const Problem<T>& p, const ProblemMod<T>& mod, std::size_t argument,
                              std::int64_t groups) {
  const ModArgument<T>& x = mod.arguments[argument];
  if (!wanted(x)) return 0;
  const std::int64_t heads = p.batch * p.query_heads;
  switch (sum_of(mod, x)) {
    case Sum::table:
      return groups * heads * mod.node->entries();
    case Sum::scalar:
      return groups * heads;
    case Sum::rows:
      return groups * heads * p.query_len;
    case Sum::columns:
      return (p.whole_row ? groups : 1) * heads * p.key_len;
    case Sum::dense:
      break;
  }
  return 0;
}

template <class T>
std::int64_t most_mod_sum_elements(const Problem<T>& p, const ProblemMods<T>& mods, std::int64_t units) {
  const std::int64_t group_heads = units * (p.query_heads / p.kv_heads);
  std::int64_t sum = 0;
  for (const ProblemMod<T>& mod : mods.all()) {
    const std::int64_t longest =
        std::max<std::int64_t>({p.query_len, mod.node->entries(), p.whole_row ? p.key_len : 0, 1});
    // 64 more for each argument: regions begin on cache lines.
    sum += static_cast<std::int64_t>(mod.count) *
           (group_heads * longest + p.batch * p.query_heads * p.key_len + 64);
  }
  return sum;
}

template <class T>
void begin_mod_gradients(const Problem<T>& p, const ProblemMods<T>& list, const ModSums<T>& sums,
                         std::int64_t groups, Executor& executor) {
  const auto mods = list.all();
  for (std::size_t n = 0; n < mods.size(); ++n) {
    for (std::size_t k = 0; k < mods[n].count; ++k) {
      const ModArgument<T>& x = mods[n].arguments[k];
      if (!wanted(x)) continue;
      if (sum_of(mods[n], x) != Sum::dense)
        clear(sums.regions[n][k], mod_sum_elements(p, mods[n], k, groups), executor);
      else if (!p.adds_mod_gradients)
        for_mod_pieces(x, false, executor, [&](const Piece& at) {
          const ModStrides& s = x.gradient_strides;
          T* row = x.gradient + at.batch * s[0] + at.head * s[1] + at.row * s[2];
          for (std::int64_t j = at.begin; j < at.end; ++j) row[j * s[3]] = T{0};
        });
    }
  }
}

template <class T>
void mods_gradient(const Problem<T>& p, const ModPlace& at, T* d_scores, std::int64_t stride,
                   const ModBuffers<T>& buffers, const ModSums<T>& sums) {
  run_chain_back(p, p.mods, at, d_scores, stride, buffers, sums);
  const T scale = static_cast<T>(p.scale);
  for (std::int64_t r = 0; r < at.rows; ++r) {
#pragma omp simd
    for (std::int64_t j = 0; j < at.count; ++j)
      d_scores[r * stride + j] = buffers.d_scores[r * mod_stride + j] * scale;
  }
}

template <class T>
void weight_mods_gradient(const Problem<T>& p, const ModPlace& at, const T* d_factors, std::int64_t stride,
                          const ModBuffers<T>& buffers, const ModSums<T>& sums) {
  run_chain_back(p, p.weight_mods, at, d_factors, stride, buffers, sums);
}

template <class T>
void finish_mod_gradients(const Problem<T>& p, const ProblemMods<T>& list, const ModSums<T>& sums,
                          std::int64_t groups, Executor& executor) {
  const auto mods = list.all();
  for (std::size_t n = 0; n < mods.size(); ++n) {
    for (std::size_t k = 0; k < mods[n].count; ++k) {
      const ModArgument<T>& x = mods[n].arguments[k];
      const Sum kind = wanted(x) ? sum_of(mods[n], x) : Sum::dense;
      if (kind == Sum::dense) continue;
      const std::int64_t length = kind == Sum::table     ? mods[n].node->entries()
                                  : kind == Sum::rows    ? p.query_len
                                  : kind == Sum::columns ? p.key_len
                                                         : 1;
      const T* region = sums.regions[n][k];
      const bool down = kind == Sum::rows;
      const std::int64_t of = kind == Sum::columns && !p.whole_row ? 1 : groups;
      for_mod_pieces(x, down, executor, [&](const Piece& at) {
        std::array<T, 256> total{};
        const std::int64_t count = at.end - at.begin;
        const bool each_batch = x.sizes[0] > 1, each_head = x.sizes[1] > 1;
        for (std::int64_t group = 0; group < of; ++group) {
          for (std::int64_t b = each_batch ? at.batch : 0; b < (each_batch ? at.batch + 1 : p.batch); ++b) {
            for (std::int64_t h = each_head ? at.head : 0; h < (each_head ? at.head + 1 : p.query_heads); ++h)
              add(region + ((group * p.batch + b) * p.query_heads + h) * length + at.begin, count,
                  total.data());
          }
        }
        const ModStrides& s = x.gradient_strides;
        const std::int64_t stride = s[down ? 2 : 3];
        T* to = x.gradient + at.batch * s[0] + at.head * s[1] + at.row * s[2] + at.begin * stride;
        for (std::int64_t i = 0; i < count; ++i)
          to[i * stride] = p.adds_mod_gradients ? to[i * stride] + total[static_cast<std::size_t>(i)]
                                                : total[static_cast<std::size_t>(i)];
      });
    }
  }
}

#define FOVEA_INSTANTIATE(T)                                                                                 \
  template struct ProblemMods<T>;                                                                            \
  template ModBufferSizes mod_buffer_sizes<T>(const ProblemMods<T>&, std::int64_t, bool);                    \
  template void apply_mods<T>(const Problem<T>&, const ModPlace&, T*, std::int64_t, const ModBuffers<T>&);   \
  template void apply_weight_mods<T>(const Problem<T>&, const ModPlace&, T*, std::int64_t,                   \
                                     const ModBuffers<T>&);                                                  \
  template std::int64_t mod_sum_elements<T>(const Problem<T>&, const ProblemMod<T>&, std::size_t,            \
                                            std::int64_t);                                                   \
  template std::int64_t most_mod_sum_elements<T>(const Problem<T>&, const ProblemMods<T>&, std::int64_t);    \
  template void begin_mod_gradients<T>(const Problem<T>&, const ProblemMods<T>&, const ModSums<T>&,          \
                                       std::int64_t, Executor&);                                             \
  template void mods_gradient<T>(const Problem<T>&, const ModPlace&, T*, std::int64_t, const ModBuffers<T>&, \
                                 const ModSums<T>&);                                                         \
  template void weight_mods_gradient<T>(const Problem<T>&, const ModPlace&, const T*, std::int64_t,          \
                                        const ModBuffers<T>&, const ModSums<T>&);                            \
  template void finish_mod_gradients<T>(const Problem<T>&, const ProblemMods<T>&, const ModSums<T>&,         \
                                        std::int64_t, Executor&);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea::kernels
