#include "fovea/models/heads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "fovea/core/error.h"

namespace fovea::models {
namespace {

using Scores = std::vector<double>;

Scores softmax(std::span<const float> logits) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (const float logit : logits) largest = std::max(largest, static_cast<double>(logit));
  Scores scores;
  for (const float logit : logits) sum += scores.emplace_back(std::exp(logit - largest));
  for (double& score : scores) score /= sum;
  return scores;
}

std::size_t best_of(const Scores& scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// The scores that a word has, of those of its ids.
Scores joined_scores(std::span<const Scores> ids, TagJoin join) {
  if (join == TagJoin::average) {
    Scores mean(ids.front().size());
    for (const Scores& scores : ids)
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += scores[i] / static_cast<double>(ids.size());
    return mean;
  }
  if (join != TagJoin::max) return ids.front();
  return *std::max_element(ids.begin(), ids.end(),
                           [](const Scores& a, const Scores& b) { return a[best_of(a)] < b[best_of(b)]; });
}

// A label's kind, and whether a span begins with it.
std::pair<std::string_view, bool> kind_of(std::string_view label) {
  if (label.starts_with("B-")) return {label.substr(2), true};
  if (label.starts_with("I-")) return {label.substr(2), false};
  return {label, false};
}

// Neighbours of one kind as one span.
std::vector<TaggedSpan> grouped(const std::vector<TaggedSpan>& parts) {
  std::vector<TaggedSpan> spans;
  for (std::size_t i = 0, end = 0; i < parts.size(); i = end) {
    TaggedSpan span = parts[i];
    for (end = i + 1; end < parts.size(); ++end) {
      const auto [kind, begins] = kind_of(parts[end].label);
      if (begins || kind != kind_of(parts[i].label).first) break;
      span.score += parts[end].score;
      span.end = parts[end].end;
    }
    span.score /= static_cast<double>(end - i);
    const std::size_t dash = span.label.find('-');
    if (dash != std::string::npos) span.label.erase(0, dash + 1);
    spans.push_back(std::move(span));
  }
  return spans;
}

}  // namespace

std::vector<double> scores_of(ScoreFunction function, std::span<const float> logits) {
  if (function == ScoreFunction::softmax) return softmax(logits);
  Scores scores(logits.begin(), logits.end());
  if (function == ScoreFunction::sigmoid)
    for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
  return scores;
}

std::vector<TaggedSpan> tagged_spans(const Tensor& logits, std::span<const TokenPlace> places,
                                     std::span<const std::string> labels, TagJoin join) {
  const Shape expected{std::ssize(places), std::ssize(labels)};
  if (!(logits.shape() == expected))
    throw InvalidArgument("tagged_spans", "logits", to_string(expected), to_string(logits.shape()));
  std::vector<Scores> scores;
  for (std::size_t i = 0; i < places.size(); ++i)
    scores.push_back(softmax({logits.data<float>() + i * labels.size(), labels.size()}));
  const bool by_word = join != TagJoin::none && join != TagJoin::simple;
  std::vector<TaggedSpan> parts;
  for (std::size_t begin = 0, end = 0; begin < places.size(); begin = end) {
    end = begin + 1;
    while (by_word && end < places.size() && !places[end].begins_word) ++end;
    const Scores word = joined_scores(std::span(scores).subspan(begin, end - begin), join);
    const std::size_t best = best_of(word);
    parts.push_back({labels[best], word[best], places[begin].begin, places[end - 1].end});
  }
  if (join != TagJoin::none) parts = grouped(parts);
  std::erase_if(parts, [](const TaggedSpan& span) { return span.label == "O"; });
  return parts;
}

std::vector<AnswerSpan> answer_spans(const Tensor& logits, std::span<const AnswerRole> roles,
                                     const AnswerOptions& options) {
  const std::int64_t ids = std::ssize(roles);
  if (!(logits.shape() == Shape{ids, 2}))
    throw InvalidArgument("answer_spans", "logits", to_string(Shape{ids, 2}), to_string(logits.shape()));
  if (options.longest < 1)
    throw InvalidArgument("answer_spans", "options.longest", "at least 1", std::to_string(options.longest));
  std::vector<std::int64_t> numbers;  // of the ids that have a probability
  std::vector<float> begins, ends;
  for (std::int64_t i = 0; i < ids; ++i) {
    if (roles[static_cast<std::size_t>(i)] == AnswerRole::outside) continue;
    numbers.push_back(i);
    begins.push_back(logits.data<float>()[2 * i]);
    ends.push_back(logits.data<float>()[2 * i + 1]);
  }
  const Scores begin = softmax(begins), end = softmax(ends);
  std::vector<AnswerSpan> spans;
  for (std::size_t s = 0; s < numbers.size(); ++s) {
    for (std::size_t e = s; e < numbers.size() && numbers[e] - numbers[s] < options.longest; ++e) {
      const auto in_context = [&](std::size_t i) {
        return roles[static_cast<std::size_t>(numbers[i])] == AnswerRole::context;
      };
      if (in_context(s) && in_context(e)) spans.push_back({numbers[s], numbers[e], begin[s] * end[e]});
    }
  }
  const auto better = [](const AnswerSpan& a, const AnswerSpan& b) {
    return a.score != b.score ? a.score > b.score : std::pair(a.first, a.last) < std::pair(b.first, b.last);
  };
  const auto count = std::clamp<std::int64_t>(options.count, 0, std::ssize(spans));
  std::partial_sort(spans.begin(), spans.begin() + count, spans.end(), better);
  spans.resize(static_cast<std::size_t>(count));
  return spans;
}

}  // namespace fovea::models
