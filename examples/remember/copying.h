// The second task is selective copying (Gu and Dao 2023, arXiv 2312.00752, section 3.1.1 and appendix E.1).
// Symbols stand at random places among noise, and are to be written out in order at the end.
#pragma once

#include "exercise.h"

namespace remember {

inline constexpr std::int64_t kSymbols = 15, kCopied = 8;
/// With the symbols the 16 tokens of the paper. One more asks: all questions are the same token.
inline constexpr std::int32_t kNoise = kSymbols, kNext = kSymbols + 1;

Vocabulary vocabulary_of_copying();

/// Exercise `number` of a seed: kCopied symbols and `noise` tokens of noise, and kCopied questions.
/// Sequences of different numbers are drawn apart.
Exercise draw_copying(std::uint64_t seed, std::uint64_t number, std::int64_t noise);

}  // namespace remember
