// From the numbers of a head (TextEncoder::logits) to what they say: scores of labels, spans of tags,
// answers. The rules are those of transformers' pipelines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/core/tensor.h"
#include "fovea/models/family.h"

namespace fovea::models {

/// The scores of the labels, from one row of a head's numbers: [labels] -> [labels].
std::vector<double> scores_of(ScoreFunction function, std::span<const float> logits);

/// Where an id stands in its text: bytes [begin, end).
struct TokenPlace {
  std::size_t begin = 0, end = 0;
  bool begins_word = true;
};

/// How the labels of ids become those of spans. Labels B-x and I-x, and x itself, are of the kind x; a B-x
/// always begins a span.
enum class TagJoin : std::uint8_t {
  none,     ///< each id is a span, with its label as it is
  simple,   ///< neighbouring ids of one kind are a span
  first,    ///< a word has the label of its first id, and neighbouring words of one kind are a span
  average,  ///< the same, and a word has the label with the largest mean of its ids' scores
  max       ///< the same, and a word has the label of the id with the largest score
};

struct TaggedSpan {
  std::string label;
  double score = 0.0;  ///< the mean over its ids, or words, of the probability of their label
  std::size_t begin = 0, end = 0;
};

/// The spans of a text from the first id to the last one. Spans of the label "O" are left out. logits [ids,
/// labels]. Throws InvalidArgument unless there is a place for each id and a label for each column.
std::vector<TaggedSpan> tagged_spans(const Tensor& logits, std::span<const TokenPlace> places,
                                     std::span<const std::string> labels, TagJoin join);

/// What an id of a question and its context may be.
enum class AnswerRole : std::uint8_t {
  outside,  ///< no part of an answer
  context,  ///< may stand in an answer
  none      ///< stands for "there is no answer": takes part in the probabilities, and is in no answer
};

/// Ids first, first + 1, ..., last.
struct AnswerSpan {
  std::int64_t first = 0, last = 0;
  double score = 0.0;  ///< p(begins at first) * p(ends at last)
};

struct AnswerOptions {
  std::int64_t longest = 15;  ///< ids, at least 1
  std::int64_t count = 1;     ///< spans that are returned at most
};

/// The most probable answers, best first; of equally probable ones the first. logits [ids, 2] are of the
/// begin and of the end. Throws InvalidArgument unless there is a role for each id,
/// and for a longest below 1.
std::vector<AnswerSpan> answer_spans(const Tensor& logits, std::span<const AnswerRole> roles,
                                     const AnswerOptions& options = {});

}  // namespace fovea::models
