// Sampling from a language model: the next token, and whole texts.
#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/core/philox.h"
#include "fovea/models/generate_until.h"

namespace fovea::models {

void check_choices(const SampleOptions& options) {
  const auto refuse = [](const char* option, const char* expected, const std::string& got) {
    throw InvalidArgument("choices", std::string("options.") + option, expected, got);
  };
  if (!(options.temperature >= 0.0) || std::isinf(options.temperature))
    refuse("temperature", "a number of 0 or more", std::to_string(options.temperature));
  if (options.top_k < 0) refuse("top_k", "0 or more", std::to_string(options.top_k));
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    refuse("top_p", "in (0, 1]", std::to_string(options.top_p));
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0))
    refuse("min_p", "in [0, 1]", std::to_string(options.min_p));
  if (!(options.repetition_penalty > 0.0) || std::isinf(options.repetition_penalty))
    refuse("repetition_penalty", "a number above 0", std::to_string(options.repetition_penalty));
}

namespace {

// Tokens with weights in proportion to their probabilities. They are brought into their order, most probable
// first and of equals the smaller id, only as far as someone asks: a draw seldom looks further than a few
// dozen of ten thousand, and sorting all of them took as long as the rest of the model.
class Ranked {
 public:
  explicit Ranked(std::vector<Choice> tokens) : tokens_(std::move(tokens)) {}
  std::size_t size() const { return tokens_.size(); }
  const Choice& operator[](std::size_t rank) {
    while (rank >= sorted_) sort_more();
    return tokens_[rank];
  }
  /// Drops all tokens but the first `count`.
  void keep(std::size_t count) {
    if (count >= tokens_.size()) return;
    while (count > sorted_) sort_more();
    tokens_.resize(count);
    sorted_ = count;
  }
  std::vector<Choice>& tokens() { return tokens_; }

 private:
  static bool before(const Choice& a, const Choice& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
  }
  void sort_more() {
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    sorted_ = std::min(tokens_.size(), std::max<std::size_t>(64, 4 * sorted_));
    const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    if (end != tokens_.end()) std::nth_element(begin, end, tokens_.end(), before);
    std::sort(begin, end, before);
  }
  std::vector<Choice> tokens_;
  std::size_t sorted_ = 0;
};

// The tokens that can be drawn, their weights, and the sum of these.
struct Drawn {
  Ranked tokens;
  double sum = 0.0;
};

double sum_of(const std::vector<Choice>& tokens) {
  double sum = 0.0;
  for (const Choice& token : tokens) sum += token.probability;
  return sum;
}

// At least `least` tokens are left, if so many have a probability.
Drawn drawn(std::span<const float> log_probabilities, const SampleOptions& options, std::size_t least = 1) {
  check_choices(options);
  std::vector<Choice> finite;
  finite.reserve(log_probabilities.size());
  for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
    const double value = log_probabilities[i];
    if (std::isnan(value) || value == std::numeric_limits<double>::infinity()) {
      throw InvalidArgument("choices", "log_probabilities", "numbers or -inf",
                            std::to_string(value) + " at " + std::to_string(i));
    }
    if (std::isfinite(value)) finite.push_back({static_cast<std::int32_t>(i), value});
  }
  if (finite.empty())
    throw InvalidArgument("choices", "log_probabilities", "at least one token with a probability above 0",
                          "none");
  const Choice best = *std::max_element(finite.begin(), finite.end(), [](const Choice& a, const Choice& b) {
    return a.probability < b.probability;
  });
  if (options.temperature == 0.0) return {Ranked({{best.id, 1.0}}), 1.0};
  Ranked tokens(std::move(finite));
  if (options.top_k > 0) tokens.keep(std::max(static_cast<std::size_t>(options.top_k), least));
  for (Choice& token : tokens.tokens())
    token.probability = std::exp((token.probability - best.probability) / options.temperature);
  double sum = sum_of(tokens.tokens());
  if (options.top_p < 1.0) {
    const double wanted = options.top_p * sum;
    std::size_t count = 0;
    for (sum = 0.0; count < tokens.size() && (sum < wanted || count < least); ++count)
      sum += tokens[count].probability;
    tokens.keep(count);
  }
  if (options.min_p > 0.0) {  // the largest weight is 1
    std::size_t count = 1;
    while (count < tokens.size() && (tokens[count].probability >= options.min_p || count < least)) ++count;
    tokens.keep(count);
    sum = sum_of(tokens.tokens());
  }
  return {std::move(tokens), sum};
}

}  // namespace

