// Small programs that fail, with their log and their user's words.
//
// The line that failed is one of thirty-odd, and finding it takes three sources. The log names the kind of
// failure and the function. The user names what was being worked on, which is a variable of the program. The
// syntax tree says which lines belong to that function itself. Without any one of them at least two lines
// remain that the other two cannot tell apart; a fair coin decides which of these failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/text/generated.h"
#include "fovea/text/words.h"

namespace trace_example {

inline constexpr int kFunctions = 2;   ///< that a log can name
inline constexpr int kInFunction = 8;  ///< local functions in each, and lines besides them: one behind each
inline constexpr int kLines = kFunctions * (1 + 2 * kInFunction);
inline constexpr int kLineWords = 3;    ///< in one line
inline constexpr int kReportWords = 8;  ///< at most, in the log, and in what the user says
inline constexpr int kSlots = 32;       ///< names that a program can have

struct Line {
  std::string source;              ///< for people, indented
  std::vector<std::string> words;  ///< for the network: the kind of line, and two names
  int parent = -1;                 ///< in the syntax tree: the line of the function around it; -1: none
};

struct Program {
  std::vector<Line> lines;
  std::vector<std::string> log, said;  ///< the words of the log, and of the user
  int failed = -1;                     ///< the line
};

/// Two functions, f and g. Each contains eight local functions, whose bodies are empty or have one line.
/// After the head of each local function comes one line: inside it, or behind its end and so f's own. The
/// eight lines are each two kinds of statement with each two variables twice: once inside a local function,
/// once in f itself, by a fair coin which first. The line that failed is one of f's own, or of g's. So of the
/// lines that can have failed
///   - without the user two have the right kind in the right function, with one variable each;
///   - without the log four have the right variable, of two kinds in two functions;
///   - without the tree two have the right kind and variable behind the head of the right function, and the
///   order of
///     the text does not say which of them is inside a local function.
///
/// All names (functions and variables) are made up of syllables for each program. Each name belongs to one
/// split by its hash, so that a program of another split has no name that training has seen.
Program draw_program(fovea::PhiloxStream& random, fovea::text::Split split);

/// Kinds of lines, words of logs and of users, and "#0" .. for names.
fovea::text::Vocabulary vocabulary();

/// Ids of the lines' words, kLineWords each, and of the log and the user's words, kReportWords each. The
/// first id of the latter says which of the two it is. A name is one of kSlots ids, drawn anew for each
/// program, so that only its places tell it from others.
struct Encoded {
  std::vector<std::int32_t> lines, log, said;
};
Encoded encode(const Program& program, const fovea::text::Vocabulary& vocabulary,
               fovea::PhiloxStream& random);

/// The line that a bag of words finds among the lines that can fail. It has the largest cosine of tf-idf
/// vectors between the words of log and user, and the words of a line and of the functions around it.
int nearest_words(const Program& program);

}  // namespace trace_example
