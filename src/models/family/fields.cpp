// Keys of config.json that have a meaning together only: layers, positions, ids.
#include <algorithm>
#include <cmath>
#include <string>

#include "models/family/row.h"

namespace fovea::models {

using nlohmann::json;

std::vector<Field> size_fields() {
  using C = FamilyConfig;
  return {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
          {"hidden_size", SizeField{&C::dim, most_dim}},
          {"num_hidden_layers", SizeField{&C::layers, most_layers}},
          {"num_attention_heads", SizeField{&C::heads, most_dim}},
          {"max_position_embeddings", SizeField{&C::positions, most_positions}},
          {"tie_word_embeddings", FlagField{&C::tied}}};
}

bool attends(const FamilyConfig& config) {
  return config.sees.empty() || std::any_of(config.sees.begin(), config.sees.end(),
                                            [](LayerSees s) { return s != LayerSees::state; });
}

bool positions_end(const FamilyConfig& config) {
  return attends(config) && config.positions < most_positions;
}

std::optional<std::vector<LayerSees>> listed_layer_types(ConfigReader& reader, const FamilyConfig& config) {
  const json* list = reader.find("layer_types");
  if (!list) return std::nullopt;
  if (!list->is_array() || static_cast<std::int64_t>(list->size()) != config.layers) {
    reader.refuse("layer_types", "a list of " + std::to_string(config.layers) + " kinds, one for each layer",
                  *list);
    return std::nullopt;
  }
  const bool recurs = config.recurrence != FamilyRecurrence::none;
  std::vector<LayerSees> sees;
  for (const json& kind : *list) {
    if (kind == "full_attention") {
      sees.push_back(LayerSees::all);
    } else if (!recurs && kind == "sliding_attention") {
      sees.push_back(LayerSees::window);
    } else if (recurs && kind == "linear_attention") {
      sees.push_back(LayerSees::state);
    } else {
      reader.refuse("layer_types",
                    std::string("full_attention or ") + (recurs ? "linear" : "sliding") +
                        "_attention: " + config.model_type + " has no other mixer",
                    kind);
      return std::nullopt;
    }
  }
  return sees;
}

void read_attention_bias(ConfigReader& reader, FamilyConfig& config) {
  const json* value = reader.find("attention_bias");
  if (!value) return;
  if (!value->is_boolean()) return reader.refuse("attention_bias", "true or false", *value);
  config.query_bias = config.output_bias = value->get<bool>();
}

void read_layer_types(ConfigReader& reader, FamilyConfig& config) {
  layer_types_or(reader, config, [&](std::int64_t) { return config.window.has_value(); });
}

std::int64_t read_padding(ConfigReader& reader, const FamilyConfig& config) {
  const std::int64_t own = config.pad_id.value_or(1);
  const json* value = reader.find("pad_token_id");
  return value ? reader.size("pad_token_id", *value, 0, most_vocabulary).value_or(own) : own;
}

void set_fairseq_sines(ConfigReader& reader, FamilyConfig& config, const char* dim, std::int64_t first) {
  config.sinusoidal = config.whole_wavelengths = true;
  config.learned_positions = false;
  config.first_position_row = first;
  if (config.dim < 4) reader.refuse(dim, "4 or more, for two sines", std::to_string(config.dim));
}

void read_token_ids(ConfigReader& reader, FamilyConfig& config) {
  const std::int64_t most = std::int64_t{1} << 31;
  if (const json* pad = reader.find("pad_token_id"))
    config.pad_id = reader.size("pad_token_id", *pad, -1, most);
  const json* eos = reader.find("eos_token_id");
  if (!eos) return;
  config.eos_ids.clear();
  for (const json& id : eos->is_array() ? *eos : json::array({*eos})) {
    if (const auto read = reader.size("eos_token_id", id, -1, most)) config.eos_ids.push_back(*read);
  }
}

namespace {

// The labels by their numbers: an object from "0", "1", ... to names.
std::vector<std::string> labels_of(ConfigReader& reader, const json& names) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; names.is_object() && i < names.size(); ++i) {
    const auto found = names.find(std::to_string(i));
    if (found == names.end() || !found->is_string()) break;
    labels.push_back(found->get<std::string>());
  }
  if (labels.empty() || labels.size() != names.size()) {
    reader.refuse("id2label", "names of the labels 0, 1, 2, ...", names);
    labels.clear();
  }
  return labels;
}

