// Token ids on the command line and in files, for models whose tokenizer is not at hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

using Ids = std::vector<std::int32_t>;

/// "5 6 7". `what` is the option or file of the error. Throws InvalidArgument for anything but whole numbers
/// from 0 to 2^31 - 1 between blanks, and for no number at all.
Ids parse_ids(std::string_view text, const std::string& what);
/// Throws InvalidArgument in the name of `command` and `option` for an id that is not below `vocabulary`.
void check_vocabulary(const std::string& command, const std::string& option, const Ids& ids,
                      std::int64_t vocabulary);
/// The same for the sequences of the lines of `file`. Throws FileError with the line.
void check_vocabulary(const std::string& file, const std::vector<Ids>& sequences, std::int64_t vocabulary);
/// One sequence a line. Throws FileError with the line.
std::vector<Ids> read_ids(const std::string& path);

}  // namespace fovea::cli
