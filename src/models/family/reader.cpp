// Reads a config.json by the row of its family.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "models/configs.h"
#include "models/family/row.h"

namespace fovea::models {

using nlohmann::json;

std::string shown(const json& value) {
  return excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

const json* ConfigReader::find(std::initializer_list<std::string_view> keys) {
  const json* first = nullptr;
  for (const std::string_view key : keys) {
    known_.emplace(key);
    const auto found = object_.find(key);
    if (!first && found != object_.end() && !found->is_null()) first = &*found;
  }
  return first;
}

void ConfigReader::refuse(std::string key, std::string expected, std::string got) {
  problems_.push_back({std::move(key), std::move(expected), std::move(got)});
}

void ConfigReader::refuse(std::string key, std::string expected, const json& got) {
  refuse(std::move(key), std::move(expected), shown(got));
}

void ConfigReader::refuse_others(const json& object, const std::string& place,
                                 const std::vector<std::string_view>& known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse(place + excerpt(key), "nothing: this key has no meaning here that is known", value);
  }
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!known_.contains(key)) keys.push_back(key);
  }
  return keys;
}

std::optional<std::int64_t> ConfigReader::size(const std::string& key, const json& value, std::int64_t least,
                                               std::int64_t most) {
  if (const std::optional<std::int64_t> size = files::whole_number(value, least, most)) return size;
  refuse(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most), value);
  return std::nullopt;
}

std::optional<double> ConfigReader::positive(const std::string& key, const json& value) {
  constexpr double largest = 1e30;
  if (value.is_number() && value.get<double>() > 0.0 && value.get<double>() <= largest)
    return value.get<double>();
  refuse(key, "a number above 0", value);
  return std::nullopt;
}

namespace {

using autograd::Activation;

// The names of transformers' ACT2FN that have one of our activations.
constexpr std::array<std::pair<std::string_view, Activation>, 13> activations{
    {{"relu", Activation::relu},
     {"tanh", Activation::tanh},
     {"gelu", Activation::gelu},
     {"gelu_python", Activation::gelu},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_python_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"gelu_accurate", Activation::gelu_tanh},
     {"silu", Activation::silu},
     {"swish", Activation::silu},
     {"quick_gelu", Activation::quick_gelu},
     {"relu2", Activation::relu_squared}}};

