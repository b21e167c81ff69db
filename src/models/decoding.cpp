#include "fovea/models/decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fovea/core/profile.h"
#include "models/rows.h"
#include "models/short_output.h"

namespace fovea::models {
namespace {

// How many ids are put behind a source.
std::size_t ends(SourceEnd source_end) {
  return source_end == SourceEnd::appended ? 1 : 0;
}

struct Live {
  std::size_t sentence = 0;
  std::vector<std::int32_t> ids;
  double log_probability = 0.0;
};

// The alignment of one step, and for each row of the next step the row that it continues. A finished
// hypothesis is traced back through these, so that extending one copies no weights.
struct Past {
  Tensor alignment;                   // [rows, source_len]
  std::vector<std::int64_t> parents;  // one a row of the next step
};

struct Candidate {
  double log_probability;
  std::size_t row;
  std::int32_t token;
  // Ties go to the earlier row and the smaller id, so that the result does not depend on the sort.
  bool operator<(const Candidate& other) const {
    if (log_probability != other.log_probability) return log_probability > other.log_probability;
    return row != other.row ? row < other.row : token < other.token;
  }
};

// One step for all live rows: the input of the output layer, and the alignment of the word being written.
class Stepper {
 public:
  Stepper(SequenceToSequence& model, const std::vector<std::vector<std::int32_t>>& sources,
          const DecodeOptions& options)
      : model_(model),
        sources_(sources),
        options_(options),
        batch_(make_batch(sources, {}, options.bos, options.eos, options.source_end)) {
    if (options.reuse == Reuse::off) return;
    state_ = model.start(batch_.source, batch_.source_len, batch_.source_lengths);
    state_->aligns = options.alignments;
  }

  nn::Var step(const std::vector<Live>& rows) {
    if (state_) {
      std::vector<std::int32_t> previous;
      for (const Live& row : rows) previous.push_back(row.ids.empty() ? options_.bos : row.ids.back());
      const nn::Var result = model_.advance(*state_, previous);
      alignment_ = state_->alignment;
      bytes_ = std::max(bytes_, state_->bytes());
      return result;
    }
    return recompute(rows);
  }

  void reorder(const std::vector<std::int64_t>& index) {
    static constexpr ProfileLabel label{"states of hypotheses", ProfilePart::search};
    const ProfileSpan span(label);
    if (state_) state_->reorder(index);
  }

  /// Of the last step: [rows, source_len]; empty without attention.
  const Tensor& alignment() const { return alignment_; }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t score_evaluations() const { return state_ ? state_->score_evaluations : evaluations_; }

 private:
  // Computes everything again from the tokens: encoder, projections, every earlier step.
  nn::Var recompute(const std::vector<Live>& rows) {
    Batch batch;
    std::vector<std::vector<std::int32_t>> sources, prefixes;
    for (const Live& row : rows) {
      sources.push_back(sources_[row.sentence]);
      prefixes.push_back(row.ids);
    }
    batch = make_batch(sources, prefixes, options_.bos, options_.eos, options_.source_end);
    nn::Context context;
    Capture capture;
    capture.scope = Capture::Scope::alignment;
    const Tensor hidden =
        model_.hidden(context, batch, options_.alignments ? &capture : nullptr, &evaluations_).value();
    const std::int64_t steps = batch.target_len, dim = hidden.size(1), count = batch.size;
    Tensor last(DType::f32, {count, dim});
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(hidden.data<float>() + ((i + 1) * steps - 1) * dim, dim, last.data<float>() + i * dim);
    }
    const Tensor weights = alignment_of(capture, model_);
    alignment_ = Tensor();
    if (weights) {
      alignment_ = Tensor(DType::f32, {count, weights.size(2)});
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(weights.data<float>() + ((i + 1) * steps - 1) * weights.size(2), weights.size(2),
                    alignment_.data<float>() + i * weights.size(2));
      }
    }
    return last;
  }

  SequenceToSequence& model_;
  const std::vector<std::vector<std::int32_t>>& sources_;
  const DecodeOptions& options_;
  Batch batch_;
  std::unique_ptr<DecoderState> state_;
  Tensor alignment_;
  std::int64_t bytes_ = 0, evaluations_ = 0;
};

class Search {
 public:
  Search(SequenceToSequence& model, const std::vector<std::vector<std::int32_t>>& sources,
         const DecodeOptions& options)
      : model_(model),
        sources_(sources),
        options_(options),
        stepper_(model, sources, options),
        finished_(sources.size()) {
    for (std::size_t i = 0; i < sources.size(); ++i) live_.push_back({i, {}, 0.0});
    if (options.shortlist) outputs_.emplace(model, *options.shortlist, sources, options.eos, forbidden());
  }