std::optional<ScoreFunction> function_of_problem(ConfigReader& reader, const json& problem) {
  if (problem == "regression") return ScoreFunction::none;
  if (problem == "multi_label_classification") return ScoreFunction::sigmoid;
  if (problem == "single_label_classification") return std::nullopt;  // goes by the number of labels
  reader.refuse("problem_type", "regression, single_label_classification or multi_label_classification",
                problem);
  return std::nullopt;
}

// A class of torch, such as "torch.nn.modules.linear.Identity".
std::optional<ScoreFunction> function_of_class(const json* name) {
  if (!name || !name->is_string()) return std::nullopt;
  const auto path = name->get<std::string>();
  const std::string last = path.substr(path.rfind('.') + 1);
  if (last == "Identity") return ScoreFunction::none;
  if (last == "Sigmoid") return ScoreFunction::sigmoid;
  return std::nullopt;
}

// Today's key is in an object, and that of the releases before 4 beside the others.
void read_pair_score_function(ConfigReader& reader, FamilyConfig& config) {
  const json* object = reader.find("sentence_transformers");
  const json* before = reader.find("sbert_ce_default_activation_function");
  const auto today = object && object->is_object() ? object->find("activation_fn") : json::const_iterator();
  const bool is_today = object && object->is_object() && today != object->end() && !today->is_null();
  const json* name = is_today ? &*today : before;
  config.pair_score_function = function_of_class(name);
  if (name && !config.pair_score_function)
    reader.refuse(is_today ? "sentence_transformers.activation_fn" : "sbert_ce_default_activation_function",
                  "Identity or Sigmoid of torch.nn", *name);
}

}  // namespace

void read_labels(ConfigReader& reader, FamilyConfig& config) {
  if (config.head != FamilyHead::sequence_labels && config.head != FamilyHead::token_labels) return;
  std::optional<std::int64_t> count;
  for (const char* key : {"num_labels", "_num_labels"}) {
    if (const json* value = reader.find(key)) count = reader.size(key, *value, 1, most_dim);
  }
  const json* names = reader.find("id2label");
  if (names) config.labels = labels_of(reader, *names);
  if (names && count && *count != std::ssize(config.labels))
    reader.refuse("num_labels", "the number of labels in id2label", std::to_string(*count));
  for (std::int64_t i = 0; !names && i < count.value_or(2); ++i)
    config.labels.push_back("LABEL_" + std::to_string(i));
  const bool one = config.labels.size() == 1;
  config.score_function = one ? ScoreFunction::sigmoid : ScoreFunction::softmax;
  if (const json* problem = reader.find("problem_type"))
    config.score_function = function_of_problem(reader, *problem).value_or(config.score_function);
  read_pair_score_function(reader, config);
}

