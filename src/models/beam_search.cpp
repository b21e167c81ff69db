#include "fovea/models/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "models/sampling.h"

namespace fovea::models {
namespace {

void check(const BeamOptions& options) {
  const auto refuse = [](const char* option, const char* expected, const std::string& got) {
    throw InvalidArgument("beam_search", std::string("options.") + option, expected, got);
  };
  if (options.beams < 1 || options.beams > 1024)
    refuse("beams", "from 1 to 1024", std::to_string(options.beams));
  if (!std::isfinite(options.length_penalty))
    refuse("length_penalty", "a finite number", std::to_string(options.length_penalty));
}

struct Open {
  Sequence sequence;
  std::vector<std::int32_t> unread;  ///< at the beginning the end of the prompt, later one id
  std::vector<std::int32_t> ids;
  std::vector<double> log_probabilities;  ///< of each id, before the penalty
  double log_probability = 0.0;
};

/// A way to go on: an open text and its next id.
struct Candidate {
  std::size_t open = 0;
  std::int32_t id = 0;
  double log_probability = 0.0;
  double of_id = 0.0;  ///< the id's own log-probability, before the penalty
  bool ends = false;
};

class Search {
 public:
  Search(LanguageModel& model, KvCache& cache, std::span<const std::int32_t> prompt,
         const BeamOptions& options)
      : model_(model), cache_(cache), prompt_(prompt), options_(options) {}

  std::vector<BeamText> run() {
    Open& first = open_.emplace_back();
    first.sequence = cache_.start();
    const auto last = read_prompt(model_, cache_, first.sequence, prompt_);
    first.unread.assign(last.begin(), last.end());
    for (std::int64_t written = 0; written < options_.length && goes_on(); ++written) step(written + 1);
    return std::move(ended_);
  }

 private:
  bool goes_on() const {
    const bool full = std::ssize(ended_) == options_.beams;
    return !open_.empty() && improvable_ && !(full && options_.early_stopping == EarlyStopping::on) &&
           !(options_.cancelled && options_.cancelled());
  }

  void step(std::int64_t length) {
    std::vector<Candidate> candidates = best_candidates();
    for (Candidate& candidate : candidates) candidate.ends = length == options_.length || ends(candidate);
    end_texts(candidates, length);
    go_on_with(candidates);
    if (open_.empty()) return;
    const bool hopes = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0.0;
    const double best = score(open_.front().log_probability, hopes ? options_.length : length);
    improvable_ = improvable_ && (std::ssize(ended_) < options_.beams || best > ended_.back().score);
  }

  double score(double log_probability, std::int64_t length) const {
    return log_probability / std::pow(static_cast<double>(length), options_.length_penalty);
  }

  // So many that `beams` of them go on even if each of the best ends with some stop id.
  std::vector<Candidate> best_candidates() {
    const auto most =
        static_cast<std::size_t>(options_.beams * std::max<std::int64_t>(2, 1 + std::ssize(options_.stop)));
    std::vector<LanguageModel::Next> next;
    for (Open& text : open_)
      next.push_back({.sequence = &text.sequence, .ids = text.unread, .known = text.ids.empty()});
    const nn::Var rows = model_.extend(next, cache_);
    const std::int64_t dim = rows.size(2);
    Tensor last(DType::f32, {std::ssize(open_), dim});
    std::int64_t end = 0;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      end += std::ssize(open_[i].unread);
      std::copy_n(rows.value().data<float>() + (end - 1) * dim, dim,
                  last.data<float>() + static_cast<std::int64_t>(i) * dim);
    }
    const Tensor log_probabilities = model_.log_probabilities(last);
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      float* row = const_cast<float*>(log_probabilities.data<float>()) +
                   static_cast<std::int64_t>(i) * log_probabilities.size(1);
      const std::span<float> of_text(row, static_cast<std::size_t>(log_probabilities.size(1)));
      if (options_.repetition_penalty == 1.0) {
        add_best(i, of_text, of_text, most, candidates);
        continue;
      }
      const std::vector<float> unchanged(of_text.begin(), of_text.end());
      penalize(open_[i], of_text);
      add_best(i, of_text, unchanged, most, candidates);
    }
    keep_best(candidates, most);
    return candidates;
  }

