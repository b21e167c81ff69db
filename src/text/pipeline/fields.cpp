#include "text/pipeline/fields.h"

#include <algorithm>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {

using nlohmann::json;

Where Where::at(std::string_view name) const {
  return {file, (key.empty() ? "" : key + ".") + excerpt(name)};
}

Where Where::at(std::size_t index) const {
  return {file, key + "[" + std::to_string(index) + "]"};
}

void Where::fail(const std::string& reason) const {
  throw FileError(file, -1, (key.empty() ? "" : key + ": ") + reason);
}

void Where::expected(std::string_view what, const json& got) const {
  const bool plain = !got.is_structured();
  fail("expected " + std::string(what) + ", got " +
       (plain ? excerpt(got.dump(-1, ' ', false, json::error_handler_t::replace))
              : std::string(got.is_array() ? "an array" : "an object")));
}

Fields::Fields(const json& value, Where where, std::initializer_list<std::string_view> known)
    : value_(value), where_(std::move(where)) {
  if (!value.is_object()) where_.expected("an object", value);
  for (const auto& [key, ignored] : value.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      where_.at(key).fail("is not known, and might change the ids");
  }
}

bool Fields::has(std::string_view key) const {
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

const json& Fields::at(std::string_view key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) where(key).fail("is missing");
  return *found;
}

bool Fields::boolean(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_boolean()) where(key).expected("true or false", value);
  return value.get<bool>();
}

bool Fields::boolean(std::string_view key, bool otherwise) const {
  return has(key) ? boolean(key) : otherwise;
}

std::string Fields::string(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_string()) where(key).expected("a string", value);
  return value.get<std::string>();
}

std::string Fields::character(std::string_view key) const {
  const std::string text = string(key);
  if (text.empty() || static_cast<std::size_t>(decode_utf8(text, 0).bytes) != text.size())
    where(key).expected("one character", at(key));
  return text;
}

std::int64_t Fields::number(std::string_view key, std::int64_t most) const {
  const json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    where(key).expected("a whole number from 0 to " + std::to_string(most), value);
  return value.get<std::int64_t>();
}

const json& Fields::array(std::string_view key) const {
  const json& value = at(key);
  if (!value.is_array()) where(key).expected("an array", value);
  return value;
}

std::size_t Fields::one_of(std::string_view key, std::initializer_list<std::string_view> names) const {
  const std::string name = string(key);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    std::string all;
    for (const std::string_view known : names) all += (all.empty() ? "" : ", ") + std::string(known);
    where(key).expected("one of " + all, at(key));
  }
  return static_cast<std::size_t>(found - names.begin());
}

std::string type_of(const json& value, const Where& where) {
  if (!value.is_object()) where.expected("an object", value);
  const auto found = value.find("type");
  if (found == value.end()) where.at("type").fail("is missing");
  if (!found->is_string()) where.at("type").expected("a string", *found);
  return found->get<std::string>();
}

}  // namespace fovea::text::pipeline
