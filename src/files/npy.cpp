#include "fovea/files/npy.h"

#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/excerpt.h"
#include "core/input_file.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::files {
namespace {

constexpr std::uint64_t longest_npy_header = std::uint64_t{1} << 20;

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class Header {
 public:
  Header(const InputFile& file, std::string text) : file_(file), text_(std::move(text)) {}

  DType dtype() const {
    const std::string descr = value_of("descr");
    if (descr.starts_with("'<f4'") || descr.starts_with("\"<f4\"")) return DType::f32;
    if (descr.starts_with("'<f8'") || descr.starts_with("\"<f8\"")) return DType::f64;
    fail("expected dtype '<f4' or '<f8', got " + excerpt(descr.substr(0, descr.find(','))));
  }
  void check_order() const {
    if (!value_of("fortran_order").starts_with("False")) fail("expected C order (fortran_order: False)");
  }
  Shape shape() const {
    const std::string text = value_of("shape");
    std::vector<std::int64_t> sizes;
    if (text.empty() || text[0] != '(') fail("expected a shape (…)");
    const char *at = text.data() + 1, *end = text.data() + text.size();
    const auto skip = [&] {
      while (at < end && (*at == ' ' || *at == ',')) ++at;
    };
    for (skip(); at < end && *at != ')'; skip()) {
      std::int64_t size = 0;
      const auto [next, status] = std::from_chars(at, end, size);
      if (status != std::errc() || size < 0) fail("expected sizes of at least 0 in the shape");
      sizes.push_back(size);
      at = next;
    }
    if (at == end) fail("expected a shape that ends with ')'");
    if (sizes.size() > static_cast<std::size_t>(max_rank))
      fail("expected at most " + std::to_string(max_rank) + " axes");
    try {
      return Shape(sizes);
    } catch (const InvalidArgument& error) {
      fail(error.what());
    }
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { file_.fail(10, reason); }
  std::string value_of(const std::string& key) const {
    for (const char quote : {'\'', '"'}) {
      const std::size_t at = text_.find(quote + key + quote);
      if (at == std::string::npos) continue;
      const std::size_t colon = text_.find(':', at);
      if (colon == std::string::npos) break;
      const std::size_t begin = text_.find_first_not_of(' ', colon + 1);
      return begin == std::string::npos ? std::string() : text_.substr(begin);
    }
    fail("the header has no '" + key + "'");
  }
  const InputFile& file_;
  std::string text_;
};

}  // namespace

Tensor read_npy(const std::filesystem::path& path) {
  InputFile file(path);
  const std::uint64_t size = file.size();
  unsigned char start[12] = {};
  if (size >= 10) file.take(start, 10);
  if (std::memcmp(start, "\x93NUMPY", 6) != 0)
    file.fail(0, "is no .npy file (its first bytes are not \\x93NUMPY)");
  if (start[6] < 1 || start[6] > 3)
    file.fail(6, "expected format version 1 to 3, got " + std::to_string(start[6]));
  std::uint64_t header_size = start[8] + 256u * start[9], begin = 10;
  if (start[6] > 1) {
    if (size < 12) file.fail(10, "ends inside its header");
    file.take(start + 10, 2);
    header_size += (std::uint64_t{start[10]} << 16) + (std::uint64_t{start[11]} << 24);
    begin = 12;
  }
  if (header_size > size - begin || header_size > longest_npy_header)
    file.fail(8, "a header of " + std::to_string(header_size) + " bytes does not fit");
  std::string text(header_size, '\0');
  file.take(text.data(), header_size);
  const Header header(file, text);
  header.check_order();
  const DType dtype = header.dtype();
  const Shape shape = header.shape();
  const std::uint64_t room = size - begin - header_size, element = size_of(dtype);
  if (static_cast<std::uint64_t>(shape.count()) > room / element ||
      static_cast<std::uint64_t>(shape.count()) * element != room) {
    file.fail(static_cast<std::int64_t>(begin + header_size),
              "expected " + to_string(shape) + " elements of " + std::to_string(element) + " bytes, got " +
                  std::to_string(room) + " bytes");
  }
  Tensor tensor(dtype, shape);
  if (room > 0) file.take(tensor.raw(), room);
  return tensor;
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  if (!tensor) throw InvalidArgument("write_npy", "tensor", "one with elements", "an empty one");
  if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::f64)
    throw InvalidArgument("write_npy", "tensor", "f32 or f64", std::string(to_string(tensor.dtype())));
  std::string shape = "(";
  for (const std::int64_t size : tensor.shape().sizes()) shape += std::to_string(size) + ", ";
  std::string header = std::string("{'descr': '") + (tensor.dtype() == DType::f64 ? "<f8" : "<f4") +
                       "', 'fortran_order': False, 'shape': " + shape + "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');  // data begins at a multiple of 64
  header += '\n';
  const char start[] = {'\x93',
                        'N',
                        'U',
                        'M',
                        'P',
                        'Y',
                        1,
                        0,
                        static_cast<char>(header.size() % 256),
                        static_cast<char>(header.size() / 256)};
  const std::string_view pieces[] = {
      {start, sizeof(start)}, header, {reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()}};
  write_file(path, pieces);
}

}  // namespace fovea::files
