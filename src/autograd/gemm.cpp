#include "autograd/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <string>

#include "autograd/product_work.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

// oneDNN asks OpenMP how many threads a product may take. The setting belongs to the calling thread, so that
// of a host program is put back. OpenMP starts no threads of its own for one.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float beta, float* c,
              std::int64_t leading) {
  const OneThread on_this_thread;
  const dnnl_status_t status = dnnl_sgemm(static_cast<char>(a.transpose), static_cast<char>(b.transpose), m,
                                          n, k, 1.0f, a.data, a.leading, b.data, b.leading, beta, c, leading);
  if (status != dnnl_success)
    throw Error("gemm: oneDNN refused a product, status " + std::to_string(static_cast<int>(status)));
}

// A block is filled with the bias just before its product, which then finds it in the cache.
void cut(GemmBlock block, std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float beta,
         const float* bias, float* c, std::int64_t leading, Executor* executor) {
  if (m == 0 || n == 0) return;
  static constexpr ProfileLabel label{"product", ProfilePart::products};
  const ProfileSpan span(label, product_work(m, n, k));
  const std::int64_t down = (m + block.rows - 1) / block.rows,
                     across = (n + block.columns - 1) / block.columns;
  (executor ? *executor : default_executor()).parallel_for(down * across, [&](std::int64_t unit, int) {
    const std::int64_t row = unit % down * block.rows, column = unit / down * block.columns,
                       height = std::min(block.rows, m - row), width = std::min(block.columns, n - column);
    const Matrix left{a.data + (a.transpose == Transpose::no ? row * a.leading : row), a.leading,
                      a.transpose},
        right{b.data + (b.transpose == Transpose::no ? column : column * b.leading), b.leading, b.transpose};
    float* to = c + row * leading + column;
    for (std::int64_t r = 0; bias && r < height; ++r) std::copy_n(bias + column, width, to + r * leading);
    multiply(height, width, k, left, right, beta, to, leading);
  });
}

}  // namespace

// Blocks of at most 512 x 512 are halved until there are eight, because few blocks leave threads without
// work. A block of 2^23 multiply-adds or less, or with sides of 64 or less, is not halved: small blocks spend
// their time on packing (`fovea bench products --training` compares sizes of blocks).
GemmBlock gemm_block(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t most = 512, least = 64, wanted = 8, enough_work = 1 << 23;
  if (m == 0 || n == 0) return {1, 1};
  GemmBlock block{std::min(m, most), std::min(n, most)};
  const auto count = [&] {
    return ((m + block.rows - 1) / block.rows) * ((n + block.columns - 1) / block.columns);
  };
  while (count() < wanted && std::max(block.rows, block.columns) > least &&
         block.rows * block.columns * k > enough_work) {
    std::int64_t& longer = block.rows >= block.columns ? block.rows : block.columns;
    longer = (longer + 31) / 32 * 16;  // a half, as whole vectors
  }
  return block;
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float beta, float* c,
          std::int64_t leading, Executor* executor) {
  cut(gemm_block(m, n, k), m, n, k, a, b, beta, nullptr, c, leading, executor);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, RowBias bias, float* c,
          std::int64_t leading, Executor* executor) {
  cut(gemm_block(m, n, k), m, n, k, a, b, bias.data ? 1.0f : 0.0f, bias.data, c, leading, executor);
}

void gemm_in_blocks(GemmBlock block, std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b,
                    float* c, std::int64_t leading) {
  cut(block, m, n, k, a, b, 0.0f, nullptr, c, leading, nullptr);
}

}  // namespace fovea::autograd
