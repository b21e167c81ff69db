// Sentences with names in them, generated or from files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/text/generated.h"
#include "fovea/text/labelled.h"
#include "fovea/text/spans.h"

namespace sentences {

/// What makes a name of a generated sentence hard.
enum class Hard {
  no,
  ambiguous,  ///< training has it in this role and in another
  new_role,   ///< training has it, but never in this role
  unseen,     ///< training does not have it
};

struct Sentence {
  std::vector<std::string> words, tags;
  std::vector<fovea::text::Span> names;
  std::vector<Hard> hard;  ///< one for each name; empty for files
};

/// `count` sentences of `split` (text::split_of of the whole sentence), with names of people, places and
/// organisations and with dates. Half of the invented names of held-out sentences are names that no training
/// sentence has.
std::vector<Sentence> generate(std::uint64_t seed, std::int64_t count, fovea::text::Split split);

/// CoNLL's columns (text::read_conll).
std::vector<Sentence> read(const std::string& file);

}  // namespace sentences