  std::vector<std::vector<Hypothesis>> run(DecodeStats* stats) {
    DecodeStats counted;
    while (!live_.empty() && !(options_.cancelled && options_.cancelled())) {
      const nn::Var hidden = stepper_.step(live_);
      ++counted.steps;
      counted.tokens += static_cast<std::int64_t>(live_.size());
      advance(hidden);
    }
    for (auto& hypotheses : finished_) {
      std::stable_sort(hypotheses.begin(), hypotheses.end(),
                       [](const auto& a, const auto& b) { return a.score > b.score; });
      hypotheses.resize(std::min<std::size_t>(hypotheses.size(), static_cast<std::size_t>(options_.n_best)));
    }
    counted.score_evaluations = stepper_.score_evaluations();
    counted.peak_state_bytes = stepper_.bytes();
    if (stats) *stats = counted;
    return std::move(finished_);
  }

 private:
  std::int64_t longest(std::size_t sentence) const {
    if (options_.exact_length > 0) return options_.exact_length;
    return static_cast<std::int64_t>(options_.length_factor *
                                     static_cast<double>(sources_[sentence].size())) +
           options_.length_extra;
  }

  // Never written: padding, BOS, and EOS where the length is given.
  std::vector<std::int32_t> forbidden() const {
    std::vector<std::int32_t> ids = options_.never.value_or(std::vector<std::int32_t>{0, options_.bos});
    if (options_.exact_length > 0) ids.push_back(options_.eos);
    return ids;
  }

  // Weights that wrote each token of the hypothesis whose last token comes from `row` of this step.
  std::vector<std::vector<float>> trace(std::size_t sentence, std::size_t row) const {
    if (!past_.back().alignment) return {};
    std::vector<std::vector<float>> rows(past_.size());
    for (std::size_t step = past_.size(); step-- > 0;) {
      const Tensor& weights = past_[step].alignment;
      const float* from = weights.data<float>() + static_cast<std::int64_t>(row) * weights.size(1);
      rows[step].assign(from, from + sources_[sentence].size() + ends(options_.source_end));
      if (step > 0) row = static_cast<std::size_t>(past_[step - 1].parents[row]);
    }
    return rows;
  }

  void finish(const Candidate& last) {
    const Live& parent = live_[last.row];
    Hypothesis done{parent.ids, last.log_probability, 0.0, trace(parent.sentence, last.row)};
    if (last.token != options_.eos) done.ids.push_back(last.token);
    done.score =
        last.log_probability / std::pow(static_cast<double>(parent.ids.size() + 1), options_.normalize);
    finished_[parent.sentence].push_back(std::move(done));
  }

  void advance(const nn::Var& hidden) {
    static constexpr ProfileLabel label{"hypotheses", ProfilePart::search};
    const ProfileSpan span(label);
    std::vector<Live> next;
    std::vector<std::int64_t> index;
    past_.push_back({stepper_.alignment(), {}});
    const auto beam = static_cast<std::size_t>(options_.beam_size);
    // 2·beam continuations of a row are enough, because at most beam of them are EOS. Greedy decoding takes
    // the best one, whatever it is.
    const std::size_t count = beam == 1 ? 1 : 2 * beam;
    const auto sentence_of = [&](std::size_t row) { return live_[row].sentence; };
    // Greedy decoding needs no log-probabilities to choose.
    const bool scored = beam > 1 || options_.log_probabilities;
    const auto numbers = scored ? autograd::LogProbabilities::given : autograd::LogProbabilities::left_out;
    const auto best = outputs_ ? outputs_->most_probable(hidden.value(), count, sentence_of, numbers)
                               : model_.most_probable(hidden, count, forbidden(), numbers);
    for (std::size_t begin = 0, end = 0; begin < live_.size(); begin = end) {
      const std::size_t sentence = live_[begin].sentence;
      std::vector<Candidate> candidates;
      for (end = begin; end < live_.size() && live_[end].sentence == sentence; ++end) {
        for (const autograd::Probable& next_token : best[end]) {
          const double of_token = scored ? static_cast<double>(next_token.log_probability) : 0.0;
          candidates.push_back({live_[end].log_probability + of_token, end, next_token.id});
        }
      }
      if (candidates.empty()) {
        throw InvalidArgument("decode", "model", "log-probabilities without NaN, at least one above -inf",
                              "none at step " + std::to_string(past_.size()));
      }
      std::sort(candidates.begin(), candidates.end());
      const bool last = static_cast<std::int64_t>(live_[begin].ids.size()) + 1 >= longest(sentence);
      const std::size_t first = next.size();
      for (std::size_t rank = 0; rank < candidates.size() && next.size() - first < beam; ++rank) {
        const Candidate& c = candidates[rank];
        if (c.token == options_.eos || last) {
          if (rank < beam) finish(c);
          if (last && rank + 1 >= beam) break;
          continue;
        }
        Live longer = live_[c.row];
        longer.ids.push_back(c.token);
        longer.log_probability = c.log_probability;
        next.push_back(std::move(longer));
        index.push_back(static_cast<std::int64_t>(c.row));
      }
      if (finished_[sentence].size() >= beam ||
          last) {  // enough hypotheses are finished, or no more steps are allowed
        next.resize(first);
        index.resize(first);
      }
    }
    live_ = std::move(next);
    if (!live_.empty()) stepper_.reorder(index);
    past_.back().parents = std::move(index);
  }

