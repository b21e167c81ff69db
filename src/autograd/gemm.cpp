#include "autograd/gemm.h"

#include <algorithm>
#include <string>
#include <vector>

#include "autograd/bf16_products.h"
#include "autograd/last_blocks.h"
#include "autograd/product_work.h"
#include "autograd/row_products.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

// A product of one row, or of one column, which is the row of the transposed product.
template <bool is_column>
void vector_block(const ProductBlock& p) {
  const auto is_transposed = [](const Matrix& x) { return (x.transpose == Transpose::yes) != is_column; };
  const Matrix &vector = is_column ? p.b : p.a, &matrix = is_column ? p.a : p.b;
  const std::int64_t out = is_column ? p.m : p.n;
  thread_local std::vector<float> gathered, column;
  const float* x = vector.data;
  if (is_transposed(vector) && vector.leading != 1) {  // one number of each row
    gathered.resize(static_cast<std::size_t>(p.k));
    for (std::int64_t k = 0; k < p.k; ++k) gathered[static_cast<std::size_t>(k)] = x[k * vector.leading];
    x = gathered.data();
  }
  float* y = p.c;
  const float* bias = p.bias;
  bool add = p.add;
  if constexpr (is_column) {
    column.resize(static_cast<std::size_t>(out));
    y = column.data();
    for (std::int64_t r = 0; r < out; ++r) y[r] = p.add ? p.c[r * p.leading] : p.bias ? *p.bias : 0.0f;
    bias = nullptr;
    add = true;
  }
  if (is_transposed(matrix)) {
    row_products({.x = x,
                  .weight = matrix.data,
                  .bias = bias,
                  .y = y,
                  .rows = 1,
                  .in = p.k,
                  .out = out,
                  .weight_leading = matrix.leading,
                  .add = add});
  } else {
    std::int64_t begin = 0;
    do {
      const std::int64_t k = slice_of(p.k - begin);
      column_products({.x = x + begin,
                       .weight = matrix.data + begin * matrix.leading,
                       .leading = matrix.leading,
                       .bias = begin == 0 ? bias : nullptr,
                       .y = y,
                       .in = k,
                       .out = out,
                       .add = add || begin > 0});
      begin += k;
    } while (begin < p.k);
  }
  if constexpr (is_column) {
    for (std::int64_t r = 0; r < out; ++r) p.c[r * p.leading] = y[r];
  }
}

// Rows of a with rows of b.
void rows_block(const ProductBlock& p) {
  row_products({.x = p.a.data,
                .weight = p.b.data,
                .bias = p.bias,
                .y = p.c,
                .rows = p.m,
                .in = p.k,
                .out = p.n,
                .x_leading = p.a.leading,
                .weight_leading = p.b.leading,
                .y_leading = p.leading,
                .add = p.add});
}

// Which function multiplies the blocks of a product: chosen by the whole product, so that no bit depends on
// the cut. Tiles copy b, which pays from some rows on. Products of fewer add across the lanes of vectors
// where rows of both lie along k.
auto f32_block_by(const ProductBlock& p) {
  const bool along = p.a.transpose == Transpose::no && p.b.transpose == Transpose::yes;
  if (p.m == 1) return vector_block<false>;
  if (p.n == 1) return vector_block<true>;
  return along && p.m <= most_few_rows ? rows_block : f32_block_tiled;
}

std::int64_t pieces(std::int64_t of, std::int64_t size) {
  return (of + size - 1) / size;
}

constexpr std::int64_t whole_tiles = 48;  // rows of tiles of every instruction set

// A product and the blocks into which it is cut.
struct Cut {
  ProductBlock product;
  GemmBlock block{1, 1};
  void (*multiply)(const ProductBlock&) = nullptr;
  std::int64_t down() const { return pieces(product.m, block.rows); }
  std::int64_t count() const { return down() * pieces(product.n, block.columns); }
  ProfileWork work() const { return product_work(product.m, product.n, product.k); }
};

void multiply_block(const Cut& of, std::int64_t unit, const Part& part) {
  const ProductBlock& p = of.product;
  const std::int64_t down = of.down(), first = unit % down * of.block.rows,
                     column = unit / down * of.block.columns, end = std::min(p.m, first + of.block.rows);
  const std::int64_t rows = pieces(pieces(of.block.rows, part.count), whole_tiles) * whole_tiles,
                     row = std::min(end, first + part.number * rows);
  ProductBlock one = p;
  one.m = std::min(rows, end - row);
  one.n = std::min(of.block.columns, p.n - column);
  if (one.m == 0) return;
  one.a.data += p.a.transpose == Transpose::no ? row * p.a.leading : row;
  one.b.data += p.b.transpose == Transpose::no ? column : column * p.b.leading;
  one.panels.first += column;
  if (p.bias) one.bias += column;
  one.c += row * p.leading + column;
  of.multiply(one);
}

