#include "models/beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/pieces.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "models/sampling.h"

namespace fovea::models {

Beams::Beams(std::span<const std::int32_t> prompt, const BeamOptions& options)
    : prompt_(prompt), options_(options), open_(1) {
  const auto refuse = [](const char* option, const char* expected, const std::string& got) {
    throw InvalidArgument("beam_search", std::string("options.") + option, expected, got);
  };
  if (options.beams < 1 || options.beams > 1024)
    refuse("beams", "from 1 to 1024", std::to_string(options.beams));
  if (!std::isfinite(options.length_penalty))
    refuse("length_penalty", "a finite number", std::to_string(options.length_penalty));
  if (!(options.repetition_penalty > 0.0) || !std::isfinite(options.repetition_penalty))
    refuse("repetition_penalty", "a number above 0", std::to_string(options.repetition_penalty));
  if (options.length < 1) refuse("length", "at least 1", std::to_string(options.length));
  if (options.draws)
    check_choices({.function = "beam_search", .options = "options.draws."}, sample_options());
}

bool Beams::goes_on(std::int64_t written) const {
  const bool full = std::ssize(ended_) == options_.beams;
  const bool at_once = single() || options_.early_stopping == EarlyStopping::on;
  return written < options_.length && improvable_ && !(full && at_once);
}

double Beams::score(double log_probability, std::int64_t length) const {
  return log_probability / std::pow(static_cast<double>(length), options_.length_penalty);
}

std::vector<BeamStep> Beams::take(const float* logits, std::int64_t vocabulary, std::int64_t first_row) {
  const std::int64_t length = ++written_;
  std::vector<Candidate> candidates = candidates_of(logits, vocabulary);
  if (candidates.empty()) {
    const std::string rule = rule_without_choice(logits, vocabulary);
    throw InvalidArgument(
        "beam_search", rule.empty() ? "model" : "rules",
        rule.empty() ? "log-probabilities without NaN, at least one above -inf"
                     : "at least one id that may be written",
        "none" + (rule.empty() ? "" : " behind " + rule) + " at step " + std::to_string(length));
  }
  for (Candidate& candidate : candidates) candidate.ends = length == options_.length || ends(candidate);
  end_texts(candidates, length, first_row);
  if (draws()) keep_best(candidates, candidates.size());  // the best ones go on
  std::vector<Open> next;
  std::vector<BeamStep> steps;
  for (const Candidate& candidate : candidates) {
    if (candidate.ends) continue;
    if (std::ssize(next) == options_.beams) break;
    next.push_back(longer(candidate, first_row));
    steps.push_back({candidate.open, candidate.id});
  }
  open_ = std::move(next);
  if (!open_.empty()) {
    const bool hopes = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0.0;
    const double best = score(open_.front().log_probability, hopes ? options_.length : length);
    improvable_ = improvable_ && (std::ssize(ended_) < options_.beams || best > ended_.back().text.score);
  }
  if (!goes_on(length)) {
    open_.clear();
    steps.clear();
  }
  return steps;
}

std::span<const float> Beams::Rows::before(std::size_t open) const {
  const std::int64_t size = unchanged.size(1);
  return {unchanged.data<float>() + static_cast<std::int64_t>(open) * size, static_cast<std::size_t>(size)};
}

Beams::Rows Beams::rows_of(const float* logits, std::int64_t vocabulary) const {
  Rows rows{.unchanged = Tensor(DType::f32, {std::ssize(open_), vocabulary})};
  for_pieces(rows.unchanged.count(), [&](std::int64_t begin, std::int64_t end) {
    std::copy(logits + begin, logits + end, rows.unchanged.data<float>() + begin);
  });
  autograd::log_softmax_rows(rows.unchanged);
  if (options_.repetition_penalty == 1.0 && options_.rules.empty()) return rows;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    // As in transformers, rules change log-probabilities in a search, and logits where there is one text.
    const float* from = single() ? logits + static_cast<std::int64_t>(i) * vocabulary : rows.before(i).data();
    std::vector<float>& ruled = rows.ruled.emplace_back(penalized(
        {from, static_cast<std::size_t>(vocabulary)}, prompt_, open_[i].ids, options_.repetition_penalty));
    apply(options_.rules, {prompt_, open_[i].ids, options_.length}, ruled);
  }
  return rows;
}

// Of the first text: the others have no choice either.
std::string Beams::rule_without_choice(const float* logits, std::int64_t vocabulary) const {
  const std::vector<float> row = penalized({logits, static_cast<std::size_t>(vocabulary)}, prompt_,
                                           open_.front().ids, options_.repetition_penalty);
  return models::rule_without_choice(options_.rules, {prompt_, open_.front().ids, options_.length}, row);
}

// So many that `beams` of them go on even if each of the best ends with some stop id.
std::vector<Beams::Candidate> Beams::candidates_of(const float* logits, std::int64_t vocabulary) const {
  const auto most =
      static_cast<std::size_t>(options_.beams * std::max<std::int64_t>(2, 1 + std::ssize(options_.stop)));
  const Rows rows = rows_of(logits, vocabulary);
  if (draws()) return drawn(rows, most);
  std::vector<Candidate> candidates;
  std::vector<std::vector<Candidate>> of_rows(open_.size());
  constexpr std::int64_t least_parallel =
      1 << 16;  // numbers, whose scan takes about as long as waking a thread
  Executor& executor =
      std::ssize(open_) * vocabulary < least_parallel ? serial_executor() : default_executor();
  executor.parallel_for(std::ssize(open_), [&](std::int64_t n, int) {
    const auto i = static_cast<std::size_t>(n);
    of_rows[i] = best_of_row(i, rows.behind(i), rows.before(i), most);
  });
  for (const std::vector<Candidate>& row : of_rows)
    candidates.insert(candidates.end(), row.begin(), row.end());
  keep_best(candidates, most);
  return candidates;
}

