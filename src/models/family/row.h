// The table of families: what is in it, and the reader that its rows are written for. The other
// files of this folder have the rows.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fovea/models/family.h"

namespace fovea::models {

/// Reads one config.json and remembers which of its keys were asked for.
class ConfigReader {
 public:
  explicit ConfigReader(const nlohmann::json& object) : object_(object) {}

  /// The value of the first of `keys` that is there and not null. All of them count as known.
  const nlohmann::json* find(std::initializer_list<std::string_view> keys);
  const nlohmann::json* find(std::string_view key) { return find({key}); }
  void refuse(std::string key, std::string expected, std::string got);
  void refuse(std::string key, std::string expected, const char* got) {
    refuse(std::move(key), std::move(expected), std::string(got));
  }
  void refuse(std::string key, std::string expected, const nlohmann::json& got);
  /// Refuses the keys of `object` that are not in `known`; `place` is their path, "" or "rope_parameters.".
  void refuse_others(const nlohmann::json& object, const std::string& place,
                     const std::vector<std::string_view>& known);
  /// The keys that nobody asked for.
  std::vector<std::string> unread() const;
  const nlohmann::json& object() const noexcept { return object_; }
  std::vector<ConfigProblem>& problems() noexcept { return problems_; }

  /// Checked values; if the check fails, a problem and nothing. `key` is for its text.
  std::optional<std::int64_t> size(const std::string& key, const nlohmann::json& value, std::int64_t least,
                                   std::int64_t most);
  std::optional<double> positive(const std::string& key, const nlohmann::json& value);