std::vector<Choice> choices(std::span<const float> log_probabilities, const SampleOptions& options) {
  Drawn from = drawn(log_probabilities, options);
  std::vector<Choice> result;
  for (std::size_t rank = 0; rank < from.tokens.size(); ++rank)
    result.push_back({from.tokens[rank].id, from.tokens[rank].probability / from.sum});
  return result;
}

std::vector<std::int32_t> kept_ids(std::span<const float> log_probabilities, const SampleOptions& options,
                                   std::size_t least) {
  Drawn from = drawn(log_probabilities, options, least);
  std::vector<std::int32_t> ids;
  for (const Choice& token : from.tokens.tokens()) ids.push_back(token.id);
  return ids;
}

std::int32_t sample(std::span<const float> log_probabilities, const SampleOptions& options, double uniform) {
  if (!(uniform >= 0.0 && uniform < 1.0))
    throw InvalidArgument("sample", "uniform", "in [0, 1)", std::to_string(uniform));
  Drawn from = drawn(log_probabilities, options);
  double sum = 0.0;
  for (std::size_t rank = 0; rank < from.tokens.size(); ++rank) {
    sum += from.tokens[rank].probability / from.sum;
    if (uniform < sum) return from.tokens[rank].id;
  }
  // Rounding may leave the sum slightly below 1. The rest belongs to the last token with a positive
  // probability.
  std::size_t last = from.tokens.size() - 1;
  while (last > 0 && !(from.tokens[last].probability > 0.0)) --last;
  return from.tokens[last].id;
}

double uniform_of(std::uint64_t seed, std::int64_t index, std::uint32_t draw) {
  const auto at = static_cast<std::uint64_t>(index);
  const auto bits =
      philox4x32({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), draw, 0},
                 seed ^ 0xD6E8FEB86659FD93u);
  const std::uint64_t high = bits[0] >> 5, low = bits[1] >> 6;
  return static_cast<double>((high << 26) | low) * 0x1p-53;
}

namespace {

// Weights whose sums over blocks are kept, so that a draw reads the sums and one block.
class BlockedWeights {
 public:
  explicit BlockedWeights(std::span<const double> log_weights)
      : log_weights_(log_weights.begin(), log_weights.end()), weights_(log_weights.size()) {
    while (block_ * block_ < weights_.size()) ++block_;
    sums_.resize((weights_.size() + block_ - 1) / block_);
    scale();
  }

  bool empty() const { return sum() == 0.0; }
  /// The entry at which the running sum exceeds `uniform` times the sum of all, which is no longer drawn.
  std::size_t draw(double uniform) {
    double wanted = uniform * sum();
    std::size_t block = 0, last = 0;
    for (std::size_t b = 0; b < sums_.size(); ++b) {  // rounding may leave nothing behind the last block
      if (sums_[b] == 0.0) continue;
      block = b;
      if (wanted < sums_[b]) break;
      wanted -= sums_[b];
    }
    for (std::size_t i = block * block_; i < end_of(block); ++i) {
      if (weights_[i] == 0.0) continue;
      last = i;
      if (wanted < weights_[i]) break;
      wanted -= weights_[i];
    }
    log_weights_[last] = -std::numeric_limits<double>::infinity();
    weights_[last] = 0.0;
    add_up(block);
    // Numbers below 1e-308 lose digits: those that are left get new weights, relative to the largest of them.
    if (sum() < 1e-200) scale();
    return last;
  }

