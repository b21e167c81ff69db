// Reads objects of tokenizer.json key by key. Whatever is missing, of another kind or not known is refused by
// the file, the key and the reason.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fovea::text::pipeline {

/// A value in a file, for errors: "pre_tokenizer.pretokenizers[1].pattern".
struct Where {
  std::string file, key;

  Where at(std::string_view name) const;
  Where at(std::size_t index) const;
  /// Throws FileError.
  [[noreturn]] void fail(const std::string& reason) const;
  [[noreturn]] void expected(std::string_view what, const nlohmann::json& got) const;
};

class Fields {
 public:
  /// Throws FileError unless `value` is an object whose keys are among `known`.
  Fields(const nlohmann::json& value, Where where, std::initializer_list<std::string_view> known);

  const Where& where() const noexcept { return where_; }
  bool has(std::string_view key) const;  ///< and it is not null
  const nlohmann::json& at(std::string_view key) const;
  Where where(std::string_view key) const { return where_.at(key); }

  bool boolean(std::string_view key) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string string(std::string_view key) const;
  /// One character.
  std::string character(std::string_view key) const;
  /// A whole number from 0 to `most`.
  std::int64_t number(std::string_view key, std::int64_t most) const;
  const nlohmann::json& array(std::string_view key) const;
  /// The place of a string among `names`.
  std::size_t one_of(std::string_view key, std::initializer_list<std::string_view> names) const;

 private:
  const nlohmann::json& value_;
  Where where_;
};

/// The value of "type". Throws FileError without it.
std::string type_of(const nlohmann::json& value, const Where& where);

}  // namespace fovea::text::pipeline
