// The hash FNV-1a in 64 bits (Fowler, Noll and Vo). Its results stand in files and decide which data a model
// is trained on, so they must stay as they are.
#pragma once

#include <cstdint>
#include <string_view>

namespace fovea {

class Fnv1a {
 public:
  /// The standard mixes bytes. A larger number is mixed as a whole, which takes one multiplication.
  void mix(std::uint64_t number) noexcept { value_ = (value_ ^ number) * 0x100000001b3u; }
  /// Byte by byte.
  void mix(std::string_view text) noexcept {
    for (const char byte : text) mix(std::uint64_t{static_cast<unsigned char>(byte)});
  }
  /// Its low bits are the weak ones.
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace fovea
