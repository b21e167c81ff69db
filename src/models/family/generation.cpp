// What a folder says about generation.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/models/model_folder.h"
#include "models/configs.h"
#include "models/family/row.h"

namespace fovea::models {
namespace {

using nlohmann::json;

// generation_config.json, and behind it config.json.
class Generation {
 public:
  Generation(const std::filesystem::path& folder, const std::string& config)
      : path_(folder / "generation_config.json"),
        config_(files::parse_json_object(config_path(folder).string(), config, config_depth)) {
    constexpr std::size_t longest = std::size_t{1} << 20;
    std::error_code error;
    is_there_ = std::filesystem::exists(path_, error);
    if (is_there_) generation_ = files::read_json_object(path_, longest, config_depth);
  }

  bool is_there() const { return is_there_; }
  /// nullptr for a key that is absent or null in both.
  const json* value(const char* key) const {
    for (const json* object : {&generation_, &config_}) {
      const auto found = object->find(key);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  std::optional<std::int32_t> id(const char* key) const {
    const json* id = value(key);
    if (!id || !id->is_number_integer() || *id < 0 || *id > most_vocabulary) return std::nullopt;
    return id->get<std::int32_t>();
  }
  /// A number of generation_config.json alone, from `least` to `most`. Throws FileError for another one.
  std::optional<double> number(const char* key, double least, double most) const {
    const auto found = generation_.find(key);
    if (found == generation_.end() || found->is_null()) return std::nullopt;
    if (!found->is_number() || found->get<double>() < least || found->get<double>() > most)
      throw FileError(path_.string(), -1,
                      std::string(key) + ": expected a number from " + json(least).dump() + " to " +
                          json(most).dump() + ", got " + shown(*found));
    return found->get<double>();
  }
  std::optional<std::int64_t> count(const char* key) const {
    const auto read = number(key, 0, 1 << 30);
    return read ? std::optional(static_cast<std::int64_t>(*read)) : std::nullopt;
  }

 private:
  std::filesystem::path path_;
  bool is_there_ = false;
  json generation_ = json::object(), config_;
};

// What changes texts and is not done here, and the values with which it does not change them.
std::vector<std::string> not_applied(const Generation& from) {
  const std::pair<const char*, json> neutral[] = {{"no_repeat_ngram_size", 0},
                                                  {"bad_words_ids", json::array()},
                                                  {"suppress_tokens", json::array()},
                                                  {"begin_suppress_tokens", json::array()},
                                                  {"forced_bos_token_id", nullptr},
                                                  {"forced_eos_token_id", nullptr},
                                                  {"min_length", 0},
                                                  {"min_new_tokens", 0}};
  std::vector<std::string> keys;
  for (const auto& [key, none] : neutral) {
    if (const json* set = from.value(key); set && *set != none)
      keys.push_back(std::string(key) + " = " + shown(*set));
  }
  return keys;
}

}  // namespace

GenerationDefaults ModelFolder::generation() const {
  const Generation from(path_, config_);
  GenerationDefaults defaults;
  if (const json* eos = from.value("eos_token_id")) {
    for (const json& id : eos->is_array() ? *eos : json::array({*eos})) {
      if (id.is_number_integer() && id >= 0 && id <= most_vocabulary)
        defaults.stop_ids.push_back(id.get<std::int32_t>());
    }
  }
  defaults.start_id = from.id("decoder_start_token_id");
  if (!defaults.start_id) defaults.start_id = from.id("bos_token_id");
  defaults.not_applied = not_applied(from);
  if (!from.is_there()) return defaults;
  constexpr double most = 1e9, above_zero = 1e-9;
  SampleOptions sample;
  const json* draws = from.value("do_sample");
  const bool greedy = !draws || *draws != true;
  sample.temperature = 0.0;
  if (!greedy) {  // otherwise these have no effect, and files hold any values
    sample.temperature = from.number("temperature", 0.0, most).value_or(1.0);
    // transformers draws from the best 50 where the file says nothing else.
    sample.top_k = from.count("top_k").value_or(50);
    sample.top_p = from.number("top_p", above_zero, 1.0).value_or(1.0);
    sample.min_p = from.number("min_p", 0.0, 1.0).value_or(0.0);
  }
  sample.repetition_penalty = from.number("repetition_penalty", above_zero, most).value_or(1.0);
  sample.length = from.count("max_new_tokens").value_or(sample.length);
  defaults.sample = sample;
  defaults.beams = from.count("num_beams").value_or(1);
  return defaults;
}

}  // namespace fovea::models