// Keys that any config may have, and that change nothing of what a model computes from ids.
constexpr std::string_view without_effect[] = {
    // of the file and its writer
    "_name_or_path", "_commit_hash", "_from_model_config", "architectures", "auto_map",
    "transformers_version", "transformers.js_config", "model_type", "dtype", "torch_dtype", "unsloth_fixed",
    "unsloth_version",
    // which results are returned, and how they are computed
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "use_cache", "torchscript",
    "_attn_implementation", "attn_implementation", "_attn_implementation_autoset", "chunk_size_feed_forward",
    "gradient_checkpointing", "use_bfloat16", "pretraining_tp", "cache_implementation", "output_past",
    // training
    "initializer_range", "initializer_factor", "init_std", "initializer_cutoff_factor", "dropout",
    "attention_dropout", "activation_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "residual_dropout", "embedding_dropout", "mlp_dropout",
    "classifier_dropout", "qa_dropout", "seq_classif_dropout", "summary_first_dropout", "layerdrop",
    "encoder_layerdrop", "decoder_layerdrop", "label_smoothing", "sparse_pred_ignore_index", "loss_type",
    "tf_legacy_loss", "replacing_rate", "student_encoder_layers", "student_decoder_layers",
    "sparse_prediction",
    // heads of other classes, which the class of the folder shows
    "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task",
    "task_specific_params", "summary_type", "summary_use_proj", "summary_activation",
    "summary_proj_to_labels", "classifier_pooling", "sentence_transformers",
    "sbert_ce_default_activation_function",
    // generation, which the caller decides
    "bos_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id", "decoder_start_token_id",
    "forced_bos_token_id", "forced_eos_token_id", "prefix", "max_length", "min_length", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
    "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "tokenizer_class", "max_new_tokens"};

// Keys of any config whose other values would be another model.
constexpr std::pair<const char*, const char*> fixed_everywhere[] = {{"is_decoder", "false"},
                                                                    {"add_cross_attention", "false"},
                                                                    {"cross_attention_hidden_size", "null"},
                                                                    {"tie_encoder_decoder", "false"},
                                                                    {"use_mrope", "false"},
                                                                    {"pruned_heads", "{}"}};

class FieldReader {
 public:
  FieldReader(ConfigReader& reader, FamilyConfig& config, const Field& field)
      : reader_(reader), config_(config), key_(field.key) {}

  void operator()(const SizeField& f) {
    if (const json* value = reader_.find(key_)) {
      if (const auto size = reader_.size(key_, *value, f.least, f.most)) config_.*f.member = *size;
    }
  }
  void operator()(const NumberField& f) {
    if (const json* value = reader_.find(key_)) {
      if (const auto number = reader_.positive(key_, *value)) config_.*f.member = *number;
    }
  }
  void operator()(const OptionalNumberField& f) {
    if (const json* value = optional(config_.*f.member)) config_.*f.member = reader_.positive(key_, *value);
  }
  void operator()(const OptionalSizeField& f) {
    if (const json* value = optional(config_.*f.member))
      config_.*f.member = reader_.size(key_, *value, f.least, f.most);
  }
  void operator()(const FlagField& f) {
    const json* value = reader_.find(key_);
    if (!value) return;
    if (value->is_boolean())
      config_.*f.member = value->get<bool>();
    else
      reader_.refuse(key_, "true or false", *value);
  }
  void operator()(const ActivationField& f) {
    const json* value = reader_.find(key_);
    if (!value) return;
    if (const auto named = value->is_string() ? activation_of(value->get<std::string>()) : std::nullopt) {
      config_.*f.member = *named;
      return;
    }
    std::string names;
    for (const auto& [name, activation] : activations)
      names += (names.empty() ? "" : ", ") + std::string(name);
    reader_.refuse(key_, "an activation, one of " + names, *value);
  }
  void operator()(const FixedField& f) {
    const json* value = reader_.find(key_);
    const json expected = json::parse(f.value);
    if (value && *value != expected)
      reader_.refuse(key_, expected.dump() + ": nothing here computes another value", *value);
  }
  void operator()(NoEffect) { reader_.find(key_); }
  void operator()(ReadFunction function) { function(reader_, config_); }

 private:
  // The value, unless it is absent, which leaves the default, or null, which means none.
  template <class T>
  const json* optional(std::optional<T>& member) {
    const json* value = reader_.find(key_);
    if (!value && reader_.object().contains(key_)) member.reset();
    return value;
  }
  ConfigReader& reader_;
  FamilyConfig& config_;
  std::string key_;
};

void read_class(ConfigReader& reader, const Family& family, FamilyConfig& config) {
  // A folder that names no class may have a masked head, as its tensors then show.
  if (const HeadRow* masked = head_of(family, FamilyHead::masked)) config.head_layers = masked->layers;
  const json* list = reader.find("architectures");
  if (!list || !list->is_array() || list->empty() || !list->front().is_string()) return;
  config.architecture = list->front().get<std::string>();
  if (const ClassRow* row = class_of(family, config)) {
    config.head = row->head;
    config.encoder_alone = row->encoder_alone;
    if (const HeadRow* head = head_of(family, row->head)) config.head_layers = head->layers;
    return;
  }
  std::string names;
  for (const ClassRow& row : family.classes) names += (names.empty() ? "" : ", ") + row.name;
  reader.refuse("architectures", "a class whose head can be run: " + names, list->front());
}

// A translator with a head for labels or answers: which ids its decoder begins with, and the head reads at.
void check_head_ids(ConfigReader& reader, const FamilyConfig& config) {
  const bool decodes = config.kind == FamilyKind::translator && runs_as(config) == FamilyKind::encoder;
  if (!decodes || config.encoder_alone) return;
  if (config.head_layers.at_eos && config.eos_ids.empty())
    reader.refuse("eos_token_id", "the id whose row the head reads", "none");
  if (config.starts_with_last) return;
  const std::int64_t start = config.start_id.value_or(-1);
  if (start < 0 || start >= config.vocabulary)
    reader.refuse("decoder_start_token_id", "the id of the vocabulary that the decoder reads first",
                  config.start_id ? std::to_string(start) : "none");
}

// Sizes that follow from others, and what they must have in common.
void complete(ConfigReader& reader, FamilyConfig& config) {
  // A recurrence has sizes of its own. A hybrid without a layer of attention still has those of one.
  if (!attends(config) && config.heads == 0) return;
  for (const auto& [name, size] : {std::pair{"vocabulary", config.vocabulary},
                                   {"width", config.dim},
                                   {"number of layers", config.layers},
                                   {"number of heads", config.heads},
                                   {"number of positions", config.positions}}) {
    if (size < 1) return;  // refused before
  }
  if (!config.head_layers.activation) config.head_layers.activation = config.activation;
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.feed_forward == 0) config.feed_forward = 4 * config.dim;
  if (config.heads % config.kv_heads != 0)
    reader.refuse("num_key_value_heads", "a divisor of the " + std::to_string(config.heads) + " heads",
                  std::to_string(config.kv_heads));
  if (config.head_dim == 0) {
    if (config.dim % config.heads != 0)
      reader.refuse("num_attention_heads", "a divisor of the width " + std::to_string(config.dim),
                    std::to_string(config.heads));
    config.head_dim = std::max<std::int64_t>(config.dim / config.heads, 1);
  }
  if (config.kind == FamilyKind::translator) {
    if (config.decoder_layers == 0) config.decoder_layers = config.layers;
    if (config.decoder_heads == 0) config.decoder_heads = config.heads;
    if (config.decoder_feed_forward == 0) config.decoder_feed_forward = config.feed_forward;
    if (config.decoder_heads != config.heads && config.dim % config.decoder_heads != 0)
      reader.refuse("decoder_attention_heads", "a divisor of the width " + std::to_string(config.dim),
                    std::to_string(config.decoder_heads));
  }
  check_head_ids(reader, config);
  if (config.sees.empty()) config.sees.assign(static_cast<std::size_t>(config.layers), LayerSees::all);
  if (std::count(config.sees.begin(), config.sees.end(), LayerSees::window) > 0 && !config.window)
    reader.refuse("sliding_window", "a number of rows, because there are layers with a window", "none");
  if (!config.rotary) return;
  config.rope.rotary_dim = config.head_dim;
  if (config.rotary_elements)
    config.rope.rotary_dim = *config.rotary_elements;
  else if (config.rotary_share)
    config.rope.rotary_dim =
        static_cast<std::int64_t>(static_cast<double>(config.head_dim) * *config.rotary_share);
  if (config.window_rope) config.window_rope->rotary_dim = config.head_dim;
  if (config.rope.rotary_dim > config.head_dim)
    reader.refuse("rotary_dim", "at most the " + std::to_string(config.head_dim) + " elements of a head",
                  std::to_string(config.rope.rotary_dim));
  try {
    check_rope(config.rope);
    if (config.window_rope) check_rope(*config.window_rope);
    // transformers reads texts of any length; the factor says for how many times the training's it is meant.
    if (const auto* dynamic = std::get_if<DynamicNtkScaling>(&config.rope.scaling))
      config.positions = static_cast<std::int64_t>(
          std::min(static_cast<double>(config.positions) * dynamic->factor, most_positions - 1.0));
  } catch (const InvalidArgument& error) {
    reader.refuse("rope_parameters", error.argument() + ": " + error.expected(), error.got());
  }
}

}  // namespace

