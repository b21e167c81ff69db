// The lines of `fovea generate --input`.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/generate_options.h"
#include "cli/text_stream.h"
#include "fovea/models/batcher.h"
#include "fovea/text/line_stream.h"

namespace fovea::cli {

struct Line {
  models::Request request;
  nlohmann::json id;
  std::shared_ptr<TextStream> stream;  ///< of a line with stop strings
  std::shared_ptr<std::string> text;
  bool length_given = false;
};

/// What a line may say beside its prompt, and how.
class RequestReader {
 public:
  /// What writes the texts: a search needs no stops in the line's request.
  enum class Writer : std::uint8_t { batcher, search };
  RequestReader(const GenerateOptions& options, const Coder& coder, const ChatPrompts* chat, Writer writer)
      : o_(options), coder_(coder), chat_(chat), writer_(writer) {}

  /// Throws FileError, naming the line. line.id is set then, if the line has one that can be read.
  void read(const text::CheckedLine& from, Line& line);
  /// The error of a line that the model refuses, named as those of `read` are.
  FileError refused(const Error& error) const;
  const Coder& coder() const { return coder_; }
  /// The stops of the line that was read last.
  Stops stops() const { return stops_of(o_, coder_, strings_); }

 private:
  [[noreturn]] void refuse(const std::string& problem) const;
  [[noreturn]] void expected(const std::string& key, const char* what,
                             const nlohmann::ordered_json& got) const;
  void take(const std::string& key, const nlohmann::ordered_json& value, Line& line);
  void take_stop(const nlohmann::ordered_json& value);
  Ids prompt_of(bool messages) const;
  void watch(text::StopStrings strings, Line& line);

  const GenerateOptions& o_;
  const Coder& coder_;
  const ChatPrompts* chat_;
  Writer writer_;
  std::int64_t number_ = 0;
  nlohmann::ordered_json said_, tools_;
  std::vector<std::string> strings_;
  std::string draws_;  // a key of the line that draws; "" if none does
};

}  // namespace fovea::cli