SampleOptions Beams::sample_options() const {
  const DrawOptions& draws = *options_.draws;
  return {.temperature = draws.temperature,
          .top_k = draws.top_k,
          .top_p = draws.top_p,
          .min_p = draws.min_p,
          .seed = draws.seed};
}

std::vector<Beams::Candidate> Beams::drawn(const Rows& rows, std::size_t most) const {
  const DrawOptions& options = *options_.draws;
  const std::int64_t step = written_ - 1;
  std::vector<Candidate> pairs;
  std::vector<double> scores;
  if (single()) {
    const auto id = sample(rows.behind(0), sample_options(), uniform_of(options.seed, step));
    const double of_id = rows.before(0)[static_cast<std::size_t>(id)];
    const double sum = open_[0].log_probability + of_id;
    return {{.open = 0, .id = id, .log_probability = sum, .of_id = of_id, .value = sum}};
  }
  const auto least = static_cast<std::size_t>(std::max<std::int64_t>(2, 1 + std::ssize(options_.stop)));
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const std::span<const float> row = rows.behind(i);
    if (std::ranges::none_of(row, [](float one) { return std::isfinite(one); })) continue;
    for (const std::int32_t id : kept_ids(row, sample_options(), least)) {
      const auto at = static_cast<std::size_t>(id);
      const double sum = open_[i].log_probability + row[at] / options.temperature;
      pairs.push_back(
          {.open = i, .id = id, .log_probability = sum, .of_id = rows.before(i)[at], .value = sum});
      scores.push_back(sum);
    }
  }
  std::vector<Candidate> candidates;
  const auto uniform = [&](std::size_t draw) {
    return uniform_of(options.seed, step, static_cast<std::uint32_t>(draw));
  };
  for (const std::size_t i : draw_without_replacement(scores, most, uniform)) candidates.push_back(pairs[i]);
  return candidates;
}

bool Beams::before(const Candidate& a, const Candidate& b) {
  if (a.value != b.value) return a.value > b.value;
  return std::pair(a.open, a.id) < std::pair(b.open, b.id);
}

void Beams::keep_best(std::vector<Candidate>& candidates, std::size_t most) {
  const std::size_t kept = std::min(most, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates.end(), before);
  candidates.resize(kept);
}

// The best ids of one text. A row of the vocabulary is scanned once; only what may be among the best is kept.
// Blocks that hold nothing as good are passed over by their largest number. `unchanged` is the row before the
// rules.
std::vector<Beams::Candidate> Beams::best_of_row(std::size_t open, std::span<const float> row,
                                                 std::span<const float> unchanged, std::size_t most) const {
  constexpr std::size_t block = 64;
  std::vector<Candidate> best;
  double least = -std::numeric_limits<double>::infinity();
  for (std::size_t begin = 0; begin < row.size(); begin += block) {
    const std::size_t end = std::min(row.size(), begin + block);
    if (best.size() >= most &&
        open_[open].log_probability + largest_of(row.data() + begin, end - begin) < least)
      continue;
    for (std::size_t id = begin; id < end; ++id) {
      const double sum = open_[open].log_probability + row[id];
      if (std::isnan(sum) || sum == -std::numeric_limits<double>::infinity()) continue;
      if (best.size() >= most && sum < least) continue;
      best.push_back({.open = open,
                      .id = static_cast<std::int32_t>(id),
                      .log_probability = single() ? open_[open].log_probability + unchanged[id] : sum,
                      .of_id = unchanged[id],
                      .value = sum});
      if (best.size() < 2 * most) continue;
      keep_best(best, most);
      least = best.back().value;
    }
  }
  keep_best(best, most);
  return best;
}

bool Beams::ends(const Candidate& candidate) const {
  if (std::ranges::find(options_.stop, candidate.id) != options_.stop.end()) return true;
  if (!options_.ends) return false;
  std::vector<std::int32_t> ids = open_[candidate.open].ids;
  ids.push_back(candidate.id);
  return options_.ends(ids);
}

Beams::Open Beams::longer(const Candidate& candidate, std::int64_t first_row) const {
  Open text = open_[candidate.open];
  text.ids.push_back(candidate.id);
  text.log_probabilities.push_back(candidate.of_id);
  text.log_probability = candidate.log_probability;
  text.rows.push_back(first_row + static_cast<std::int64_t>(candidate.open));
  return text;
}

// Only the first `beams` candidates may end: a worse one that ends is beaten by one that goes on.
void Beams::end_texts(const std::vector<Candidate>& candidates, std::int64_t length, std::int64_t first_row) {
  const std::size_t most = std::min(candidates.size(), static_cast<std::size_t>(options_.beams));
  for (std::size_t i = 0; i < most; ++i) {
    if (!candidates[i].ends) continue;
    Open whole = longer(candidates[i], first_row);
    EndedBeam beam{{.ids = std::move(whole.ids),
                    .log_probabilities = std::move(whole.log_probabilities),
                    .log_probability = whole.log_probability,
                    .score = score(whole.log_probability, length)},
                   std::move(whole.rows)};
    const auto place = std::ranges::find_if(
        ended_, [&](const EndedBeam& other) { return beam.text.score > other.text.score; });
    ended_.insert(place, std::move(beam));
  }
  if (std::ssize(ended_) > options_.beams) ended_.resize(static_cast<std::size_t>(options_.beams));
}

}  // namespace fovea::models
