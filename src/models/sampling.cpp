// Whole texts sampled from a language model; how a token is chosen: choices.cpp.
#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/pieces.h"
#include "fovea/core/philox.h"
#include "fovea/core/profile.h"
#include "fovea/models/generate_until.h"

namespace fovea::models {

void check_rules(const CallNames& names, const TokenRules& rules, std::int64_t vocabulary) {
  const auto refuse = [&](const char* rule, const std::string& expected, std::int64_t got) {
    throw InvalidArgument(names.function, std::string(names.options) + "rules." + rule, expected,
                          std::to_string(got));
  };
  const std::pair<const char*, std::int64_t> numbers[] = {{"no_repeat_ngram", rules.no_repeat_ngram},
                                                          {"min_length", rules.min_length},
                                                          {"min_new", rules.min_new}};
  for (const auto& [rule, number] : numbers)
    if (number < 0) refuse(rule, "0 or more", number);
  const auto is_outside = [&](std::int32_t id) { return id < 0 || id >= vocabulary; };
  const std::string inside = "an id below " + std::to_string(vocabulary);
  if (rules.forced_bos && is_outside(*rules.forced_bos)) refuse("forced_bos", inside, *rules.forced_bos);
  // Of several ids those outside are passed over.
  if (!rules.forced_eos.empty() && std::ranges::all_of(rules.forced_eos, is_outside))
    refuse("forced_eos", inside, rules.forced_eos.front());
}

void check_generation(const CallNames& names, const LanguageModel& model,
                      std::span<const std::int32_t> prompt, const SampleOptions& options) {
  check_choices(names, options);
  check_rules(names, options.rules, model.config().vocabulary);
  const auto refuse = [&](const std::string& argument, std::string expected, std::string got) {
    throw InvalidArgument(names.function, argument, std::move(expected), std::move(got));
  };
  const std::string of_options = names.options;
  if (options.length < 0) refuse(of_options + "length", "0 or more", std::to_string(options.length));
  if (options.first < 0) refuse(of_options + "first", "0 or more", std::to_string(options.first));
  if (prompt.empty()) refuse(names.prompt, "at least one token", "none");
  for (const std::int32_t id : prompt) {
    if (id < 0 || id >= model.config().vocabulary)
      refuse(names.prompt, "ids below " + std::to_string(model.config().vocabulary), std::to_string(id));
  }
}

void check_room(const CallNames& names, const LanguageModel& model, std::int64_t before, std::int64_t length,
                Reuse reuse) {
  const std::int64_t longest = reuse == Reuse::on ? model.longest_kept() : model.longest();
  // The last token is written and not read. `longest` may be the largest number, so nothing is added to it.
  if (length == 0 || (before <= longest && length - 1 <= longest - before)) return;
  throw InvalidArgument(names.function, std::string(names.options) + "length",
                        "at most " + std::to_string(std::max<std::int64_t>(longest - before + 1, 0)) +
                            " behind " + std::to_string(before) + " tokens, " + model.reads(reuse),
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

}  // namespace

std::vector<float> penalized(std::span<const float> numbers, std::span<const std::int32_t> read,
                             std::span<const std::int32_t> written, double penalty) {
  std::vector<float> changed(numbers.begin(), numbers.end());
  if (penalty == 1.0) return changed;
  for (const std::span<const std::int32_t> ids : {read, written}) {
    for (const std::int32_t id : ids) {
      const auto at = static_cast<std::size_t>(id);
      if (at >= changed.size()) continue;
      // From the unchanged number: an id that stands in the text twice is changed once.
      const double number = numbers[at];
      changed[at] = static_cast<float>(number > 0.0 ? number / penalty : number * penalty);
    }
  }
  return changed;
}

void write_next(std::span<const float> logits, std::span<const std::int32_t> read,
                const SampleOptions& options, Generated& written) {
  static constexpr ProfileLabel label{"choice of a token", ProfilePart::search};
  const ProfileSpan span(label, {.bytes = 4.0 * static_cast<double>(logits.size())});
  const double uniform = uniform_of(options.seed, options.first + std::ssize(written.ids));
  Tensor own(DType::f32, {1, std::ssize(logits)});
  for_pieces(own.count(), [&](std::int64_t begin, std::int64_t end) {
    std::copy(logits.begin() + begin, logits.begin() + end, own.data<float>() + begin);
  });
  autograd::log_softmax_rows(own);
  const std::span<const float> log_probabilities(own.data<float>(), logits.size());
  std::int32_t id = 0;
  if (options.repetition_penalty == 1.0 && options.rules.empty()) {
    id = sample(log_probabilities, options, uniform);
  } else {
    std::vector<float> ruled = penalized(logits, read, written.ids, options.repetition_penalty);
    const TextSoFar text{read, written.ids, options.length};
    apply(options.rules, text, ruled);
    const bool none = std::ranges::none_of(ruled, [](float score) { return std::isfinite(score); });
    const std::string rule =
        none ? rule_without_choice(options.rules, text,
                                   penalized(logits, read, written.ids, options.repetition_penalty))
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
  check_generation({"generate"}, model, prompt, options);
  check_room({"generate"}, model, std::ssize(prompt), options.length, Reuse::off);
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
  check_generation({"generate"}, model, prompt, options);
  if (options.reuse == Reuse::off)
    throw InvalidArgument("generate", "options.reuse", "on, as a cache is given", "off");
  Generated written;
  if (options.length == 0) return written;
  check_room({"generate"}, model, cache.length(sequence) + std::ssize(prompt), options.length);
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