  SequenceToSequence& model_;
  const std::vector<std::vector<std::int32_t>>& sources_;
  const DecodeOptions& options_;
  Stepper stepper_;
  std::optional<ShortOutputs> outputs_;  // with a short-list
  std::vector<Live> live_;
  std::vector<Past> past_;
  std::vector<std::vector<Hypothesis>> finished_;
};

}  // namespace

std::vector<std::vector<Hypothesis>> decode(SequenceToSequence& model,
                                            const std::vector<std::vector<std::int32_t>>& sources,
                                            const DecodeOptions& options, DecodeStats* stats) {
  if (options.beam_size < 1)
    throw InvalidArgument("decode", "options.beam_size", "at least 1", std::to_string(options.beam_size));
  if (options.n_best < 1)
    throw InvalidArgument("decode", "options.n_best", "at least 1", std::to_string(options.n_best));
  if (!std::isfinite(options.normalize))
    throw InvalidArgument("decode", "options.normalize", "a finite number",
                          std::to_string(options.normalize));
  constexpr double largest_factor = 1e6;
  if (!(options.length_factor >= 0.0 && options.length_factor <= largest_factor))
    throw InvalidArgument("decode", "options.length_factor", "a number from 0 to 1,000,000",
                          std::to_string(options.length_factor));
  for (const auto& source : sources) {
    if (source.empty())
      throw InvalidArgument("decode", "sources", "at least one token in each source", "an empty source");
  }
  if (sources.empty()) return {};
  return Search(model, sources, options).run(stats);
}

DecodeStats& DecodeStats::operator+=(const DecodeStats& other) {
  steps += other.steps;
  tokens += other.tokens;
  score_evaluations += other.score_evaluations;
  peak_state_bytes = std::max(peak_state_bytes, other.peak_state_bytes);
  return *this;
}

Batch make_batch(const std::vector<std::vector<std::int32_t>>& sources,
                 const std::vector<std::vector<std::int32_t>>& targets, std::int32_t bos, std::int32_t eos,
                 SourceEnd source_end) {
  static constexpr ProfileLabel label{"batch of ids", ProfilePart::data};
  const ProfileSpan span(label);
  Batch batch;
  batch.size = static_cast<std::int64_t>(sources.size());
  for (const auto& source : sources)
    batch.source_len =
        std::max(batch.source_len, static_cast<std::int64_t>(source.size() + ends(source_end)));
  batch.source.assign(static_cast<std::size_t>(batch.size * batch.source_len), 0);
  for (std::int64_t i = 0; i < batch.size; ++i) {
    auto* row = batch.source.data() + i * batch.source_len;
    std::copy(sources[i].begin(), sources[i].end(), row);
    if (source_end == SourceEnd::appended) row[sources[i].size()] = eos;
    batch.source_lengths.push_back(static_cast<std::int64_t>(sources[i].size() + ends(source_end)));
  }
  if (targets.empty()) return batch;
  if (targets.size() != sources.size()) {
    throw InvalidArgument("make_batch", "targets", std::to_string(sources.size()) + " targets",
                          std::to_string(targets.size()));
  }
  for (const auto& target : targets)
    batch.target_len = std::max(batch.target_len, static_cast<std::int64_t>(target.size()) + 1);
  batch.target_input.assign(static_cast<std::size_t>(batch.size * batch.target_len), 0);
  batch.target_output.assign(batch.target_input.size(), -1);
  for (std::int64_t i = 0; i < batch.size; ++i) {
    const auto& target = targets[i];
    auto* input = batch.target_input.data() + i * batch.target_len;
    auto* output = batch.target_output.data() + i * batch.target_len;
    input[0] = bos;
    std::copy(target.begin(), target.end(), input + 1);
    std::copy(target.begin(), target.end(), output);
    output[target.size()] = eos;
    batch.target_lengths.push_back(static_cast<std::int64_t>(target.size()) + 1);
  }
  return batch;
}

}  // namespace fovea::models
