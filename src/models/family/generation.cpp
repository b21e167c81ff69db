// What a folder says about generation.
#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/models/model_folder.h"
#include "models/configs.h"
#include "models/family/row.h"

namespace fovea::models {
namespace {

using nlohmann::json;

constexpr double kMost = 1e9, kAboveZero = 1e-9;
constexpr const char* kTasks = "task_specific_params";

// generation_config.json, and behind it config.json. A task of config.json counts before both.
class Generation {
 public:
  Generation(const std::filesystem::path& folder, const std::string& config)
      : path_(folder / "generation_config.json"),
        config_path_(config_path(folder)),
        config_(files::parse_json_object(config_path_.string(), config, config_depth)) {
    constexpr std::size_t longest = std::size_t{1} << 20;
    std::error_code error;
    is_there_ = std::filesystem::exists(path_, error);
    if (is_there_) generation_ = files::read_json_object(path_, longest, config_depth);
  }

  bool is_there() const { return is_there_; }
  /// generation_config.json; empty where there is none.
  const json& of_file() const { return generation_; }
  std::string file() const { return (is_there_ ? path_ : config_path_).filename().string(); }
  bool task_says(const char* key) const { return task_.contains(key) && !task_[key].is_null(); }
  std::vector<std::string> tasks() const {
    std::vector<std::string> names;
    const auto found = config_.find(kTasks);
    if (found == config_.end() || !found->is_object()) return names;
    for (const auto& [name, values] : found->items()) {
      if (values.is_object()) names.push_back(name);
    }
    return names;
  }
  void use_task(const std::string& name) {
    std::string names;
    bool is_there = false;
    for (const std::string& task : tasks()) {
      if (task == name) task_ = config_[kTasks][name], is_there = true;
      names += (names.empty() ? "" : ", ") + task;
    }
    if (!is_there)
      throw FileError(config_path_.string(), -1,
                      std::string(kTasks) + ": expected the task '" + name + "', got " +
                          (names.empty() ? "none" : names));
  }

  /// nullptr for a key that is absent or null in all.
  const json* value(const char* key) const { return found_in({&task_, &generation_, &config_}, key); }
  /// As transformers takes what changes texts: config.json counts where there is no generation_config.json.
  const json* rule(const char* key) const {
    return found_in({&task_, is_there_ ? &generation_ : &config_}, key);
  }
  std::optional<std::int32_t> id(const char* key) const {
    const json* id = value(key);
    if (!id || !is_id(*id)) return std::nullopt;
    return id->get<std::int32_t>();
  }
  /// A number of `rule`, from `least` to `most`. Throws FileError for another one.
  std::optional<double> number(const char* key, double least, double most) const {
    const json* found = rule(key);
    if (!found) return std::nullopt;
    if (!found->is_number() || found->get<double>() < least || found->get<double>() > most)
      refuse(key, "a number from " + json(least).dump() + " to " + json(most).dump(), *found);
    return found->get<double>();
  }
  /// A whole number of `rule`, from `least` to 2^30. Throws FileError for another value.
  std::optional<std::int64_t> count(const char* key, std::int64_t least = 0) const {
    const json* found = rule(key);
    if (!found) return std::nullopt;
    const std::optional<std::int64_t> read = files::whole_number(*found, least, 1 << 30);
    if (!read) refuse(key, "a whole number from " + std::to_string(least) + " to 2^30", *found);
    return read;
  }
  /// One id, or a list of ids; none for an absent key.
  std::vector<std::int32_t> ids(const char* key) const {
    const json* found = rule(key);
    return found ? ids_of(key, *found) : std::vector<std::int32_t>();
  }
  std::vector<std::vector<std::int32_t>> lists(const char* key) const {
    std::vector<std::vector<std::int32_t>> all;
    const json* found = rule(key);
    if (!found) return all;
    if (!found->is_array()) refuse(key, "lists of ids", *found);
    for (const json& list : *found) {
      if (!list.is_array() || list.empty()) refuse(key, "lists of ids", *found);
      all.push_back(ids_of(key, list));
    }
    return all;
  }
  [[noreturn]] void refuse(const char* key, const std::string& expected, const json& got) const {
    const bool of_file = is_there_ && !task_.contains(key) && generation_.contains(key);
    throw FileError((of_file ? path_ : config_path_).string(), -1,
                    std::string(key) + ": expected " + expected + ", got " + shown(got));
  }