 private:
  const nlohmann::json& object_;
  std::set<std::string, std::less<>> known_;
  std::vector<ConfigProblem> problems_;
};

// What a field says. A key that is absent or null leaves the row's own value.
struct SizeField {
  std::int64_t FamilyConfig::*member;
  std::int64_t most, least = 1;
};
struct NumberField {
  double FamilyConfig::*member;
};
/// null: none. Above 0.
struct OptionalNumberField {
  std::optional<double> FamilyConfig::*member;
};
struct OptionalSizeField {
  std::optional<std::int64_t> FamilyConfig::*member;
  std::int64_t most, least = 1;
};
struct FlagField {
  bool FamilyConfig::*member;
};
struct ActivationField {
  autograd::Activation FamilyConfig::*member;
};
/// Families vary in this, and here there is one value alone. As JSON.
struct FixedField {
  const char* value;
};
/// A key that the family has, and that changes nothing of what is computed here.
struct NoEffect {};
/// Several keys that have a meaning together only.
using ReadFunction = void (*)(ConfigReader& reader, FamilyConfig& config);

using FieldValue = std::variant<SizeField, NumberField, OptionalNumberField, OptionalSizeField, FlagField,
                                ActivationField, FixedField, NoEffect, ReadFunction>;
struct Field {
  std::string_view key;
  FieldValue value;
};

/// From a parameter of ours to a tensor of theirs. Both are names without ".weight" and ".bias", or whole
/// names of what has neither. `*` is the number of the layer; a rule of nothing but `*` leaves every name.
struct TensorRule {
  enum class Layout : std::uint8_t {
    same,
    transposed,     ///< theirs is [in, out]: GPT-2's Conv1D
    bias_of_heads,  ///< theirs is [buckets, heads], ours [1, heads, 1, buckets]: T5's table
    one_row,        ///< theirs is [1, n], ours [n]
    channels,       ///< theirs is [channels, 1, taps], ours [channels, taps]: a convolution of each channel
    by_head         ///< as `same`, but rules of one tensor have their rows of a head side by side
  };
  std::string_view ours, theirs;
  Layout layout = Layout::same;
  bool FamilyConfig::*only_if =
      nullptr;  ///< the rule of a model of which this is true; the next one is for others
  /// The bias of an output matrix, to which transformers ties the one that a head lists, `theirs`. It is read
  /// in the place of that where a file has it, and written where the config ties no embeddings.
  std::string_view untied = {};
  // Rules that follow one another with the same `theirs` are consecutive rows of one tensor, such as
  // GPT-2's q, k and v.
};

struct ClassRow {
  std::string name;
  FamilyHead head = FamilyHead::none;
  std::string_view prefix = {};  ///< of the names of its tensors, where it is not the family's
  bool encoder_alone = false;    ///< FamilyConfig::encoder_alone
  std::string_view unused = {};  ///< tensors of parts that the class does not have; `*` is any text
};

/// A head that classes of a family have. Its parameters are head.dense, head.norm and head.output.
struct HeadRow {
  FamilyHead head = FamilyHead::none;
  HeadLayers layers = {};
  std::vector<TensorRule> tensors;
};

struct Family {
  FamilyConfig defaults;  ///< model_type, what all models of the family have, and values of absent keys
  std::vector<ClassRow> classes;
  std::vector<Field> fields;
  std::vector<TensorRule> tensors;
  std::vector<HeadRow> heads = {};
  std::string_view prefix;  ///< of the names of the tensors; a folder of the model without a head lacks it
  /// Tensors of layers that are not computed, and tensors that are copies of others or follow from the
  /// config. Neither changes what is computed. `*` is any text.
  std::vector<std::string_view> unused = {}, copies = {};
};

/// The row of the class that a config names; nullptr if it names none.
const ClassRow* class_of(const Family& family, const FamilyConfig& config);
/// The row of a head; nullptr if the family has none.
const HeadRow* head_of(const Family& family, FamilyHead head);
/// The row of a family; nullptr if there is none.
const Family* find_family(std::string_view model_type);
const std::vector<Family>& all_families();
std::vector<Family> gpt2_families();
std::vector<Family> fairseq_decoders();
std::vector<Family> decoder_families();
std::vector<Family> llama_relatives();
std::vector<Family> side_by_side_families();
std::vector<Family> encoder_families();
std::vector<Family> bert_relatives();
std::vector<Family> modernbert_families();
std::vector<Family> translator_families();
std::vector<Family> t5_families();
std::vector<Family> recurrent_families();

/// What a model of another family would need: by its model_type, or by keys that ask for something that no
/// family here has. "" if neither says it.
std::string missing_parts(const nlohmann::json& config);

// -- parts of rows (fields.cpp)

template <class T>
std::vector<T> joined(std::vector<T> first, const std::vector<T>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

inline constexpr std::int64_t most_vocabulary = 10'000'000, most_dim = 65'536, most_layers = 1'000,
                              most_positions = std::int64_t{1} << 30;

/// The sizes of a stack under the names that most families have for them, and whether embeddings are tied.
std::vector<Field> size_fields();
/// pad_token_id, for positions that are counted from it; without the key the row's own, or 1.
std::int64_t read_padding(ConfigReader& reader, const FamilyConfig& config);
/// Sines in fairseq's form from position `first` on. Refuses a `dim` without two sines.
void set_fairseq_sines(ConfigReader& reader, FamilyConfig& config, const char* dim, std::int64_t first);
/// rope_parameters, or the older rope_theta and rope_scaling.
void read_rope(ConfigReader& reader, FamilyConfig& config);
/// The same with GPT-NeoX's older keys, rotary_pct and rotary_emb_base.
void read_neox_rope(ConfigReader& reader, FamilyConfig& config);
/// The same for two kinds of layers: rope_parameters of both, or the older flat keys.
void read_rope_by_layer(ConfigReader& reader, FamilyConfig& config);
/// Of the embeddings, as the stack's input.
double embedding_factor_of(const FamilyConfig& config);
/// Whether the rows of some layer attend to others.
bool attends(const FamilyConfig& config);
/// attention_bias: whether queries, keys, values and the output have biases.
void read_attention_bias(ConfigReader& reader, FamilyConfig& config);
/// layer_types; absent, all layers have a window if there is one.
void read_layer_types(ConfigReader& reader, FamilyConfig& config);
/// The labels of a head, and what its scores are made by: id2label, num_labels, problem_type, and the keys of
/// sentence-transformers.
void read_labels(ConfigReader& reader, FamilyConfig& config);
/// eos_token_id, a number or a list, and pad_token_id.
void read_token_ids(ConfigReader& reader, FamilyConfig& config);
/// Sets config.sees by layer_types. Where that is absent, layer i sees `chosen` if chooses(i), and all rows
/// if not.
template <class Chooses>
void layer_types_or(ConfigReader& reader, FamilyConfig& config, Chooses&& chooses,
                    LayerSees chosen = LayerSees::window);
/// The list of layer_types, or nothing if it is absent or wrong.
std::optional<std::vector<LayerSees>> listed_layer_types(ConfigReader& reader, const FamilyConfig& config);

template <class Chooses>
void layer_types_or(ConfigReader& reader, FamilyConfig& config, Chooses&& chooses, LayerSees chosen) {
  if (auto listed = listed_layer_types(reader, config)) {
    config.sees = std::move(*listed);
    return;
  }
  for (std::int64_t i = 0; i < config.layers; ++i)
    config.sees.push_back(chooses(i) ? chosen : LayerSees::all);
}

/// Whether the key may be in any config, and changes nothing that a model computes from ids.
bool is_without_effect(std::string_view key);
std::string shown(const nlohmann::json& value);
/// By its name in transformers.
std::optional<autograd::Activation> activation_of(std::string_view name);

}  // namespace fovea::models
