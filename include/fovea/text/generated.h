// The built-in English-French corpus: sentences drawn from a grammar, with their translation and the gold
// alignment of the words. It has what makes translation more than word for word: adjectives that change
// sides, object pronouns that move before the verb, gender and number agreement (also of participles with a
// preceding object), elision and contraction, negation around the verb, relative, causal, temporal and
// conditional clauses.
//
// The translation is a function of the source sentence, so a model can reach 100 BLEU, and the words of a
// long sentence are drawn independently, so that no fixed-size summary of it holds them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/text/corpus.h"

namespace fovea::text {

/// Which share of all sentences to draw from. A sentence belongs to exactly one, by a hash of its source: 90,
/// 5 and 5 of a hundred.
enum class Split { train, valid, test };
/// The split of `source`, by a 64-bit FNV-1a hash.
Split split_of(std::string_view source);

/// How lengths are drawn between min_words and max_words.
enum class LengthShape {
  mostly_short,  ///< min + the smallest of three uniform draws: half of the sentences lie in the lowest fifth
  uniform,       ///< every length is equally likely
};

struct GeneratedCorpusOptions {
  std::uint64_t seed = 1;
  std::int64_t count = 0;
  int min_words = 3;   ///< source tokens, the full stop included
  int max_words = 60;  ///< at most 60
  LengthShape lengths = LengthShape::mostly_short;
  Split split = Split::train;
};

/// `count` different sentences in tokenised form ("L' accord a été signé ."), equal for equal options on
/// every machine; the first n of a longer corpus are the corpus of n. Held-out sentences never occur, nor
/// does the clause "the cat sat on the mat" in any sentence. Throws InvalidArgument for unusable options, or
/// when there are not `count` different sentences of the lengths asked for.
ParallelCorpus generate_corpus(const GeneratedCorpusOptions& options);

/// The two sentences shown by the demo, with their gold alignments: "The cat sat on the mat ." and, after the
/// figure in Bahdanau et al. 2015, "The agreement on the European Economic Area was signed in August 1992 .".
/// Every one of their words occurs in the training split, they themselves never do.
ParallelCorpus held_out_sentences();

/// Tokenised text as one writes it: "L' accord a été signé ." becomes "L'accord a été signé.".
std::string detokenize(std::string_view tokenized);
/// The inverse for text of this corpus: splits off ",", "." and, after an elided word, the apostrophe's right
/// side.
std::string tokenize_generated(std::string_view text);

}  // namespace fovea::text
