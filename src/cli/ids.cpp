#include "cli/ids.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/texts.h"
#include "core/excerpt.h"
#include "fovea/core/error.h"

namespace fovea::cli {

Ids parse_ids(std::string_view text, const std::string& what) {
  constexpr std::string_view blanks = " \t\r\n";
  Ids ids;
  for (std::size_t at = text.find_first_not_of(blanks); at != std::string_view::npos;
       at = text.find_first_not_of(blanks, at)) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::int32_t id = -1;
    const auto [stopped, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stopped != word.data() + word.size() || id < 0)
      throw InvalidArgument("fovea", what, "token ids between blanks, such as '5 6 7'", excerpt(word));
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) throw InvalidArgument("fovea", what, "at least one token id", "none");
  return ids;
}

void check_vocabulary(const std::string& command, const std::string& option, const Ids& ids,
                      std::int64_t vocabulary) {
  for (const std::int32_t id : ids) {
    if (id >= vocabulary)
      throw InvalidArgument(command, option,
                            fmt::format("ids below {}, the number of the model's ids", vocabulary),
                            std::to_string(id));
  }
}

void check_vocabulary(const std::string& file, const std::vector<Ids>& sequences, std::int64_t vocabulary) {
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (const std::int32_t id : sequences[s]) {
      if (id >= vocabulary)
        throw FileError(file, static_cast<std::int64_t>(s) + 1,
                        fmt::format("has the id {}, and those of the model are below {}", id, vocabulary),
                        "line");
    }
  }
}

std::vector<Ids> read_ids(const std::string& path) {
  std::vector<Ids> sequences;
  std::int64_t number = 0;
  for (const std::string& line : all_lines(path)) {
    ++number;
    try {
      sequences.push_back(parse_ids(line, "ids"));
    } catch (const InvalidArgument& error) {
      throw FileError(name_of(path), number, "expected " + error.expected() + ", got " + error.got(), "line");
    }
  }
  if (sequences.empty()) throw FileError(name_of(path), -1, "has no line of token ids");
  return sequences;
}

}  // namespace fovea::cli