 private:
  std::size_t end_of(std::size_t block) const { return std::min(weights_.size(), (block + 1) * block_); }
  void add_up(std::size_t block) {
    sums_[block] = 0.0;
    for (std::size_t i = block * block_; i < end_of(block); ++i) sums_[block] += weights_[i];
  }
  double sum() const {
    double all = 0.0;
    for (const double of_block : sums_) all += of_block;
    return all;
  }
  void scale() {
    double most = -std::numeric_limits<double>::infinity();
    for (const double one : log_weights_) most = std::max(most, one);
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = std::isfinite(most) ? std::exp(log_weights_[i] - most) : 0.0;
    for (std::size_t block = 0; block < sums_.size(); ++block) add_up(block);
  }

  std::vector<double> log_weights_, weights_, sums_;
  std::size_t block_ = 1;
};

}  // namespace

std::vector<std::size_t> draw_without_replacement(std::span<const double> log_weights, std::size_t count,
                                                  const std::function<double(std::size_t)>& uniform) {
  BlockedWeights weights(log_weights);
  std::vector<std::size_t> drawn;
  while (drawn.size() < count && !weights.empty()) drawn.push_back(weights.draw(uniform(drawn.size())));
  return drawn;
}

void check_generation(const LanguageModel& model, std::span<const std::int32_t> prompt,
                      const SampleOptions& options) {
  check_choices(options);
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("generate", argument, std::move(expected), std::move(got));
  };
  if (options.length < 0) refuse("options.length", "0 or more", std::to_string(options.length));
  if (options.first < 0) refuse("options.first", "0 or more", std::to_string(options.first));
  if (prompt.empty()) refuse("prompt", "at least one token", "none");
  for (const std::int32_t id : prompt) {
    if (id < 0 || id >= model.config().vocabulary)
      refuse("prompt", "ids below " + std::to_string(model.config().vocabulary), std::to_string(id));
  }
}

void check_room(const LanguageModel& model, std::int64_t before, std::int64_t length) {
  const std::int64_t longest = model.longest();
  // The last token is written and not read. `longest` may be the largest number, so nothing is added to it.
  if (length == 0 || (before <= longest && length - 1 <= longest - before)) return;
  throw InvalidArgument("generate", "options.length",
                        "at most " + std::to_string(std::max<std::int64_t>(longest - before + 1, 0)) +
                            " behind " + std::to_string(before) + " tokens, as the model reads " +
                            std::to_string(longest),
                        std::to_string(length));
}

namespace {

// The row that the output layer reads for the next token: [1, dim].
Tensor last_row(const nn::Var& rows) {
  return autograd::slice(rows, 1, rows.size(1) - 1, 1).value().reshape({1, rows.size(2)});
}

void write_behind(LanguageModel& model, const Tensor& row, std::span<const std::int32_t> read,
                  const SampleOptions& options, Generated& written) {
  const Tensor next = model.logits(row);
  write_next({next.data<float>(), static_cast<std::size_t>(next.count())}, read, options, written);
}

bool is_whole(const Generated& written, const SampleOptions& options, const EndsText& ends) {
  const bool ended = ends && !written.ids.empty() && ends(written.ids);  // also behind the last token
  return ended || std::ssize(written.ids) >= options.length;
}

// The logits, and those of ids that were read or written less by the penalty.
std::vector<float> penalized(std::span<const float> logits, std::span<const std::int32_t> read,
                             const Generated& written, double penalty) {
  std::vector<float> changed(logits.begin(), logits.end());
  for (const std::span<const std::int32_t> ids : {read, std::span<const std::int32_t>(written.ids)}) {
    for (const std::int32_t id : ids) {
      const auto at = static_cast<std::size_t>(id);
      if (at >= changed.size()) continue;
      // From the unchanged logit: an id that stands in the text twice is changed once.
      const double logit = logits[at];
      changed[at] = static_cast<float>(logit > 0.0 ? logit / penalty : logit * penalty);
    }
  }
  return changed;
}

}  // namespace

