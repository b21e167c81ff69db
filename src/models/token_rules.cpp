#include "fovea/models/token_rules.h"

#include <algorithm>
#include <limits>

namespace fovea::models {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void forbid(std::int32_t id, std::span<float> scores) {
  if (id >= 0 && static_cast<std::size_t>(id) < scores.size()) scores[static_cast<std::size_t>(id)] = kNever;
}

void forbid(std::span<const std::int32_t> ids, std::span<float> scores) {
  for (const std::int32_t id : ids) forbid(id, scores);
}

void force(std::span<const std::int32_t> ids, std::span<float> scores) {
  std::ranges::fill(scores, kNever);
  for (const std::int32_t id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < scores.size()) scores[static_cast<std::size_t>(id)] = 0.0f;
  }
}

// The ids that stood behind the last n - 1 ids before.
void forbid_repeated(std::size_t n, std::span<const std::int32_t> text, std::span<float> scores) {
  if (text.size() < n) return;
  const std::span<const std::int32_t> last = text.last(n - 1);
  for (std::size_t i = 0; i + n <= text.size(); ++i) {
    if (std::ranges::equal(text.subspan(i, n - 1), last)) forbid(text[i + n - 1], scores);
  }
}

}  // namespace

bool TokenRules::empty() const {
  return no_repeat_ngram == 0 && min_length == 0 && min_new == 0 && !forced_bos && forced_eos.empty() &&
         suppress.empty() && begin_suppress.empty() && bad_words.empty();
}

namespace {

void forbid_bad_words(const TokenRules& rules, std::span<const std::int32_t> text, std::span<float> scores) {
  for (const std::vector<std::int32_t>& word : rules.bad_words) {
    // An id that ends the text may stand there alone, whatever the file says.
    const bool is_end = word.size() == 1 && std::ranges::find(rules.ends, word[0]) != rules.ends.end();
    if (word.empty() || is_end || word.size() - 1 > text.size()) continue;
    const std::span<const std::int32_t> before = std::span(word).first(word.size() - 1);
    if (std::ranges::equal(before, std::span(text).last(before.size()))) forbid(word.back(), scores);
  }
}

// Calls `after` with the name of each rule, as generation_config.json spells it, once it has been applied.
template <class After>
void apply_each(const TokenRules& rules, const TextSoFar& so_far, std::span<float> scores,
                const After& after) {
  std::vector<std::int32_t> text(so_far.prompt.begin(), so_far.prompt.end());
  text.insert(text.end(), so_far.written.begin(), so_far.written.end());
  const auto written = static_cast<std::int64_t>(so_far.written.size()),
             size = static_cast<std::int64_t>(text.size());
  if (rules.no_repeat_ngram > 0)
    forbid_repeated(static_cast<std::size_t>(rules.no_repeat_ngram), text, scores);
  after("no_repeat_ngram_size");
  forbid_bad_words(rules, text, scores);
  after("bad_words_ids");
  if (size < rules.min_length || written < rules.min_new) forbid(rules.ends, scores);
  after(size < rules.min_length ? "min_length" : "min_new_tokens");
  if (rules.forced_bos && size == 1) force({&*rules.forced_bos, 1}, scores);
  after("forced_bos_token_id");
  if (!rules.forced_eos.empty() && written + 1 == so_far.length) force(rules.forced_eos, scores);
  after("forced_eos_token_id");
  forbid(rules.suppress, scores);
  after("suppress_tokens");
  const std::int64_t first = rules.forced_bos && so_far.prompt.size() <= 1 ? 1 : 0;
  if (written == first) forbid(rules.begin_suppress, scores);
  after("begin_suppress_tokens");
}

bool allows_none(std::span<const float> scores) {
  return std::ranges::none_of(scores, [](float score) { return score > kNever; });
}

}  // namespace

void apply(const TokenRules& rules, const TextSoFar& so_far, std::span<float> scores) {
  if (!rules.empty()) apply_each(rules, so_far, scores, [](const char*) {});
}

std::string rule_without_choice(const TokenRules& rules, const TextSoFar& so_far,
                                std::span<const float> scores) {
  if (allows_none(scores)) return "";
  std::vector<float> ruled(scores.begin(), scores.end());
  std::string found;
  apply_each(rules, so_far, ruled, [&](const char* name) {
    // A forced id comes back behind a rule that has left none.
    if (!allows_none(ruled))
      found.clear();
    else if (found.empty())
      found = name;
  });
  return found;
}

}  // namespace fovea::models