 private:
  static bool is_id(const json& id) { return id.is_number_integer() && id >= 0 && id <= most_vocabulary; }
  static const json* found_in(std::initializer_list<const json*> objects, const char* key) {
    for (const json* object : objects) {
      const auto found = object->find(key);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  std::vector<std::int32_t> ids_of(const char* key, const json& value) const {
    std::vector<std::int32_t> ids;
    for (const json& id : value.is_array() ? value : json::array({value})) {
      if (!is_id(id)) refuse(key, "ids from 0 to " + std::to_string(most_vocabulary), value);
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }

  std::filesystem::path path_, config_path_;
  bool is_there_ = false;
  json task_ = json::object(), generation_ = json::object(), config_;
};

// Keys of generation_config.json that are applied, or that change no text.
constexpr std::string_view known_keys[] = {
    // applied
    "bos_token_id", "eos_token_id", "decoder_start_token_id", "do_sample", "temperature", "top_k", "top_p",
    "min_p", "repetition_penalty", "num_beams", "length_penalty", "early_stopping", "max_length",
    "max_new_tokens", "min_length", "min_new_tokens", "no_repeat_ngram_size", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids",
    // of the file, of padding, of what is returned, and of how it is computed
    "transformers_version", "_from_model_config", "_commit_hash", "_name_or_path", "trust_remote_code",
    "pad_token_id", "use_cache", "cache_implementation", "cache_config", "return_legacy_cache",
    "compile_config", "disable_compile", "prefill_chunk_size", "low_memory", "return_dict_in_generate",
    "output_scores", "output_logits", "output_attentions", "output_hidden_states", "num_return_sequences",
    "remove_invalid_values", "max_time", "generation_kwargs",
    // drafts, which change no text
    "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "prompt_lookup_num_tokens",
    "max_matching_ngram_size"};

// What changes texts and is not done here, and the values with which it does not change them.
std::vector<std::string> not_applied(const Generation& from) {
  const std::pair<const char*, json> neutral[] = {{"encoder_no_repeat_ngram_size", 0},
                                                  {"encoder_repetition_penalty", 1.0},
                                                  {"diversity_penalty", 0.0},
                                                  {"num_beam_groups", 1},
                                                  {"sequence_bias", json::array()},
                                                  {"exponential_decay_length_penalty", json::array()},
                                                  {"guidance_scale", 1.0},
                                                  {"typical_p", 1.0},
                                                  {"epsilon_cutoff", 0.0},
                                                  {"eta_cutoff", 0.0},
                                                  {"stop_strings", json::array()},
                                                  {"renormalize_logits", false},
                                                  {"penalty_alpha", 0.0},
                                                  {"dola_layers", nullptr},
                                                  {"watermarking_config", nullptr},
                                                  {"constraints", nullptr},
                                                  {"force_words_ids", nullptr},
                                                  {"token_healing", false},
                                                  {"top_h", nullptr}};
  std::vector<std::string> keys;
  const auto name = [&](const std::string& key, const json& value) {
    keys.push_back(excerpt(key) + " = " + shown(value) + " of " + from.file());
  };
  for (const auto& [key, none] : neutral) {
    if (const json* set = from.rule(key); set && *set != none) name(key, *set);
  }
  for (const auto& [key, value] : from.of_file().items()) {
    const bool listed = std::ranges::any_of(neutral, [&](const auto& one) { return key == one.first; });
    if (!listed && !value.is_null() && std::ranges::find(known_keys, key) == std::end(known_keys))
      name(key, value);
  }
  return keys;
}

TokenRules rules_of(const Generation& from, const std::vector<std::int32_t>& stop_ids) {
  TokenRules rules{.no_repeat_ngram = from.count("no_repeat_ngram_size").value_or(0),
                   .min_length = from.count("min_length").value_or(0),
                   .min_new = from.count("min_new_tokens").value_or(0),
                   .ends = stop_ids};
  for (const std::int32_t id : from.ids("forced_bos_token_id")) rules.forced_bos = id;
  rules.forced_eos = from.ids("forced_eos_token_id");
  rules.suppress = from.ids("suppress_tokens");
  rules.begin_suppress = from.ids("begin_suppress_tokens");
  rules.bad_words = from.lists("bad_words_ids");
  if (from.rule("min_new_tokens")) rules.min_length = 0;  // it replaces the other one, 0 too
  return rules;
}

EarlyStopping early_stopping_of(const Generation& from) {
  const json* said = from.rule("early_stopping");
  if (!said || *said == false) return EarlyStopping::off;
  if (*said == true) return EarlyStopping::on;
  if (*said == "never") return EarlyStopping::never;
  from.refuse("early_stopping", "true, false or \"never\"", *said);
}

GenerationDefaults defaults_of(const Generation& from) {
  GenerationDefaults defaults;
  defaults.file = from.file();
  if (const json* eos = from.value("eos_token_id")) {
    for (const json& id : eos->is_array() ? *eos : json::array({*eos})) {
      if (!id.is_number_integer()) from.refuse("eos_token_id", "an id, or a list of ids", *eos);
      if (id >= 0 && id <= most_vocabulary) defaults.stop_ids.push_back(id.get<std::int32_t>());
    }
  }
  defaults.start_id = from.id("decoder_start_token_id");
  if (!defaults.start_id) defaults.start_id = from.id("bos_token_id");
  defaults.not_applied = not_applied(from);
  defaults.rules = rules_of(from, defaults.stop_ids);
  const json* draws = from.rule("do_sample");
  if (draws && !draws->is_boolean()) from.refuse("do_sample", "true or false", *draws);
  for (const char* key : {"temperature", "top_k", "top_p", "min_p"}) {
    if (const json* set = from.rule(key); set && !set->is_number()) from.refuse(key, "a number", *set);
  }
  if (draws && *draws == true) {
    // Without do_sample these have no effect, and files hold any numbers.
    defaults.draws = {.temperature = from.number("temperature", 0.0, kMost).value_or(1.0),
                      // transformers draws from the best 50 where the file says nothing else.
                      .top_k = from.count("top_k").value_or(50),
                      .top_p = from.number("top_p", kAboveZero, 1.0).value_or(1.0),
                      .min_p = from.number("min_p", 0.0, 1.0).value_or(0.0)};
  }
  defaults.beams = from.count("num_beams", 1).value_or(1);
  defaults.length_penalty = from.number("length_penalty", -kMost, kMost).value_or(1.0);
  defaults.early_stopping = early_stopping_of(from);
  defaults.repetition_penalty = from.number("repetition_penalty", kAboveZero, kMost).value_or(1.0);
  defaults.max_new = from.count("max_new_tokens");
  defaults.max_length = from.count("max_length");
  // A task's max_length counts before the max_new_tokens of generation_config.json.
  if (from.task_says("max_length") && !from.task_says("max_new_tokens")) defaults.max_new.reset();
  if (const json* prefix = from.rule("prefix"); prefix && prefix->is_string())
    defaults.prefix = prefix->get<std::string>();
  if (!from.is_there()) return defaults;
  SampleOptions sample;
  sample.temperature = 0.0;
  if (defaults.draws) {
    sample.temperature = defaults.draws->temperature;
    sample.top_k = defaults.draws->top_k;
    sample.top_p = defaults.draws->top_p;
    sample.min_p = defaults.draws->min_p;
  }
  sample.repetition_penalty = defaults.repetition_penalty;
  sample.length = defaults.max_new.value_or(sample.length);
  defaults.sample = sample;
  return defaults;
}

}  // namespace

GenerationDefaults ModelFolder::generation() const {
  return defaults_of(Generation(path_, config_));
}

GenerationDefaults ModelFolder::generation_for(const std::string& task) const {
  Generation from(path_, config_);
  from.use_task(task);
  return defaults_of(from);
}

namespace {

std::int32_t start_of(const std::filesystem::path& folder, const GenerationDefaults& defaults) {
  if (!defaults.start_id)
    throw FileError(folder.string(), -1,
                    "does not say which id the decoder reads first: decoder_start_token_id");
  return *defaults.start_id;
}

}  // namespace

std::int32_t ModelFolder::decoder_start() const {
  return start_of(path_, generation());
}

TranslatorBeams ModelFolder::translator_beams(const GenerationDefaults& defaults) const {
  if (defaults.stop_ids.empty())
    throw FileError(path_.string(), -1, "does not say which id ends a text: eos_token_id");
  std::optional<std::int64_t> most = defaults.max_new;
  // max_length counts the id that the decoder reads first.
  if (!most && defaults.max_length) most = *defaults.max_length - 1;
  // One field after another: GCC 12 destroys the members of a nested braced initialiser twice when a later
  // initialiser throws.
  TranslatorBeams beams;
  beams.start = start_of(path_, defaults);
  beams.length_of = output_length(most, 2.0, read_family(config_).config.positions);
  beams.search = {.beams = defaults.beams,
                  .length_penalty = defaults.length_penalty,
                  .early_stopping = defaults.early_stopping,
                  .repetition_penalty = defaults.repetition_penalty,
                  .rules = defaults.rules,
                  .draws = defaults.draws,
                  .stop = defaults.stop_ids};
  return beams;
}

std::vector<std::string> ModelFolder::tasks() const {
  return Generation(path_, config_).tasks();
}

}  // namespace fovea::models