namespace {

// `share` is that of the family; nothing: its heads are rotated as a whole.
void read_rotary_share(ConfigReader& reader, const std::string& key, const json& value,
                       std::optional<double>& share) {
  if (!share) {
    if (value != 1) reader.refuse(key, "1: all elements of a head are rotated", value);
  } else if (value.is_number() && value > 0 && value <= 1) {
    share = value.get<double>();
  } else {
    reader.refuse(key, "a number above 0 and at most 1", value);
  }
}

// Which of two lists divides the frequencies goes by the length of a text. `in` is the path, with its dot.
LongRopeScaling longrope_of(ConfigReader& reader, const FamilyConfig& config, const std::string& in,
                            const json& object, std::int64_t original) {
  LongRopeScaling longrope{.original_max_positions = original};
  const auto value = [&](const char* key) { return object.contains(key) ? object[key] : json(); };
  for (const auto& [key, list] :
       {std::pair{"short_factor", &longrope.short_factors}, {"long_factor", &longrope.long_factors}}) {
    const json factors = value(key);
    if (!factors.is_array()) reader.refuse(in + key, "a list of numbers above 0", factors);
    for (const json& factor : factors.is_array() ? factors : json::array()) {
      if (const auto read = reader.positive(in + key, factor)) list->push_back(*read);
    }
  }
  double ratio = static_cast<double>(config.positions) / static_cast<double>(original);
  if (const json factor = value("factor"); !factor.is_null())
    ratio = reader.positive(in + "factor", factor).value_or(ratio);
  if (ratio > 1.0)
    longrope.attention_factor = std::sqrt(1.0 + std::log(ratio) / std::log(static_cast<double>(original)));
  if (const json given = value("attention_factor"); !given.is_null())
    longrope.attention_factor = reader.positive(in + "attention_factor", given).value_or(1.0);
  return longrope;
}

// One object of rope_parameters, or an old rope_scaling. `place` is its path.
void read_rope_object(ConfigReader& reader, const FamilyConfig& config, const std::string& place,
                      const json& object, Rope& rope, std::optional<double>& rotary_share) {
  if (!object.is_object()) return reader.refuse(place, "an object", object);
  const std::string in = place + ".";
  const auto value = [&](const char* key) -> const json* {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  };
  const auto number = [&](const char* key, double& to) {
    if (const json* found = value(key)) {
      if (const auto read = reader.positive(in + key, *found)) to = *read;
    }
  };
  const auto factor = [&](double& to) {
    if (value("factor"))
      number("factor", to);
    else
      reader.refuse(in + "factor", "a number of at least 1", "none");
  };
  const auto refuse_others = [&](std::vector<std::string_view> known) {
    for (const char* key : {"rope_type", "type", "rope_theta", "partial_rotary_factor"}) known.push_back(key);
    // How the axes of an image share the frequencies. The three positions of a text's token are equal.
    if (config.rotary_share) known.insert(known.end(), {"mrope_section", "mrope_interleaved"});
    reader.refuse_others(object, in, known);
  };
  std::int64_t original = config.rope_original.value_or(config.positions);
  const json* found = config.rope_original ? nullptr : value("original_max_position_embeddings");
  if (found) {
    if (const auto read = reader.size(in + "original_max_position_embeddings", *found, 1, most_positions))
      original = *read;
  }
  number("rope_theta", rope.base);
  if (const json* partial = value("partial_rotary_factor"))
    read_rotary_share(reader, in + "partial_rotary_factor", *partial, rotary_share);
  const json* named = value("rope_type") ? value("rope_type") : value("type");
  json type = named ? *named : json("default");
  // The names that Phi-3 had for it, of which transformers still takes both in this family.
  if (config.rope_original && (type == "su" || type == "yarn")) type = "longrope";
  if (type == "default") {
    rope.scaling = NoScaling{};
    refuse_others({});
  } else if (type == "linear") {
    LinearScaling linear;
    factor(linear.factor);
    rope.scaling = linear;
    refuse_others({"factor"});
  } else if (type == "dynamic") {
    DynamicNtkScaling dynamic{.original_max_positions = config.positions};
    factor(dynamic.factor);
    rope.scaling = dynamic;
    refuse_others({"factor"});
  } else if (type == "longrope") {
    rope.scaling = longrope_of(reader, config, in, object, original);
    refuse_others(
        {"short_factor", "long_factor", "factor", "attention_factor", "original_max_position_embeddings"});
  } else if (type == "llama3") {
    Llama3Scaling llama3{.original_max_positions = original};
    factor(llama3.factor);
    number("low_freq_factor", llama3.low_freq_factor);
    number("high_freq_factor", llama3.high_freq_factor);
    rope.scaling = llama3;
    refuse_others({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  } else if (type == "yarn") {
    YarnScaling yarn{.original_max_positions = original};
    factor(yarn.factor);
    number("beta_fast", yarn.beta_fast);
    number("beta_slow", yarn.beta_slow);
    if (const json* found = value("attention_factor"))
      yarn.attention_factor = reader.positive(in + "attention_factor", *found);
    // transformers reads these two together alone.
    const json *mscale = value("mscale"), *all = value("mscale_all_dim");
    if (mscale && all && !yarn.attention_factor)
      reader.refuse(in + "mscale_all_dim", "none beside mscale", *all);
    if (const json* truncate = value("truncate")) {
      if (!truncate->is_boolean()) reader.refuse(in + "truncate", "true or false", *truncate);
      if (*truncate == false) yarn.ends = YarnScaling::Ends::exact;
    }
    rope.scaling = yarn;
    refuse_others({"factor", "beta_fast", "beta_slow", "attention_factor", "truncate", "mscale",
                   "mscale_all_dim", "original_max_position_embeddings"});
  } else {
    reader.refuse(in + "rope_type", "default, linear, dynamic, yarn, llama3 or longrope", type);
  }
}

// The older keys beside rope_parameters must not say something else.
void check_agreement(ConfigReader& reader, const char* key, const json* found, double base, bool parameters) {
  if (found && parameters && found->is_number() && found->get<double>() != base)
    reader.refuse(key, "the rope_theta of rope_parameters, if it is there at all", *found);
}

void read_theta(ConfigReader& reader, const char* key, Rope& rope) {
  if (const json* theta = reader.find(key)) {
    if (const auto read = reader.positive(key, *theta)) rope.base = *read;
  }
}

void read_partial(ConfigReader& reader, FamilyConfig& config) {
  if (const json* partial = reader.find("partial_rotary_factor"))
    read_rotary_share(reader, "partial_rotary_factor", *partial, config.rotary_share);
}

}  // namespace

void read_rope(ConfigReader& reader, FamilyConfig& config) {
  read_partial(reader, config);
  const json* parameters = reader.find("rope_parameters");
  read_theta(reader, "rope_theta", config.rope);
  const json* scaling = reader.find("rope_scaling");
  if (scaling) read_rope_object(reader, config, "rope_scaling", *scaling, config.rope, config.rotary_share);
  if (!parameters) return;
  const Rope older = config.rope;
  read_rope_object(reader, config, "rope_parameters", *parameters, config.rope, config.rotary_share);
  check_agreement(reader, "rope_theta", reader.find("rope_theta"), config.rope.base, true);
  if (scaling && !(older == config.rope))
    reader.refuse("rope_scaling", "the values of rope_parameters, if it is there at all", *scaling);
}

void read_neox_rope(ConfigReader& reader, FamilyConfig& config) {
  if (const json* share = reader.find("rotary_pct"))
    read_rotary_share(reader, "rotary_pct", *share, config.rotary_share);
  read_theta(reader, "rotary_emb_base", config.rope);
  const json* parameters = reader.find("rope_parameters");
  if (!parameters) {  // transformers does not read the flat keys of other families
    const json *theta = reader.find("rope_theta"), *share = reader.find("partial_rotary_factor");
    if (theta && *theta != config.rope.base)
      reader.refuse("rope_theta", "the value of rotary_emb_base, if it is there at all", *theta);
    if (share && *share != *config.rotary_share)
      reader.refuse("partial_rotary_factor", "the value of rotary_pct, if it is there at all", *share);
  }
  read_rope(reader, config);
  check_agreement(reader, "rotary_emb_base", reader.find("rotary_emb_base"), config.rope.base,
                  parameters != nullptr);
}

void read_rope_by_layer(ConfigReader& reader, FamilyConfig& config) {
  read_partial(reader, config);
  const json* parameters = reader.find("rope_parameters");
  const bool decoder = !config.model_type.starts_with("modernbert");
  const char* full_key = decoder ? "rope_theta" : "global_rope_theta";
  const char* window_key = decoder ? "rope_local_base_freq" : "local_rope_theta";
  read_theta(reader, full_key, config.rope);
  read_theta(reader, window_key, *config.window_rope);
  if (const json* scaling = reader.find("rope_scaling")) {
    if (!decoder)
      reader.refuse("rope_scaling", "none", *scaling);
    else
      read_rope_object(reader, config, "rope_scaling", *scaling, config.rope, config.rotary_share);
  }
  if (!parameters) return;
  if (!parameters->is_object()) return reader.refuse("rope_parameters", "an object", *parameters);
  reader.refuse_others(*parameters, "rope_parameters.", {"full_attention", "sliding_attention"});
  for (const auto& [key, rope, older] : {std::tuple{"full_attention", &config.rope, full_key},
                                         {"sliding_attention", &*config.window_rope, window_key}}) {
    const auto found = parameters->find(key);
    if (found == parameters->end() || found->is_null()) continue;
    read_rope_object(reader, config, std::string("rope_parameters.") + key, *found, *rope,
                     config.rotary_share);
    check_agreement(reader, older, reader.find(older), rope->base, true);
  }
}

}  // namespace fovea::models