  void penalize(const Open& text, std::span<float> row) const {
    std::vector<std::int32_t> present(prompt_.begin(), prompt_.end());
    present.insert(present.end(), text.ids.begin(), text.ids.end());
    std::ranges::sort(present);
    present.erase(std::unique(present.begin(), present.end()), present.end());
    for (const std::int32_t id : present)
      row[static_cast<std::size_t>(id)] *= static_cast<float>(options_.repetition_penalty);
  }

  static bool before(const Candidate& a, const Candidate& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return std::pair(a.open, a.id) < std::pair(b.open, b.id);
  }
  static void keep_best(std::vector<Candidate>& candidates, std::size_t most) {
    const std::size_t kept = std::min(most, candidates.size());
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                      candidates.end(), before);
    candidates.resize(kept);
  }

  // The best ids of one text. A row of the vocabulary is scanned once; only what may be among the best is
  // kept. `unchanged` is the row before the penalty.
  void add_best(std::size_t open, std::span<const float> row, std::span<const float> unchanged,
                std::size_t most, std::vector<Candidate>& candidates) const {
    std::vector<Candidate> best;
    double least = -std::numeric_limits<double>::infinity();
    for (std::size_t id = 0; id < row.size(); ++id) {
      const double sum = open_[open].log_probability + row[id];
      if (std::isnan(sum) || sum == -std::numeric_limits<double>::infinity()) continue;
      if (best.size() >= most && sum < least) continue;
      best.push_back({.open = open,
                      .id = static_cast<std::int32_t>(id),
                      .log_probability = sum,
                      .of_id = unchanged[id]});
      if (best.size() < 2 * most) continue;
      keep_best(best, most);
      least = best.back().log_probability;
    }
    keep_best(best, most);
    candidates.insert(candidates.end(), best.begin(), best.end());
  }

  bool ends(const Candidate& candidate) const {
    if (std::ranges::find(options_.stop, candidate.id) != options_.stop.end()) return true;
    if (!options_.ends) return false;
    std::vector<std::int32_t> ids = open_[candidate.open].ids;
    ids.push_back(candidate.id);
    return options_.ends(ids);
  }

  // Only the best `beams` candidates may end: a worse one that ends is beaten by one that goes on.
  void end_texts(const std::vector<Candidate>& candidates, std::int64_t length) {
    const std::size_t most = std::min(candidates.size(), static_cast<std::size_t>(options_.beams));
    for (std::size_t i = 0; i < most; ++i) {
      const Candidate& candidate = candidates[i];
      if (!candidate.ends) continue;
      const Open& from = open_[candidate.open];
      BeamText text{.ids = from.ids,
                    .log_probabilities = from.log_probabilities,
                    .log_probability = candidate.log_probability,
                    .score = score(candidate.log_probability, length)};
      text.ids.push_back(candidate.id);
      text.log_probabilities.push_back(candidate.of_id);
      const auto place =
          std::ranges::find_if(ended_, [&](const BeamText& other) { return text.score > other.score; });
      ended_.insert(place, std::move(text));
    }
    if (std::ssize(ended_) > options_.beams) ended_.resize(static_cast<std::size_t>(options_.beams));
  }

  void go_on_with(const std::vector<Candidate>& candidates) {
    std::vector<Open> next;
    for (const Candidate& candidate : candidates) {
      if (candidate.ends) continue;
      if (std::ssize(next) == options_.beams) break;
      const Open& from = open_[candidate.open];
      Open& text = next.emplace_back();
      text.sequence = cache_.fork(from.sequence);
      text.unread = {candidate.id};
      text.ids = from.ids;
      text.ids.push_back(candidate.id);
      text.log_probabilities = from.log_probabilities;
      text.log_probabilities.push_back(candidate.of_id);
      text.log_probability = candidate.log_probability;
    }
    open_ = std::move(next);
  }

  LanguageModel& model_;
  KvCache& cache_;
  std::span<const std::int32_t> prompt_;
  const BeamOptions& options_;
  std::vector<Open> open_;       // best first
  std::vector<BeamText> ended_;  // best first
  bool improvable_ = true;
};

}  // namespace

std::vector<BeamText> beam_search(LanguageModel& model, KvCache& cache, std::span<const std::int32_t> prompt,
                                  const BeamOptions& options) {
  check(options);
  check_generation(model, prompt,
                   {.repetition_penalty = options.repetition_penalty, .length = options.length});
  check_room(model, std::ssize(prompt), options.length);
  return Search(model, cache, prompt, options).run();
}

}  // namespace fovea::models
