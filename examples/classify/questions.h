// Questions with their type, generated or from files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/text/generated.h"

namespace questions {

/// The six types of TREC (Li & Roth 2002), numbered as its files are.
inline constexpr std::array<const char*, 6> kTypes{"description", "entity",   "abbreviation",
                                                   "human",       "location", "number"};

struct Question {
  std::vector<std::string> words;
  std::int32_t type = 0;
};

struct Options {
  fovea::text::Split split = fovea::text::Split::train;
  std::uint32_t least = 0, most = 4;  ///< irrelevant sentences around a question
};
/// `count` questions, each somewhere among other sentences. Those have the same words, question words too,
/// and some are questions that others ask. Every sentence belongs to the split (text::split_of), so no
/// sentence of a held-out example occurs in training.
std::vector<Question> generate(std::uint64_t seed, std::int64_t count, const Options& options);

/// A file of `type word word ...` lines, types 0 to 5. Throws FileError.
std::vector<Question> read(const std::string& file);

}  // namespace questions
