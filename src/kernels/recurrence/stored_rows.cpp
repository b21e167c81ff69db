#include "kernels/recurrence/stored_rows.h"

#include <algorithm>

#include "kernels/simd/convert.h"

namespace fovea::kernels {
namespace {

template <class S, class Byte>
auto* elements(const StoredRows<Byte>& rows, std::int64_t entry, std::int64_t row, std::int64_t first) {
  using Element = std::conditional_t<std::is_const_v<Byte>, const S, S>;
  return reinterpret_cast<Element*>(rows.data) + entry * rows.entry_stride + row * rows.row_stride + first;
}

}  // namespace

void read_stored(const StoredRows<const std::byte>& rows, std::int64_t entry, std::int64_t row,
                 std::int64_t first, std::int64_t count, float* to) {
  if (rows.dtype == DType::bf16)
    widen(elements<bfloat16>(rows, entry, row, first), count, to);
  else if (rows.dtype == DType::f16)
    widen(elements<float16>(rows, entry, row, first), count, to);
  else
    std::copy_n(elements<float>(rows, entry, row, first), count, to);
}
void read_stored(const StoredRows<const std::byte>& rows, std::int64_t entry, std::int64_t row,
                 std::int64_t first, std::int64_t count, double* to) {
  std::copy_n(elements<double>(rows, entry, row, first), count, to);
}

void write_stored(const float* from, std::int64_t first, std::int64_t count,
                  const StoredRows<std::byte>& rows, std::int64_t entry, std::int64_t row) {
  if (rows.dtype == DType::bf16)
    narrow(from, count, elements<bfloat16>(rows, entry, row, first));
  else if (rows.dtype == DType::f16)
    narrow(from, count, elements<float16>(rows, entry, row, first));
  else
    std::copy_n(from, count, elements<float>(rows, entry, row, first));
}
void write_stored(const double* from, std::int64_t first, std::int64_t count,
                  const StoredRows<std::byte>& rows, std::int64_t entry, std::int64_t row) {
  std::copy_n(from, count, elements<double>(rows, entry, row, first));
}

}  // namespace fovea::kernels