bool is_without_effect(std::string_view key) {
  return std::ranges::find(without_effect, key) != std::end(without_effect);
}

std::optional<Activation> activation_of(std::string_view name) {
  for (const auto& [known, activation] : activations) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

const std::vector<Family>& all_families() {
  static const std::vector<Family> table = [] {
    std::vector<Family> rows = gpt2_families();
    for (const auto& more : {fairseq_decoders(), decoder_families(), llama_relatives(),
                             side_by_side_families(), recurrent_families(), encoder_families(),
                             modernbert_families(), bert_relatives(), t5_families(), translator_families()})
      rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return table;
}

const ClassRow* class_of(const Family& family, const FamilyConfig& config) {
  for (const ClassRow& row : family.classes) {
    if (row.name == config.architecture) return &row;
  }
  return nullptr;
}

const HeadRow* head_of(const Family& family, FamilyHead head) {
  for (const HeadRow& row : family.heads) {
    if (row.head == head) return &row;
  }
  return nullptr;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : all_families()) {
    if (family.defaults.model_type == model_type) return &family;
  }
  return nullptr;
}

FamilyKind runs_as(const FamilyConfig& config) {
  const bool next_id = config.head == FamilyHead::none || config.head == FamilyHead::language;
  return next_id && !config.encoder_alone ? config.kind : FamilyKind::encoder;
}

std::optional<FamilyKind> family_kind(const std::string& text) {
  try {
    return runs_as(read_family(text).config);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::vector<std::string_view> families() {
  std::vector<std::string_view> names;
  for (const Family& family : all_families()) names.push_back(family.defaults.model_type);
  return names;
}

std::vector<std::string> family_classes(std::string_view model_type) {
  std::vector<std::string> names;
  if (const Family* family = find_family(model_type)) {
    for (const ClassRow& row : family->classes) names.push_back(row.name);
  }
  return names;
}

FamilyReading read_family(const std::string& text) {
  json object;
  try {
    object = files::parse_json_object("JSON", text, config_depth);
  } catch (const FileError& error) {
    throw InvalidArgument("config.json", "text", "a JSON object", error.what());
  }
  ConfigReader reader(object);
  const json* type = reader.find("model_type");
  const Family* family = type && type->is_string() ? find_family(type->get<std::string>()) : nullptr;
  if (!family) {
    const std::string missing = missing_parts(object);
    std::string got = type ? shown(*type) : "none";
    if (is_own_translator(text)) got += ", a translator of fovea train, which fovea translate runs";
    if (is_own_language(text)) got += ", a language model of fovea train, which fovea generate runs";
    throw InvalidArgument(
        "config.json", "model_type",
        "one of the " + std::to_string(families().size()) + " families that `fovea show --families` lists",
        missing.empty() ? got : got + ", which needs " + missing);
  }
  FamilyConfig config = family->defaults;
  read_class(reader, *family, config);
  for (const Field& field : family->fields) std::visit(FieldReader(reader, config, field), field.value);
  read_token_ids(reader, config);
  read_labels(reader, config);
  complete(reader, config);
  const auto require = [&](const char* key, const char* value) {
    FieldReader(reader, config, {key, FixedField{value}})(FixedField{value});
  };
  for (const auto& [key, value] : fixed_everywhere) require(key, value);
  if (config.encoder_alone)
    reader.find("is_encoder_decoder");  // the class decides
  else
    require("is_encoder_decoder", config.kind == FamilyKind::translator ? "true" : "false");
  for (const std::string& key : reader.unread()) {
    // What is null is not there, as a quantization_config.
    if (!is_without_effect(key) && !object[key].is_null())
      reader.refuse(excerpt(key), "a key that " + config.model_type + " is known to have", object[key]);
  }
  return {std::move(config), std::move(reader.problems())};
}

}  // namespace fovea::models