void write_next(std::span<const float> logits, std::span<const std::int32_t> read,
                const SampleOptions& options, Generated& written) {
  const double uniform = uniform_of(options.seed, options.first + std::ssize(written.ids));
  Tensor own(DType::f32, {1, std::ssize(logits)});
  std::copy(logits.begin(), logits.end(), own.data<float>());
  autograd::log_softmax_rows(own);
  const std::span<const float> log_probabilities(own.data<float>(), logits.size());
  std::int32_t id = 0;
  if (options.repetition_penalty == 1.0 && options.rules.empty()) {
    id = sample(log_probabilities, options, uniform);
  } else {
    std::vector<float> ruled = penalized(logits, read, written, options.repetition_penalty);
    const TextSoFar text{read, written.ids, options.length};
    apply(options.rules, text, ruled);
    const bool none = std::ranges::none_of(ruled, [](float score) { return std::isfinite(score); });
    const std::string rule =
        none ? rule_without_choice(options.rules, text,
                                   penalized(logits, read, written, options.repetition_penalty))
             : "";
    if (!rule.empty())
      throw InvalidArgument("generate", "rules", "at least one id that may be written",
                            "none behind " + rule + ", for id " + std::to_string(written.ids.size() + 1));
    id = sample(ruled, options, uniform);
  }
  written.ids.push_back(id);
  written.log_probabilities.push_back(log_probabilities[static_cast<std::size_t>(id)]);
}

Generated generate(LanguageModel& model, std::span<const std::int32_t> prompt, const SampleOptions& options) {
  return generate_until(model, prompt, options, {});
}

Generated generate(LanguageModel& model, KvCache& cache, Sequence& sequence,
                   std::span<const std::int32_t> prompt, const SampleOptions& options) {
  return generate_until(model, cache, sequence, prompt, options, {});
}

Generated generate_until(LanguageModel& model, std::span<const std::int32_t> prompt,
                         const SampleOptions& options, const EndsText& ends) {
  if (options.reuse == Reuse::on) {
    KvCache cache({.layers = model.cache_layers()});
    Sequence sequence = cache.start();
    return generate_until(model, cache, sequence, prompt, options, ends);
  }
  check_generation(model, prompt, options);
  check_room(model, std::ssize(prompt), options.length);
  Generated written;
  while (!is_whole(written, options, ends)) {
    std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
    ids.insert(ids.end(), written.ids.begin(), written.ids.end());
    const std::int64_t length = std::ssize(ids);
    nn::Context inference;
    write_behind(
        model,
        last_row(model.hidden(inference, {.size = 1, .length = length, .ids = ids, .lengths = {length}})),
        prompt, options, written);
  }
  return written;
}

std::span<const std::int32_t> read_prompt(LanguageModel& model, KvCache& cache, Sequence& sequence,
                                          std::span<const std::int32_t> prompt) {
  for (;;) {
    const auto piece = next_piece(prompt, cache.length(sequence));
    if (piece.size() == prompt.size()) return prompt;
    model.extend(piece, cache, sequence);
    prompt = prompt.subspan(piece.size());
  }
}

Generated generate_until(LanguageModel& model, KvCache& cache, Sequence& sequence,
                         std::span<const std::int32_t> prompt, const SampleOptions& options,
                         const EndsText& ends) {
  check_generation(model, prompt, options);
  if (options.reuse == Reuse::off)
    throw InvalidArgument("generate", "options.reuse", "on, as a cache is given", "off");
  Generated written;
  if (options.length == 0) return written;
  check_room(model, cache.length(sequence) + std::ssize(prompt), options.length);
  std::vector<std::int32_t> read;
  if (options.repetition_penalty != 1.0 || !options.rules.empty()) read = cache.ids(sequence);
  read.insert(read.end(), prompt.begin(), prompt.end());
  const auto last = read_prompt(model, cache, sequence, prompt);
  Tensor row = last_row(model.extend(last, cache, sequence));
  for (;;) {
    write_behind(model, row, read, options, written);
    if (is_whole(written, options, ends)) break;
    row = last_row(model.extend(std::span<const std::int32_t>(written.ids).last(1), cache, sequence));
  }
  written.cache_bytes = cache.length(sequence) * cache.bytes_per_row();
  return written;
}

}  // namespace fovea::models