void multiply(const Cut& first, const Cut& second, const ProfileLabel& label, std::int64_t parts,
              Executor& executor) {
  const std::int64_t count = first.count();
  if (count + second.count() == 0) return;
  const ProfileWork one = first.work(), other = second.work();
  const ProfileSpan span(label, {one.multiply_adds + other.multiply_adds, one.bytes + other.bytes});
  const auto block = [&](std::int64_t n, const Part& part) {
    n < count ? multiply_block(first, n, part) : multiply_block(second, n - count, part);
  };
  const bool cuts = std::max(first.block.rows, second.block.rows) > whole_tiles;
  for_blocks_in_stretches(count + second.count(), cuts ? parts : 1, executor, block);
}

constexpr ProfileLabel of_f32{"product", ProfilePart::products},
    of_bf16{"product of bf16", ProfilePart::products, ProfileOperands::bf16};
// Blocks of at most 512 x 512, which are halved until there are enough. A block of 2^23 multiply-adds or
// less, or with sides of 64 or less, is not halved: small blocks spend their time on copies of operands
// (`fovea bench products --training` compares sizes of blocks).
template <class Enough>
GemmBlock halved(std::int64_t m, std::int64_t n, std::int64_t k, Enough&& enough) {
  constexpr std::int64_t most = 512, least = 64, enough_work = 1 << 23;
  if (m == 0 || n == 0) return {1, 1};
  GemmBlock block{std::min(m, most), std::min(n, most)};
  while (!enough(pieces(m, block.rows) * pieces(n, block.columns)) &&
         std::max(block.rows, block.columns) > least && block.rows * block.columns * k > enough_work) {
    std::int64_t& longer = block.rows >= block.columns ? block.rows : block.columns;
    longer = (longer + 31) / 32 * 16;  // a half, as whole vectors
  }
  return block;
}

// Few blocks leave threads without work.
GemmBlock block_by_sizes(std::int64_t m, std::int64_t n, std::int64_t k) {
  return halved(m, n, k, [](std::int64_t count) { return count >= 8; });
}

Cut cut_of(const ProductBlock& p, Operands operands, int threads) {
  if (operands == Operands::bf16) return {p, block_by_sizes(p.m, p.n, p.k), bf16_block_by(best_bf16_path())};
  Cut result{p, gemm_block(p.m, p.n, p.k, threads), f32_block_by(p)};
  if (p.panels.data) result.block.columns = pieces(result.block.columns, Panels::unit) * Panels::unit;
  return result;
}

}  // namespace

// One thread takes blocks as they are: eight copied operands several times. Several threads have two blocks
// each, of which a thread that is held up leaves one to others. A block too many for equal shares would be
// felt up to four for each thread.
GemmBlock gemm_block(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  return halved(m, n, k, [&](std::int64_t count) {
    return threads == 1 || count >= 4 * threads || (count >= 2 * threads && count % threads == 0);
  });
}

void gemm_in_blocks(GemmBlock block, std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b,
                    float* c, std::int64_t leading) {
  const Cut one{{.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .leading = leading}, block, f32_block_tiled};
  multiply(one, {}, of_f32, 1, default_executor());
}

void f32_block(const ProductBlock& p) {
  f32_block_by(p)(p);
}

void gemm(const ProductBlock& first, const ProductBlock& second, Operands operands, Executor* given) {
  Executor& executor = given ? *given : default_executor();
  const int threads = executor.thread_count();
  const bool by_bf16 = operands == Operands::bf16 && best_bf16_path() != Bf16Path::any;
  // Blocks of bf16 are cut by sizes alone.
  constexpr std::int64_t halves = 2;
  multiply(cut_of(first, operands, threads), cut_of(second, operands, threads), by_bf16 ? of_bf16 : of_f32,
           operands == Operands::f32 ? halves : 1, executor);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float beta, float* c,
          std::int64_t leading, Operands operands, Executor* executor) {
  gemm({.m = m, .n = n, .k = k, .a = a, .b = b, .add = beta != 0.0f, .c = c, .leading = leading}, {},
       operands, executor);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, RowBias bias, float* c,
          std::int64_t leading, Operands operands, Executor* executor) {
  gemm({.m = m, .n = n, .k = k, .a = a, .b = b, .bias = bias.data, .c = c, .leading = leading}, {}, operands,
       executor);
}

std::string_view to_string(Operands operands) {
  return operands == Operands::bf16 ? "bf16" : "f32";
}

Operands parse_operands(const std::string& text) {
  for (const Operands operands : {Operands::f32, Operands::bf16}) {
    if (text == to_string(operands)) return operands;
  }
  throw InvalidArgument("parse_operands", "text", "f32 or bf16", text);
}

}  // namespace fovea::autograd
