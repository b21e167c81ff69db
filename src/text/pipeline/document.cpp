#include "text/pipeline/document.h"

#include <algorithm>

#include "core/excerpt.h"
#include "fovea/core/error.h"

namespace fovea::text::pipeline {
namespace {

// Published files nest 8 deep.
constexpr int kDepth = 32;
// Of a part that is parsed as a document, which costs some 50 bytes for each value.
// Gemma's added tokens have 50,000.
constexpr std::ptrdiff_t kMostValues = 500'000;
constexpr std::string_view kModel = "model";

constexpr std::string_view kKeys[] = {"version",        "truncation", "padding",
                                      "added_tokens",   "normalizer", "pre_tokenizer",
                                      "post_processor", "decoder",    "model"};

// Where each member's value stands; `scanner` is behind the opening bracket.
class Finder {
 public:
  Finder(std::string file, std::string& copy)
      : scanner_(std::move(file), copy, files::JsonScanner::Position::byte) {}

  std::map<std::string, Extent, std::less<>> run() {
    scanner_.open_object("a JSON object");
    std::string_view key;
    while (scanner_.next_member(key)) {
      if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
        scanner_.fail("'" + excerpt(key) + "' is not known, and might change the ids");
      if (key == kModel) {
        members_of_model();
      } else {
        add(std::string(key));
      }
    }
    scanner_.finish();
    return std::move(extents_);
  }

 private:
  void members_of_model() {
    if (!extents_.emplace(kModel, Extent{}).second) scanner_.fail("two values of 'model'");
    scanner_.open_object("an object");
    std::string_view key;
    while (scanner_.next_member(key)) {
      if (key.size() > 40) scanner_.fail("'" + excerpt(key) + "' is not known");
      add("model." + std::string(key));
    }
  }
  void add(std::string key) {
    scanner_.raw_value(kDepth);
    const std::size_t begin = scanner_.offset();
    if (!extents_.emplace(key, Extent{begin, scanner_.end()}).second)
      scanner_.fail("two values of '" + excerpt(key) + "'");
  }

  files::JsonScanner scanner_;
  std::map<std::string, Extent, std::less<>> extents_;
};

}  // namespace

Document::Document(std::string file, std::string text) : file_(std::move(file)), text_(std::move(text)) {
  if (text_.starts_with("\xEF\xBB\xBF")) text_.replace(0, 3, 3, ' ');
  std::string copy = text_;
  extents_ = Finder(file_, copy).run();
}

const Extent* Document::find(std::string_view key) const {
  const auto found = extents_.find(key);
  return found == extents_.end() ? nullptr : &found->second;
}

const Extent& Document::at(std::string_view key) const {
  const Extent* extent = find(key);
  if (!extent) Where{file_, std::string(key)}.fail("is missing");
  return *extent;
}

nlohmann::json Document::parse(const std::string& key, const Extent& extent) const {
  const std::string_view part = std::string_view(text_).substr(extent.begin, extent.end - extent.begin);
  const auto values =
      std::count_if(part.begin(), part.end(), [](char c) { return c == ',' || c == '[' || c == '{'; });
  if (values > kMostValues)
    Where{file_, key}.fail("has more than " + std::to_string(kMostValues) + " values");
  return nlohmann::json::parse(part);
}

nlohmann::json Document::part(std::string_view key) const {
  const Extent* extent = find(key);
  return extent ? parse(std::string(key), *extent) : nlohmann::json();
}

std::string Document::text_of(std::string_view key) const {
  const Extent* extent = find(key);
  return extent ? text_.substr(extent->begin, extent->end - extent->begin) : "null";
}

nlohmann::json Document::model_options() const {
  nlohmann::json options = nlohmann::json::object();
  for (const auto& [key, extent] : extents_) {
    if (!key.starts_with("model.") || key == "model.vocab" || key == "model.merges") continue;
    options[key.substr(6)] = parse(key, extent);
  }
  return options;
}

files::JsonScanner Document::scanner(const Extent& extent) {
  return {file_, std::span(text_).subspan(extent.begin, extent.end - extent.begin),
          files::JsonScanner::Position::byte, static_cast<std::int64_t>(extent.begin)};
}

}  // namespace fovea::text::pipeline
