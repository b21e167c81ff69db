#include "cli/embed_output.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "cli/texts.h"
#include "fovea/files/bytes.h"
#include "fovea/files/npy.h"

namespace fovea::cli {
namespace {

nlohmann::ordered_json json_of(const Tensor& rows, EmbedOutput::Form form) {
  const auto numbers = [](const float* from, std::int64_t count) {
    return nlohmann::ordered_json(std::vector<float>(from, from + count));
  };
  if (form == EmbedOutput::Form::vectors) return numbers(rows.data<float>(), rows.count());
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  const std::int64_t width = rows.shape()[-1];
  for (std::int64_t row = 0; row < rows.count() / width; ++row)
    all.push_back(numbers(rows.data<float>() + row * width, width));
  return all;
}

}  // namespace

EmbedOutput::EmbedOutput(std::string path, bool lines, Form form, std::size_t sequences, std::size_t longest)
    : path_(std::move(path)), lines_(lines), form_(form), sequences_(sequences), longest_(longest) {}

bool EmbedOutput::is_json() const {
  return std::filesystem::path(path_).extension() == ".json";
}

void EmbedOutput::add(const std::string* text, const Ids& ids, const Tensor& rows) {
  const std::size_t number = added_++;
  if (lines_) {
    nlohmann::ordered_json line = nlohmann::ordered_json::object();
    if (text) line["text"] = *text;
    line["ids"] = ids;
    line[form_ == Form::vectors ? "vector" : "rows"] = json_of(rows, form_);
    print_line(line);
  }
  if (path_.empty()) return;
  if (is_json()) {
    array_.push_back(json_of(rows, form_));
    return;
  }
  const std::int64_t width = form_ == Form::vectors ? rows.count() : rows.shape()[-1];
  const auto sequences = static_cast<std::int64_t>(sequences_), longest = static_cast<std::int64_t>(longest_);
  if (!all_)
    all_ = form_ == Form::vectors ? Tensor::zeros(DType::f32, {sequences, width})
                                  : Tensor::zeros(DType::f32, {sequences, longest, width});
  std::copy_n(rows.data<float>(), rows.count(),
              all_.data<float>() + static_cast<std::int64_t>(number) * (all_.count() / sequences));
}

void EmbedOutput::finish() {
  if (path_.empty()) return;
  if (is_json())
    files::write_file(path_, array_.dump() + "\n");
  else
    files::write_npy(path_, all_);
}

}  // namespace fovea::cli
