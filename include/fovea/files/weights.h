// The weights of a model's folder, mapped: one safetensors file or several with an index, of every type that
// published models have. Names, types and shapes cost a read of the headers; elements are read from the file
// when they are copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea {
class InputFile;  // core/input_file.h
}

namespace fovea::files {

/// The type of elements in a file.
enum class StoredType : std::uint8_t {  // floating-point numbers first: is_floating_point
  f32,
  f64,
  bf16,
  f16,
  f8_e4m3,  ///< 4 bits of exponent, 3 of mantissa, no infinity: "F8_E4M3" (Micikevicius et al. 2022,
            ///< 2209.05433)
  f8_e5m2,  ///< the upper half of an f16: "F8_E5M2"
  f8_e8m0,  ///< an exponent alone, 2^(byte - 127): "F8_E8M0", of scales (OCP Microscaling Formats 1.0)
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean  ///< "BOOL"
};
/// "F32", as safetensors spells it.
std::string_view to_string(StoredType type) noexcept;
/// Bytes of one element.
std::size_t size_of(StoredType type) noexcept;
/// Whether elements are floating-point numbers.
bool is_floating_point(StoredType type) noexcept;

/// A tensor that lies in a file.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::string file;                         ///< the file that holds it, for errors
  std::shared_ptr<const InputFile> source;  ///< the same file, open
  std::uint64_t offset = 0;                 ///< of `bytes` in it

  /// Elements [begin, begin + count) as f32, each rounded to the nearest. Throws InvalidArgument for elements
  /// outside the tensor.
  void copy_to(float* to, std::int64_t begin, std::int64_t count) const;
  /// The same by a read of the file, which takes nothing of the mapping into memory. Throws FileError if the
  /// file has been cut.
  void read_to(float* to, std::int64_t begin, std::int64_t count) const;
  /// Of a mapped file: lets the memory of elements [begin, begin + count) go that reading has taken. A later
  /// read takes it again.
  void release(std::int64_t begin, std::int64_t count) const noexcept;
};

/// The tensors of one file or of all shards of an index. Copies share the mappings. A process that reads a
/// mapped file ends (SIGBUS) if the file is cut in place meanwhile.
class WeightFile {
 public:
  /// `path` is the result of find_weights. Throws FileError as load_weights does.
  explicit WeightFile(const std::filesystem::path& path);

  const std::string& path() const noexcept { return path_; }
  /// In the order of their names.
  std::span<const StoredTensor> tensors() const noexcept { return tensors_; }
  /// nullptr if there is none of that name.
  const StoredTensor* find(std::string_view name) const;

 private:
  void add(const std::filesystem::path& file);

  std::string path_;
  std::vector<StoredTensor> tensors_;
  std::vector<std::shared_ptr<const std::byte>> mapped_;
};

}  // namespace fovea::files
