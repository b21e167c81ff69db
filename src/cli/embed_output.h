// What `fovea embed` writes: the rows of each sequence, or one vector, to a file and to standard output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/ids.h"
#include "fovea/core/tensor.h"

namespace fovea::cli {

class EmbedOutput {
 public:
  enum class Form : std::uint8_t { rows, vectors };
  /// `path`: an npy file, or one whose name ends with .json; "": none. `lines`: whether each sequence is
  /// printed as a JSON object. Of `sequences` the one with the most rows has `longest`.
  EmbedOutput(std::string path, bool lines, Form form, std::size_t sequences, std::size_t longest);

  /// The next sequence: its text, or null for ids that were given; and its rows [..., width], or with
  /// Form::vectors its vector.
  void add(const std::string* text, const Ids& ids, const Tensor& rows);
  /// Writes the file.
  void finish();

 private:
  bool is_json() const;

  std::string path_;
  bool lines_;
  Form form_;
  std::size_t sequences_, longest_, added_ = 0;
  Tensor all_;  // of an npy file
  nlohmann::ordered_json array_ = nlohmann::ordered_json::array();
};

}  // namespace fovea::cli
