// The text form of the algebra, which the command line, explain and case names share. parse(print(x)) == x.
//
//   expression := term ('|' term)*
//   term       := factor ('&' factor)*
//   factor     := '~' factor | '(' expression ')' | name | name '(' number,... ')'
//   name       := 'everything' | 'causal' | 'window' | 'global' | 'lengths' | 'prefix' | 'sinks' |
//                 'documents' | 'chunked' | 'strided' | 'dilated' | 'blocks' | 'bigbird' | 'tree' | 'groups'
//
// The numbers of each name are in mask.h and masks.h. A side of a window is a count or 'all'.
//
//   mod        := 'softcap' '(' cap ')' | 'temperature' '(' value ')' | 'temperature' | 'alibi' |
//                 'symmetric-alibi' | 'bias' |
//                 'relative' '(' buckets ',' max_distance ',' ('bidirectional' | 'causal') ')' |
//                 'relative-key' '(' max_distance ')' | 'forget' | 'local' '(' reach ')' |
//                 'gaussian' '(' deviation ')'
//   normalizer := 'softmax' | 'sink' | 'scalable' | 'sigmoid' ['(' bias ')'] | 'sparsemax' |
//                 'entmax' ['(' alpha ')'] | 'adaptive-entmax' | 'argmax' | 'sample' |
//                 'gumbel' ['(' temperature ')'] | 'chain'
//
// 'temperature' alone is the learned one. 'sigmoid', 'entmax' and 'gumbel' alone have the default numbers.
//
//   rope       := 'rope' '(' rotary_dim (',' (part | scaling))* ')'
//   part       := 'base' '=' number | 'half' | 'interleaved'
//   scaling    := 'linear' '(' factor ')' | 'ntk' '(' factor ')' | 'dynamic' '(' factor ',' positions ')' |
//                 'yarn' '(' factor ',' positions (',' ramp)* ')' |
//                 'llama3' '(' factor ',' low_freq_factor ',' high_freq_factor ',' positions ')' |
//                 'longrope' '(' positions ',' 'short' list ',' 'long' list [',' 'attention' '=' number] ')'
//   list       := '(' number (',' number)* ')'
//   ramp       := ('beta_fast' | 'beta_slow' | 'attention') '=' number | 'exact'
//
// Each part may occur at most once; `positions` are those of the training.
#pragma once

#include <string>
#include <string_view>

#include "fovea/attention/mask.h"
#include "fovea/attention/mod.h"
#include "fovea/attention/rope.h"
#include "fovea/attention/spec.h"
#include "fovea/core/error.h"

namespace fovea {

/// A text that could not be read. `column` counts characters from 1.
class ExpressionError : public InvalidArgument {
 public:
  ExpressionError(std::string function, std::size_t column, std::string expected, std::string got);
  std::size_t column() const noexcept { return column_; }

 private:
  std::size_t column_;
};

/// Throws ExpressionError that names the column and the text expected there.
Mask parse_mask(std::string_view text);

/// Reads the name of a score: "scaled-dot", "additive", ... (score.h). Throws ExpressionError.
Score parse_score(std::string_view text);
std::string to_string(const Score& score);

/// Reads one built-in mod, of scores or of weights. Names of other mods cannot be read back. Throws
/// ExpressionError.
Mod parse_mod(std::string_view text);

/// Reads a normaliser. make_plan checks the range of its number. Throws ExpressionError.
Normalizer parse_normalizer(std::string_view text);
std::string to_string(const Normalizer& normalizer);

/// Reads "rope(64,base=500000,interleaved,llama3(8,1,4,8192))". Throws ExpressionError.
Rope parse_rope(std::string_view text);
std::string to_string(const Rope& rope);

}  // namespace fovea
