// Elements of files as f32.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/input_file.h"
#include "fovea/core/error.h"
#include "fovea/files/weights.h"

namespace fovea::files {
namespace {

// A byte of sign, 4 bits of exponent with bias 7 and 3 of mantissa. All ones is NaN; there is no infinity.
float from_e4m3(unsigned byte) {
  const unsigned exponent = byte >> 3 & 15u, mantissa = byte & 7u;
  const float sign = byte & 0x80u ? -1.0f : 1.0f;
  if (exponent == 15u && mantissa == 7u) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  return sign * std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
}

float from_e5m2(unsigned byte) {
  float16 half;
  half.bits = static_cast<std::uint16_t>(byte << 8);
  return static_cast<float>(half);
}

float from_e8m0(unsigned byte) {
  return byte == 255 ? std::numeric_limits<float>::quiet_NaN()
                     : std::ldexp(1.0f, static_cast<int>(byte) - 127);
}

using Bytes = std::array<float, 256>;

template <class Convert>
Bytes table_of(Convert&& convert) {
  Bytes table;
  for (unsigned byte = 0; byte < 256; ++byte) table[byte] = convert(byte);
  return table;
}

// Elements of T that may lie at any byte of a file.
template <class T>
void convert(const std::byte* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    to[i] = static_cast<float>(element);
  }
}

void convert(const std::byte* from, float* to, std::int64_t count, const Bytes& table) {
  std::transform(from, from + count, to, [&](std::byte b) { return table[std::to_integer<unsigned>(b)]; });
}

}  // namespace

std::string_view to_string(StoredType type) noexcept {
  switch (type) {
    case StoredType::f32:
      return "F32";
    case StoredType::f64:
      return "F64";
    case StoredType::bf16:
      return "BF16";
    case StoredType::f16:
      return "F16";
    case StoredType::f8_e4m3:
      return "F8_E4M3";
    case StoredType::f8_e5m2:
      return "F8_E5M2";
    case StoredType::f8_e8m0:
      return "F8_E8M0";
    case StoredType::i64:
      return "I64";
    case StoredType::i32:
      return "I32";
    case StoredType::i16:
      return "I16";
    case StoredType::i8:
      return "I8";
    case StoredType::u8:
      return "U8";
    case StoredType::boolean:
      return "BOOL";
  }
  return "";
}

bool is_floating_point(StoredType type) noexcept {
  return type < StoredType::i64;  // which is the first of the others
}

std::size_t size_of(StoredType type) noexcept {
  switch (type) {
    case StoredType::f64:
    case StoredType::i64:
      return 8;
    case StoredType::f32:
    case StoredType::i32:
      return 4;
    case StoredType::bf16:
    case StoredType::f16:
    case StoredType::i16:
      return 2;
    default:
      return 1;
  }
}

namespace {

// Elements of `type` from `from` on.
void convert_elements(StoredType type, const std::byte* from, float* to, std::int64_t count) {
  static const Bytes e4m3 = table_of(from_e4m3), e5m2 = table_of(from_e5m2), e8m0 = table_of(from_e8m0);
  switch (type) {
    case StoredType::f32:
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case StoredType::f64:
      return convert<double>(from, to, count);
    case StoredType::bf16:
      return convert<bfloat16>(from, to, count);
    case StoredType::f16:
      return convert<float16>(from, to, count);
    case StoredType::f8_e4m3:
      return convert(from, to, count, e4m3);
    case StoredType::f8_e5m2:
      return convert(from, to, count, e5m2);
    case StoredType::f8_e8m0:
      return convert(from, to, count, e8m0);
    case StoredType::i64:
      return convert<std::int64_t>(from, to, count);
    case StoredType::i32:
      return convert<std::int32_t>(from, to, count);
    case StoredType::i16:
      return convert<std::int16_t>(from, to, count);
    case StoredType::i8:
      return convert<std::int8_t>(from, to, count);
    case StoredType::u8:
    case StoredType::boolean:
      return convert<std::uint8_t>(from, to, count);
  }
}

void check_range(const char* function, const StoredTensor& tensor, std::int64_t begin, std::int64_t count) {
  if (begin < 0 || count < 0 || begin > tensor.shape.count() - count)
    throw InvalidArgument(
        function, "begin, count",
        "a range of the " + std::to_string(tensor.shape.count()) + " elements of " + tensor.name,
        std::to_string(count) + " from " + std::to_string(begin));
}

}  // namespace

void StoredTensor::copy_to(float* to, std::int64_t begin, std::int64_t count) const {
  check_range("StoredTensor::copy_to", *this, begin, count);
  convert_elements(type, bytes.data() + begin * static_cast<std::int64_t>(size_of(type)), to, count);
}

void StoredTensor::read_to(float* to, std::int64_t begin, std::int64_t count) const {
  check_range("StoredTensor::read_to", *this, begin, count);
  const auto size = static_cast<std::uint64_t>(size_of(type));
  const std::uint64_t from = offset + size * static_cast<std::uint64_t>(begin);
  if (type == StoredType::f32)
    return source->read_at(reinterpret_cast<char*>(to), size * static_cast<std::uint64_t>(count), from);
  // Piece by piece, because the thread keeps this memory.
  constexpr std::int64_t piece_bytes = 64 << 10;
  thread_local std::vector<std::byte> stored;
  const std::int64_t piece = piece_bytes / static_cast<std::int64_t>(size);
  stored.resize(size * static_cast<std::uint64_t>(std::min(piece, count)));
  for (std::int64_t done = 0; done < count; done += piece) {
    const std::int64_t now = std::min(piece, count - done);
    source->read_at(reinterpret_cast<char*>(stored.data()), size * static_cast<std::uint64_t>(now),
                    from + size * static_cast<std::uint64_t>(done));
    convert_elements(type, stored.data(), to + done, now);
  }
}

void StoredTensor::release(std::int64_t begin, std::int64_t count) const noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Reading a byte brings 64 KiB around it into memory, of elements that another thread has let go before.
  constexpr std::uintptr_t around = 64 << 10;
  const auto element = static_cast<std::uintptr_t>(size_of(type));
  const auto start = reinterpret_cast<std::uintptr_t>(bytes.data()), all = start + bytes.size();
  const std::uintptr_t from = start + static_cast<std::uintptr_t>(begin) * element,
                       to = from + static_cast<std::uintptr_t>(count) * element;
  // Whole pages, and none beyond those of the tensor: what else lies on them comes back when it is read.
  const std::uintptr_t first = (from - std::min(around, from - start)) / page * page,
                       end = (to + std::min(around, all - to) + page - 1) / page * page;
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace fovea::files
