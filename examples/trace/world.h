// Small programs that log, and a message that one of their lines wrote.
//
// The lines of a program share their words: several write the same message with another variable, in another
// order, or the same variable after another assignment, and helpers write for their callers. Which line wrote
// "opened rima at 7" is a question of which variable held "rima" at that line, and whether the other could
// have been 7.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/text/generated.h"
#include "fovea/text/words.h"

namespace trace_example {

inline constexpr int kLines = 20;     ///< of a program, at most
inline constexpr int kLineWords = 6;  ///< at most, in one line
inline constexpr int kSlots = 24;     ///< names that a program can have

struct Line {
  std::string source;              ///< as one reads it
  std::vector<std::string> words;  ///< as the network does: what kind of line, names, words, numbers
  bool writes = false;             ///< logs, itself or through a helper
};

struct Program {
  std::vector<Line> lines;
  std::vector<std::string> message;  ///< the words of the log
  int wrote = -1;                    ///< the line that did; no other line can have
  enum class Through { variable, helper } through = Through::variable;
};

/// All names (variables, helpers, text values) are made up for the program, of syllables, and a name belongs
/// to one split by its hash: a program of another split has not one name that training has seen.
Program draw_program(fovea::PhiloxStream& random, int lines, fovea::text::Split split);

/// Keywords, words of messages, numbers, and "#0" .. for names.
fovea::text::Vocabulary vocabulary();

/// Ids of the lines' words, each line filled up to kLineWords, and of the message. A name is known only by
/// where it occurs: it is one of kSlots ids, drawn anew for each program.
struct Encoded {
  std::vector<std::int32_t> lines, message;
};
Encoded encode(const Program& program, const fovea::text::Vocabulary& vocabulary,
               fovea::PhiloxStream& random);

/// The line that a bag of words finds: the largest cosine of tf-idf vectors, among lines that write.
int nearest_words(const Program& program);

}  // namespace trace_example
