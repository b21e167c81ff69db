// The built-in English-French corpus: sentences drawn from a grammar, with their translation and the gold
// alignment of the words. Its sentences cannot be translated word for word. Adjectives change sides, object
// pronouns move before the verb, and negation surrounds the verb. There is agreement in gender and number
// (also of participles with a preceding object), elision and contraction. There are relative, causal,
// temporal and conditional clauses.
//
// The translation is a function of the source sentence, so a model can reach 100 BLEU. The words of a long
// sentence are drawn independently, so that no fixed-size summary of the sentence can hold them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/text/corpus.h"

namespace fovea::text {

/// The part of all sentences to draw from. Each sentence belongs to exactly one split, by a hash of its
/// source; they hold 90, 5 and 5 per cent.
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
/// every machine. A corpus of n sentences is the beginning of every longer one. Held-out sentences never
/// occur, and no sentence has the clause "the cat sat on the mat". Throws InvalidArgument for unusable
/// options, or if there are fewer than `count` different sentences of these lengths.
ParallelCorpus generate_corpus(const GeneratedCorpusOptions& options);

/// The two sentences of the demo, with their gold alignments. One is "The cat sat on the mat .". The other,
/// after the figure in Bahdanau et al. 2015, is "The agreement on the European Economic Area was signed in
/// August 1992 .". All of their words occur in the training split, the sentences never do.
ParallelCorpus held_out_sentences();

/// Tokenised text as people write it: "L' accord a été signé ." becomes "L'accord a été signé.".
std::string detokenize(std::string_view tokenized);
/// The inverse for text of this corpus: splits off ",", "." and, after an elided word, the apostrophe's right
/// side.
std::string tokenize_generated(std::string_view text);

}  // namespace fovea::text
