// Families of other libraries: configs that are read, folders that are written and read, and the errors of
// damaged ones. tests/models/families_oracle.py compares the numbers with transformers.
#include "fovea/models/family.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "files/fuzz_count.h"
#include "files/mutated.h"
#include "fovea/core/philox.h"
#include "fovea/files/bytes.h"
#include "fovea/files/weights.h"
#include "fovea/models/decoding.h"
#include "fovea/models/model_folder.h"
#include "models/family/row.h"
#include "models/random_family.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The sizes of a config under the names that a family has for them; all else is the default of its class.
json tiny_config(std::string_view type) {
  json config{{"model_type", type}, {"pad_token_id", 1}, {"eos_token_id", 2}};
  if (type == "gpt2") {
    config.update({{"vocab_size", 11}, {"n_embd", 8}, {"n_layer", 2}, {"n_head", 2}, {"n_positions", 16}});
    config["architectures"] = {"GPT2LMHeadModel"};
    return config;
  }
  if (type == "distilbert") {
    config.update({{"vocab_size", 11}, {"dim", 8}, {"hidden_dim", 12}, {"n_layers", 2}, {"n_heads", 2}});
    config["max_position_embeddings"] = 16;
    config["architectures"] = {"DistilBertForMaskedLM"};
    return config;
  }
  if (type == "t5" || type == "mt5") {
    config.update({{"vocab_size", 11}, {"d_model", 8}, {"d_kv", 4}, {"d_ff", 12}, {"num_layers", 2}});
    config.update({{"num_decoder_layers", 1}, {"num_heads", 2}, {"is_encoder_decoder", true}});
    config["architectures"] = {type == "t5" ? "T5ForConditionalGeneration" : "MT5ForConditionalGeneration"};
    return config;
  }
  if (type == "mamba" || type == "falcon_mamba" || type == "mamba2") {
    config.update({{"vocab_size", 11}, {"hidden_size", 8}, {"num_hidden_layers", 2}, {"state_size", 3}});
    if (type == "mamba2") config.update({{"num_heads", 4}, {"head_dim", 4}, {"n_groups", 2}});
    return config;
  }
  if (family_kind(config.dump()) == FamilyKind::translator) {
    config.update({{"vocab_size", 11}, {"d_model", 8}, {"is_encoder_decoder", true}});
    config.update({{"max_position_embeddings", 16}, {"encoder_layers", 2}, {"decoder_layers", 1}});
    config.update({{"encoder_attention_heads", 2}, {"decoder_attention_heads", 4}});
    config.update({{"encoder_ffn_dim", 12}, {"decoder_ffn_dim", 10}});
    const std::map<std::string_view, const char*> classes{{"bart", "BartForConditionalGeneration"},
                                                          {"mbart", "MBartForConditionalGeneration"},
                                                          {"marian", "MarianMTModel"}};
    config["architectures"] = {classes.at(type)};
    return config;
  }
  config.update({{"vocab_size", 11},
                 {"hidden_size", 8},
                 {"intermediate_size", 12},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"max_position_embeddings", 18}});
  if (family_kind(config.dump()) == FamilyKind::decoder) config["num_key_value_heads"] = 1;
  if (type == "qwen3" || type.starts_with("gemma")) config["head_dim"] = 6;
  if (type.starts_with("gemma2") || type.starts_with("gemma3")) config["sliding_window"] = 3;
  if (type == "mistral") config["sliding_window"] = 3;
  if (type == "modernbert") config["local_attention"] = 4;
  if (type == "qwen3_5_text") {
    config.update({{"head_dim", 8}, {"linear_key_head_dim", 3}, {"linear_value_head_dim", 2}});
    config.update({{"linear_num_key_heads", 2}, {"linear_num_value_heads", 4}});
    config["layer_types"] = {"linear_attention", "full_attention"};
  }
  return config;
}

std::string refusal(const json& config) {
  std::string text;
  try {
    for (const ConfigProblem& problem : read_family(config.dump()).problems)
      text += problem.key + ": expected " + problem.expected + ", got " + problem.got + "\n";
  } catch (const InvalidArgument& error) {
    text = error.what();
  }
  return text;
}

FamilyKind kind_of(const ModelFolder& folder) {
  return family_kind(folder.config()).value_or(FamilyKind::decoder);
}

// The parameters of the model of a folder, which `use` gets as long as the model lives.
template <class Use>
void with_model(const ModelFolder& folder, Use&& use) {
  if (kind_of(folder) == FamilyKind::encoder)
    use(folder.text_encoder().parameters());
  else if (kind_of(folder) == FamilyKind::translator)
    use(folder.sequence_to_sequence()->parameters());
  else
    use(folder.language_model().parameters());
}

std::string loaded(const fs::path& folder) {
  try {
    with_model(ModelFolder(folder), [](const nn::ParameterSet&) {});
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

// The sizes of layers that attend.
bool attends_somewhere(const json& config) {
  return attends(read_family(config.dump()).config);
}

bool config_is_translator(const json& config) {
  return family_kind(config.dump()) == FamilyKind::translator;
}

class Families : public testing::TestWithParam<std::string_view> {
 protected:
  Families() : folder(fs::temp_directory_path() / ("fovea-families-" + std::to_string(::getpid()))) {
    fs::create_directories(folder);
  }
  ~Families() override { fs::remove_all(folder); }

  // A folder of a random model of this config, in the form of transformers.
  void write(const json& config) const {
    const FamilyReading reading = read_family(config.dump());
    ASSERT_TRUE(reading.problems.empty()) << refusal(config);
    save_random_model(folder.string(), config.dump());
  }
  void write_config(const json& config) const {
    fs::remove(folder / "config.json");
    std::ofstream(folder / "config.json") << config.dump();
  }
  // Logits, or hidden states of an encoder, of some ids. `packed` while the folder is read, or `afterwards`.
  Tensor rows(ModelFolder::Packed packed = {}, ModelFolder::Packed afterwards = {}) const {
    const ModelFolder opened(folder);
    const std::vector<std::int32_t> ids{3, 7, 4, 10, 5, 3, 9};
    nn::Context context;
    const auto pack = [&](nn::ParameterSet& parameters) {
      if (afterwards) parameters.pack(*afterwards);
    };
    if (kind_of(opened) == FamilyKind::translator) {
      const auto model = opened.sequence_to_sequence(packed);
      pack(model->parameters());
      return model->logits(model->hidden(context, make_batch({ids}, {ids}), nullptr, nullptr));
    }
    if (kind_of(opened) == FamilyKind::encoder) {
      TextEncoder model = opened.text_encoder(packed);
      pack(model.parameters());
      return model.hidden(context, {&ids, 1}).value();
    }
    LanguageModel model = opened.language_model(packed);
    pack(model.parameters());
    return model.logits(model.hidden(context, pad({&ids, 1})));
  }
  std::string bytes() const { return files::read_file(folder / "model.safetensors", 1 << 24); }

  fs::path folder;
};

TEST_P(Families, AreWrittenAndReadToTheSameBytes) {
  const json config = tiny_config(GetParam());
  write(config);
  EXPECT_EQ(loaded(folder), "");
  const FolderReport report = report_on(ModelFolder(folder));
  EXPECT_EQ(report.refused, "");
  EXPECT_EQ(report.model_type, GetParam());
  EXPECT_EQ(report.bytes, 4 * report.parameters);
  const Tensor before = rows();
  const std::string written = bytes();
  const ModelFolder opened(folder);
  with_model(opened, [&](const nn::ParameterSet& parameters) {
    save_model(folder.string(), opened.config(), parameters);
  });
  if (report.config->kind == FamilyKind::decoder) {
    const auto& sees = report.config->sees;
    EXPECT_EQ(report.cache_bytes_per_token,
              8 * (std::ssize(sees) - std::count(sees.begin(), sees.end(), LayerSees::state)) *
                  report.config->kv_heads * report.config->head_dim);
    // A recurrence keeps a state, and its decays are those of the weights.
    for (std::size_t i = 0; i < report.layers.size(); ++i) {
      const LayerKeeps& layer = report.layers[i];
      EXPECT_EQ(layer.state_bytes > 0, sees[i] == LayerSees::state);
      EXPECT_EQ(layer.decays.empty(), sees[i] != LayerSees::state);
      for (const LayerKeeps::Decays& decays : layer.decays) {
        EXPECT_GT(decays.least, 0.0);
        EXPECT_LE(decays.least, decays.most);
        EXPECT_LT(decays.most, 1.0);
      }
    }
  }
  EXPECT_TRUE(bytes() == written);
  const Tensor after = rows();
  for (std::int64_t i = 0; i < before.count(); ++i)
    ASSERT_EQ(after.data<float>()[i], before.data<float>()[i]);
}

// Weights that are packed while their file is read have the bits of those that are packed afterwards, and no
// other values.
TEST_P(Families, AreReadPacked) {
  using autograd::WeightType;
  write(tiny_config(GetParam()));
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    SCOPED_TRACE(autograd::to_string(type));
    const Tensor expected = rows({}, type), read = rows(type);
    ASSERT_EQ(read.shape(), expected.shape());
    for (std::int64_t i = 0; i < read.count(); ++i)
      ASSERT_EQ(read.data<float>()[i], expected.data<float>()[i]) << i;
    EXPECT_THROW(rows(type, type), InvalidArgument);
  }
}

// The heads of a family, for labels and answers: their tensors, their numbers, and what is said of them.
TEST_P(Families, HaveHeadsThatAreWrittenAndRead) {
  std::vector<std::vector<std::int32_t>> texts{{3, 7, 4, 10, 5}, {9}, {6, 6, 3, 1, 1}};
  if (config_is_translator(tiny_config(GetParam()))) {
    for (std::vector<std::int32_t>& ids : texts) ids.push_back(2);  // the end, whose row the labels read
  }
  std::set<std::string> heads;
  for (const ClassRow& row : find_family(GetParam())->classes) {
    if (row.head != FamilyHead::sequence_labels && row.head != FamilyHead::token_labels &&
        row.head != FamilyHead::answer)
      continue;
    SCOPED_TRACE(row.name);
    json config = tiny_config(GetParam());
    config["architectures"] = {row.name};
    config["decoder_start_token_id"] = 4;  // of translators
    if (row.head != FamilyHead::answer) config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
    write(config);
    EXPECT_EQ(loaded(folder), "");
    const FolderReport report = report_on(ModelFolder(folder));
    EXPECT_EQ(report.refused, "");
    EXPECT_EQ(report.cache_bytes_per_token, 0);
    EXPECT_THROW(ModelFolder(folder).language_model(), FileError);
    TextEncoder model = ModelFolder(folder).text_encoder();
    // Padding, here id 1, has a position in models that read from left to right alone.
    const std::span<const std::vector<std::int32_t>> read =
        std::span(texts).first(report.config->kind == FamilyKind::decoder ? 3 : 2);
    const Tensor together = model.logits(read);
    const Tensor packed = ModelFolder(folder).text_encoder(autograd::WeightType::f32).logits(read);
    ASSERT_EQ(packed.shape(), together.shape());
    for (std::int64_t i = 0; i < packed.count(); ++i)
      EXPECT_NEAR(packed.data<float>()[i], together.data<float>()[i], 1e-5);
    const bool pools = row.head == FamilyHead::sequence_labels;
    std::int64_t rows = 0;
    for (const std::vector<std::int32_t>& ids : read) {
      const Tensor alone = model.logits({&ids, 1});
      ASSERT_EQ(alone.shape(), (Shape{pools ? 1 : std::ssize(ids), row.head == FamilyHead::answer ? 2 : 3}));
      for (std::int64_t i = 0; i < alone.count(); ++i)
        EXPECT_NEAR(alone.data<float>()[i], together.data<float>()[rows * alone.shape()[1] + i], 1e-5);
      rows += alone.shape()[0];
    }
    EXPECT_EQ(together.shape()[0], rows);
    if (pools && read.size() == 3) {  // the row before the padding
      const std::vector<std::vector<std::int32_t>> without{{6, 6, 3}};
      const Tensor expected = model.logits(without);
      for (std::int64_t i = 0; i < 3; ++i)
        EXPECT_NEAR(expected.data<float>()[i], together.data<float>()[6 + i], 1e-5);
    }
    const std::string written = bytes();
    save_model(folder.string(), config.dump(), model.parameters());
    EXPECT_TRUE(bytes() == written);
    heads.insert(row.name);
    config["num_labels"] = 4;
    if (row.head != FamilyHead::answer)
      EXPECT_NE(refusal(config).find("num_labels: expected the number of labels"), std::string::npos);
  }
  const json config = tiny_config(GetParam());
  if (!config_is_translator(config) && attends_somewhere(config)) EXPECT_GE(heads.size(), 1u);
}

// A folder without the prefix of the model in it, such as GPT-2's on the Hub.
TEST_P(Families, DoNotNeedThePrefixOfTheirNames) {
  write(tiny_config(GetParam()));
  const Tensor before = rows();
  files::TensorFile file = files::load_safetensors(folder / "model.safetensors");
  const std::string_view prefixes[] = {"model.", "transformer.", "bert.",    "roberta.",
                                       "mpnet.", "distilbert.",  "backbone."};
  for (files::NamedTensor& named : file.tensors) {
    for (const std::string_view prefix : prefixes) {
      if (named.name.starts_with(prefix)) {
        named.name.erase(0, prefix.size());
        break;
      }
    }
  }
  files::save_safetensors(folder / "model.safetensors", file);
  const Tensor after = rows();
  for (std::int64_t i = 0; i < before.count(); ++i)
    ASSERT_EQ(after.data<float>()[i], before.data<float>()[i]);
}

TEST_P(Families, NameTheTensorThatIsWrong) {
  const json config = tiny_config(GetParam());
  write(config);
  const files::TensorFile good = files::load_safetensors(folder / "model.safetensors");
  const auto with = [&](auto&& change) {
    files::TensorFile file = good;
    change(file.tensors);
    files::save_safetensors(folder / "model.safetensors", file);
    return loaded(folder);
  };
  const auto says = [](const std::string& error, const std::string& words) {
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  for (std::size_t i = 0; i < good.tensors.size(); ++i) {
    const std::string name = good.tensors[i].name.substr(0, 50);  // errors shorten long names
    says(with([&](auto& tensors) { tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i)); }),
         name == "lm_head.weight" && config.value("tie_word_embeddings", false) ? "" : name);
    const std::string wrong = with([&](auto& tensors) {
      const Shape& shape = tensors[i].tensor.shape();
      tensors[i].tensor = Tensor::zeros(
          DType::f32, shape.rank() == 1 ? Shape{shape[0] + 1} : Shape{shape[0] + 1, shape[1] + 1});
    });
    says(wrong, name);
    says(wrong, "shape");
  }
  says(with([](auto& tensors) { tensors.push_back({"odd", Tensor::zeros(DType::f32, {1})}); }), "'odd'");
  const auto few = with([](auto& tensors) { tensors.clear(); });
  says(few, "is missing");
}

// A key whose value would make another model must never be passed over.
TEST_P(Families, NameTheKeyThatIsWrong) {
  const json good = tiny_config(GetParam());
  EXPECT_EQ(refusal(good), "");
  const auto says = [&](const std::string& key, const json& value, const std::string& words) {
    json config = good;
    config[key] = value;
    EXPECT_NE(refusal(config).find(words), std::string::npos) << key << " " << refusal(config);
  };
  says("attention_sinks", 4, "attention_sinks: expected");
  says("quantization_config", json::object(), "quantization_config: expected");
  says("is_decoder", true, "is_decoder");
  says("add_cross_attention", true, "add_cross_attention");
  says("architectures", {"OddForTokenClassification"}, "architectures: expected a class");
  says("is_encoder_decoder", config_is_translator(good) ? json(false) : json(true), "is_encoder_decoder");
  says("vocab_size", 0, "vocab_size: expected a whole number");
  says("vocab_size", 1e300, "vocab_size: expected a whole number");
  says("vocab_size", "11", "vocab_size: expected a whole number");
  says("tie_word_embeddings", 1, "tie_word_embeddings: expected true or false");
  const FamilyConfig config = read_family(good.dump()).config;
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "n_layer", "n_embd",
                          "dim", "d_model", "encoder_layers", "decoder_ffn_dim", "num_heads"}) {
    if (!good.contains(key)) continue;
    says(key, -1, std::string(key) + ": expected");
    says(key, 1e6, std::string(key) + ": expected");
    says(key, 2.5, std::string(key) + ": expected");
    says(key, json::array(), std::string(key) + ": expected");
  }
  if (!config.rotary) return;
  if (config.window_rope) {
    says("rope_parameters", {{"full_attention", {{"odd", 1}}}}, "rope_parameters.full_attention.odd");
    says("rope_parameters", {{"odd", {{"rope_theta", 1}}}}, "rope_parameters.odd");
    return;
  }
  says("rope_parameters", {{"rope_type", "longrope"}}, "rope_parameters.rope_type: expected default, linear");
  says("rope_parameters", {{"rope_type", "linear"}}, "rope_parameters.factor: expected");
  says("rope_parameters", {{"rope_theta", 5.0}, {"odd", 1}}, "rope_parameters.odd: expected");
  says("rope_parameters", {{"rope_theta", -5.0}}, "rope_parameters.rope_theta: expected a number above 0");
  if (config.rotary_share) {
    says("rope_parameters", {{"partial_rotary_factor", 1.5}},
         "rope_parameters.partial_rotary_factor: expected a number above 0 and at most 1");
    says("partial_rotary_factor", json::array(), "partial_rotary_factor: expected a number above 0");
    says("partial_rotary_factor", 0.01, "rope_parameters: expected rotary_dim: an even number");
    return;
  }
  says("rope_parameters", {{"partial_rotary_factor", 0.5}},
       "rope_parameters.partial_rotary_factor: expected 1");
  says("rope_scaling", {{"type", "linear"}, {"factor", 0.5}}, "rope_parameters: expected");
  says("partial_rotary_factor", 0.25, "partial_rotary_factor: expected 1");
  json both = good;
  both["rope_theta"] = 500.0;
  both["rope_parameters"] = {{"rope_theta", 600.0}};
  EXPECT_NE(refusal(both).find("rope_theta: expected the rope_theta of rope_parameters"), std::string::npos);
}

// Nothing is allocated by numbers that the file of weights does not bear out.
TEST_P(Families, RefuseSizesBeyondTheirWeights) {
  const json good = tiny_config(GetParam());
  write(good);
  for (const auto& [key, size] : {std::pair{"vocab_size", 10'000'000},
                                  {"hidden_size", 65'536},
                                  {"n_embd", 65'536},
                                  {"dim", 65'536},
                                  {"intermediate_size", 65'536},
                                  {"n_inner", 65'536},
                                  {"hidden_dim", 65'536},
                                  {"num_hidden_layers", 1'000},
                                  {"n_layer", 1'000},
                                  {"n_layers", 1'000},
                                  {"d_model", 65'536},
                                  {"d_kv", 65'536},
                                  {"decoder_ffn_dim", 65'536},
                                  {"decoder_layers", 1'000},
                                  {"num_decoder_layers", 1'000},
                                  {"head_dim", 65'536},
                                  {"state_size", 65'536},
                                  {"expand", 65'536},
                                  {"num_heads", 65'536},
                                  {"linear_key_head_dim", 65'536},
                                  {"linear_num_value_heads", 65'536}}) {
    const bool of_all = std::string(key) == "n_inner" || std::string(key) == "expand";
    if (!good.contains(key) && !of_all) continue;
    if (std::string(key) == "n_inner" && GetParam() != "gpt2") continue;
    if (std::string(key) == "expand" && attends_somewhere(good)) continue;
    json config = good;
    config[key] = size;
    write_config(config);
    EXPECT_NE(loaded(folder), "") << key;
  }
  // Rotary tables grow with what is read, and a position of the config costs nothing.
  json long_one = good;
  if (GetParam() == "t5" || GetParam() == "mt5") return;  // its relative positions have no end
  if (!attends_somewhere(good)) return;                   // nor have recurrences
  long_one[good.contains("n_positions") ? "n_positions" : "max_position_embeddings"] = 1 << 30;
  write_config(long_one);
  if (!read_family(good.dump()).config.learned_positions)
    EXPECT_EQ(loaded(folder), "");
  else
    EXPECT_NE(loaded(folder), "");
}

// Row by row from a cache, and all at once.
TEST_P(Families, WriteTheSameWithACacheAndWithout) {
  write(tiny_config(GetParam()));
  const ModelFolder opened(folder);
  const std::vector<std::int32_t> source{3, 7, 4, 9};
  if (kind_of(opened) == FamilyKind::encoder) return;
  if (kind_of(opened) == FamilyKind::translator) {
    const auto model = opened.sequence_to_sequence();
    const DecodeOptions beam{.beam_size = 3, .length_extra = 4, .n_best = 2};
    DecodeOptions again = beam;
    again.reuse = Reuse::off;
    const auto cached = decode(*model, {source, {5}}, beam), whole = decode(*model, {source, {5}}, again);
    for (std::size_t s = 0; s < whole.size(); ++s) {
      for (std::size_t h = 0; h < whole[s].size(); ++h) {
        EXPECT_EQ(cached[s][h].ids, whole[s][h].ids);
        EXPECT_NEAR(cached[s][h].log_probability, whole[s][h].log_probability, 1e-3);
      }
    }
    return;
  }
  LanguageModel model = opened.language_model();
  const std::vector<std::int32_t> prompt{3, 7, 4};
  SampleOptions options{.temperature = 0.0, .length = 9};
  const Generated cached = generate(model, prompt, options);
  options.reuse = Reuse::off;
  const Generated whole = generate(model, prompt, options);
  EXPECT_EQ(cached.ids, whole.ids);
  // Log-probabilities of order 10, and the f32 rounding of some hundred sums of 12 terms.
  for (std::size_t i = 0; i < whole.ids.size(); ++i)
    EXPECT_NEAR(cached.log_probabilities[i], whole.log_probabilities[i], 1e-4);
}

// Whatever bytes stand in a config, it is refused, or a model runs.
TEST_P(Families, SurviveAnyConfig) {
  const json config = tiny_config(GetParam());
  write(config);
  const std::string good = config.dump();
  const std::string pieces[] = {
      "-1", "0",   "1e308", "null",  "true", "[]",     "{}",         "\"\"",      "99999999999999999999",
      "3",  "0.5", "[1,2]", "false", ",",    "\"x\":", "1073741824", "\"linear\""};
  PhiloxStream random(std::hash<std::string_view>()(GetParam()));
  const int rounds = files::fuzz_count(300);
  std::int64_t ran = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string text = good;
    if (round % 3 == 0) {
      text[random.next_below(static_cast<std::uint32_t>(text.size()))] = static_cast<char>(random.next_u32());
    } else {  // another value, or two, for a key
      json other = config;
      for (int n = 0; n < 1 + round % 2; ++n) {
        auto member = other.begin();
        std::advance(member, random.next_below(static_cast<std::uint32_t>(other.size())));
        const json value = json::parse(pieces[random.next_below(std::size(pieces))], nullptr, false);
        if (!value.is_discarded()) *member = value;
      }
      text = other.dump();
    }
    fs::remove(folder / "config.json");
    std::ofstream(folder / "config.json") << text;
    ran += loaded(folder).empty();
  }
  EXPECT_GT(ran, 0);
  EXPECT_LT(ran, rounds);
}

// The same of the reader alone, with damage of any kind: it reads the text, says what is wrong with it, or
// refuses it.
TEST_P(Families, ConfigsAreReadOrRefused) {
  const std::string good = tiny_config(GetParam()).dump();
  PhiloxStream random(std::hash<std::string_view>()(GetParam()) + 1);
  int read = 0, refused = 0;
  for (int round = 0, rounds = files::fuzz_count(1000); round < rounds; ++round) {
    try {
      const FamilyReading reading = read_family(files::mutated(good, random));
      if (reading.problems.empty()) {
        EXPECT_FALSE(to_json(reading.config).empty());
        ++read;
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, Families, testing::ValuesIn(families()), [](const auto& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(FamilyConfigs, AnUnknownFamilyIsAnsweredWithThoseThatAreKnown) {
  const std::string error = refusal({{"model_type", "gpt_odd"}});
  for (const std::string_view type : families()) EXPECT_NE(error.find(type), std::string::npos) << error;
  EXPECT_NE(error.find("gpt_odd"), std::string::npos);
  // What some of them would need is known.
  EXPECT_NE(refusal({{"model_type", "qwen3_next"}}).find("needs feed-forward parts of experts"),
            std::string::npos);
  EXPECT_NE(refusal({{"model_type", "falcon_h1"}}).find("side by side"), std::string::npos);
  EXPECT_NE(refusal(json::object()).find("none"), std::string::npos);
  EXPECT_THROW(read_family("[]"), InvalidArgument);
  EXPECT_THROW(read_family(R"({"model_type": 3})"), InvalidArgument);
}

// The forms of transformers 4 say the same as today's.
TEST(FamilyConfigs, OldKeysMeanWhatNewOnesMean) {
  const auto same = [](json config, const json& older, const json& newer) {
    json other = config;
    config.update(older);
    other.update(newer);
    EXPECT_EQ(refusal(config), "");
    EXPECT_EQ(refusal(other), "");
    EXPECT_EQ(to_json(read_family(config.dump()).config), to_json(read_family(other.dump()).config));
  };
  json llama = tiny_config("llama");
  same(llama, {{"rope_theta", 500.0}, {"torch_dtype", "bfloat16"}},
       {{"rope_parameters", {{"rope_theta", 500.0}}}});
  same(llama, {{"rope_theta", 500.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
       {{"rope_parameters", {{"rope_theta", 500.0}, {"rope_type", "linear"}, {"factor", 2.0}}}});
  same(tiny_config("gemma3_text"),
       {{"rope_theta", 500.0}, {"rope_local_base_freq", 50.0}, {"sliding_window_pattern", 2}},
       {{"rope_parameters",
         {{"full_attention", {{"rope_theta", 500.0}}}, {"sliding_attention", {{"rope_theta", 50.0}}}}},
        {"layer_types", {"sliding_attention", "full_attention"}}});
  same(tiny_config("modernbert"),
       {{"global_rope_theta", 500.0}, {"local_rope_theta", 50.0}, {"global_attn_every_n_layers", 2}},
       {{"rope_parameters",
         {{"full_attention", {{"rope_theta", 500.0}}}, {"sliding_attention", {{"rope_theta", 50.0}}}}},
        {"layer_types", {"full_attention", "sliding_attention"}}});
  json hybrid = tiny_config("qwen3_5_text");
  hybrid.erase("layer_types");
  same(hybrid, {{"rope_theta", 500.0}, {"partial_rotary_factor", 0.5}, {"full_attention_interval", 2}},
       {{"rope_parameters", {{"rope_theta", 500.0}, {"partial_rotary_factor", 0.5}}},
        {"layer_types", {"linear_attention", "full_attention"}}});
  same(tiny_config("mamba"), {{"time_step_rank", "auto"}}, {{"time_step_rank", 1}, {"expand", 2.0}});
  same(tiny_config("mamba"), {{"expand", 3}, {"intermediate_size", 24}}, {{"intermediate_size", 24}});
  const json infinity = {{"__float__", "Infinity"}};
  same(tiny_config("mamba2"), {{"time_step_limit", nullptr}}, {{"time_step_limit", {0.0, infinity}}});
  same(tiny_config("gemma"), {{"hidden_act", "gelu"}, {"hidden_activation", nullptr}},
       {{"hidden_act", "gelu_pytorch_tanh"}});
  same(tiny_config("gpt2"), {{"n_ctx", 1024}, {"n_inner", nullptr}}, {{"n_inner", 32}});
}

// A folder of a whole T5 whose config names the encoder alone, as many have it.
TEST_P(Families, EncodersAloneDoWithoutTensorsOfADecoder) {
  json config = tiny_config(GetParam());
  for (const ClassRow& row : find_family(GetParam())->classes) {
    if (!row.encoder_alone) continue;
    write(config);
    config["architectures"] = {row.name};
    write_config(config);
    EXPECT_EQ(loaded(folder), "");
    EXPECT_GT(rows().count(), 0);
    config["num_layers"] = 1;  // the tensors of a second one have no place
    write_config(config);
    EXPECT_NE(loaded(folder), "");
  }
}

// The decoder of a translator with a head reads the text moved by one id, and labels are those of the last
// end.
TEST_P(Families, LabelsOfTranslatorsAreThoseOfTheLastEnd) {
  json config = tiny_config(GetParam());
  if (!config_is_translator(config) || GetParam() == "marian") return;  // no translator with a head
  const std::string name = GetParam() == "mbart"  ? "MBart"
                           : GetParam() == "bart" ? "Bart"
                           : GetParam() == "t5"   ? "T5"
                                                  : "MT5";
  config["architectures"] = {name + "ForSequenceClassification"};
  config["decoder_start_token_id"] = 4;
  write(config);
  TextEncoder model = ModelFolder(folder).text_encoder();
  const auto logits = [&](const std::vector<std::int32_t>& ids) {
    const Tensor row = model.logits({&ids, 1});
    return std::vector<float>(row.data<float>(), row.data<float>() + row.count());
  };
  // The rows are those of the translator with the same weights, whose decoder is given the moved text.
  const std::vector<std::int32_t> ids{3, 2, 7, 2, 5};
  FamilyConfig same = read_family(config.dump()).config;
  same.head = FamilyHead::none;
  same.scale_output = false;
  const std::int32_t first = GetParam() == "mbart" ? 5 : 4;
  const Batch batch{.size = 1,
                    .source_len = 5,
                    .target_len = 5,
                    .source = ids,
                    .source_lengths = {5},
                    .target_input = {first, 3, 2, 7, 2},
                    .target_lengths = {5}};
  nn::Context context;
  TranslatorSpec spec = translator_spec(same);
  spec.bias = nn::Linear::Bias::without;
  const Tensor expected = make_translator(spec, drawn)->hidden(context, batch, nullptr, nullptr).value();
  const nn::Var hidden = model.hidden(context, {&ids, 1});
  ASSERT_EQ(hidden.value().count(), expected.count());
  for (std::int64_t i = 0; i < expected.count(); ++i)
    EXPECT_NEAR(hidden.value().data<float>()[i], expected.data<float>()[i], 1e-5);
  const Tensor at_end = model.logits(slice(hidden, 1, 3, 1));
  EXPECT_EQ(logits(ids), std::vector<float>(at_end.data<float>(), at_end.data<float>() + at_end.count()));
  const std::vector<std::int32_t> endless{3, 7, 5};
  EXPECT_THROW(model.logits({&endless, 1}), InvalidArgument);
  // mBART begins with the last id that is no padding, the others with the config's.
  const bool by_last = GetParam() == "mbart";
  const std::vector<float> before = logits({3, 7, 2, 5});
  config["decoder_start_token_id"] = 6;
  write_config(config);
  model = ModelFolder(folder).text_encoder();
  EXPECT_EQ(logits({3, 7, 2, 5}) == before, by_last);
  const auto refused = [&](const char* key, const json& value) {
    json with = config;
    with[key] = value;
    EXPECT_EQ(refusal(with).find(key) != std::string::npos, !by_last || key == std::string("eos_token_id"))
        << value << refusal(with);
  };
  refused("decoder_start_token_id", 11);
  refused("decoder_start_token_id", nullptr);
  refused("eos_token_id", json::array());
}

// Without its decoder.
TEST(FamilyConfigs, T5sEncoderAloneIsAnEncoder) {
  for (const char* type : {"t5", "mt5"}) {
    json config = tiny_config(type);
    config["architectures"] = {std::string(type) == "t5" ? "T5EncoderModel" : "MT5EncoderModel"};
    for (const bool said : {false, true}) {
      config["is_encoder_decoder"] = said;
      EXPECT_EQ(refusal(config), "");
      EXPECT_EQ(family_kind(config.dump()), FamilyKind::encoder);
    }
    const TextEncoderSpec spec = text_encoder_spec(read_family(config.dump()).config);
    EXPECT_FALSE(spec.decoder);
    EXPECT_FALSE(spec.head);
  }
}

TEST(FamilyConfigs, LabelsHaveNamesAndAFunctionForTheirScores) {
  json config = tiny_config("bert");
  config["architectures"] = {"BertForSequenceClassification"};
  const auto read = [&](const json& more = json::object()) {
    json with = config;
    with.update(more);
    EXPECT_EQ(refusal(with), "");
    return read_family(with.dump()).config;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(read().labels, (Names{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(read({{"num_labels", 1}}).labels, Names{"LABEL_0"});
  const json names = {{"0", "bad"}, {"1", "good"}};
  EXPECT_EQ(read({{"id2label", names}}).labels, (Names{"bad", "good"}));
  EXPECT_EQ(read().score_function, ScoreFunction::softmax);
  EXPECT_EQ(read({{"num_labels", 1}}).score_function, ScoreFunction::sigmoid);
  EXPECT_EQ(read({{"problem_type", "multi_label_classification"}}).score_function, ScoreFunction::sigmoid);
  EXPECT_EQ(read({{"problem_type", "regression"}}).score_function, ScoreFunction::none);
  EXPECT_FALSE(read().pair_score_function);
  const char *identity = "torch.nn.modules.linear.Identity", *sigmoid = "torch.nn.modules.activation.Sigmoid";
  const json today = {{"sentence_transformers", {{"activation_fn", sigmoid}, {"version", "5"}}}};
  EXPECT_EQ(read(today).pair_score_function, ScoreFunction::sigmoid);
  const json before = {{"sbert_ce_default_activation_function", identity}};
  EXPECT_EQ(read(before).pair_score_function, ScoreFunction::none);
  const auto refused = [&](const char* key, const json& value) {
    json with = config;
    with[key] = value;
    EXPECT_NE(refusal(with).find(key), std::string::npos) << value << refusal(with);
  };
  refused("id2label", {{"0", "bad"}, {"2", "good"}});
  refused("id2label", {{"0", 5}});
  refused("id2label", json::object());
  refused("id2label", 3);
  refused("num_labels", 0);
  refused("num_labels", 1'000'000'000);
  refused("problem_type", "odd");
  refused("sentence_transformers", {{"activation_fn", "torch.nn.Softmax"}});
  // Other classes have the key too, and it means nothing there.
  config["architectures"] = {"BertModel"};
  EXPECT_TRUE(read({{"id2label", {{"5", 1}}}}).labels.empty());
}

TEST(FamilyConfigs, ListsHaveOneEntryForEachLayer) {
  json config = tiny_config("gemma2");
  config["layer_types"] = {"full_attention"};
  EXPECT_NE(refusal(config).find("layer_types: expected a list of 2"), std::string::npos);
  config["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_NE(refusal(config).find("no other mixer"), std::string::npos);
  json hybrid = tiny_config("qwen3_5_text");
  hybrid["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_NE(refusal(hybrid).find("full_attention or linear_attention"), std::string::npos);
  config["layer_types"] = {"full_attention", "sliding_attention"};
  config["sliding_window"] = nullptr;
  EXPECT_NE(refusal(config).find("sliding_window: expected a number of rows"), std::string::npos);
  config = tiny_config("smollm3");
  config["no_rope_layers"] = {1};
  EXPECT_NE(refusal(config).find("no_rope_layers: expected a list of 2"), std::string::npos);
}

// Sizes of recurrences that contradict each other.
TEST(FamilyConfigs, RecurrencesHaveSizesThatFit) {
  const auto says = [](const char* type, const json& change, const std::string& words) {
    json config = tiny_config(type);
    config.update(change);
    EXPECT_NE(refusal(config).find(words), std::string::npos) << change << " " << refusal(config);
  };
  says("mamba", {{"conv_kernel", 9}}, "conv_kernel: expected a whole number from 2 to 8");
  says("mamba", {{"conv_kernel", 1}}, "conv_kernel: expected a whole number from 2 to 8");
  says("mamba", {{"expand", 0.1}}, "expand: expected a factor");
  says("mamba", {{"expand", 1e20}}, "expand: expected a factor");
  says("mamba", {{"intermediate_size", 0}}, "intermediate_size: expected");
  says("mamba", {{"time_step_rank", "odd"}}, "time_step_rank: expected a whole number or");
  says("mamba", {{"time_step_rank", 0}}, "time_step_rank: expected");
  says("mamba", {{"hidden_act", "odd"}}, "hidden_act: expected an activation");
  says("mamba", {{"num_heads", 4}}, "num_heads: expected a key");
  says("mamba", {{"rescale_prenorm_residual", true}}, "rescale_prenorm_residual: expected false");
  says("falcon_mamba", {{"mixer_rms_eps", 0}}, "mixer_rms_eps: expected a number above 0");
  says("mamba2", {{"num_heads", 3}}, "num_heads: expected heads of head_dim");
  says("mamba2", {{"expand", 3}}, "num_heads: expected heads of head_dim");
  says("mamba2", {{"n_groups", 3}}, "n_groups: expected a divisor of the 4 heads");
  says("mamba2", {{"intermediate_size", 24}}, "intermediate_size: expected 16, if it is there at all");
  says("mamba2", {{"rms_norm", false}}, "rms_norm: expected true");
  says("qwen3_5_text", {{"attn_output_gate", false}}, "attn_output_gate: expected true");
  const json infinity = {{"__float__", "Infinity"}}, missing = {{"__float__", "NaN"}};
  for (const json& limit : {json{0.5, 0.1}, json{0.0}, json{-1, 1}, json{infinity, infinity},
                            json{0.0, missing}, json{0.0, 1e300}, json("odd")})
    says("mamba2", {{"time_step_limit", limit}}, "time_step_limit: expected two numbers");
  says("qwen3_5_text", {{"linear_num_key_heads", 3}}, "linear_num_key_heads: expected a divisor of the 4");
  says("qwen3_5_text", {{"hidden_act", 3}}, "hidden_act: expected an activation");
  says("qwen3_5_text", {{"full_attention_interval", 0}}, "full_attention_interval: expected");
  says("qwen3_5_text", {{"num_experts", 4}}, "num_experts: expected a key");
}

// Keys that published folders have beside those of transformers 5.
TEST(FamilyConfigs, KeysOfOlderFoldersWithRecurrencesAreKnown) {
  const auto known = [](const char* type, const json& more) {
    json config = tiny_config(type);
    config.update(more);
    EXPECT_EQ(refusal(config), "");
  };
  const json original = {{"d_model", 8},
                         {"n_layer", 2},
                         {"d_inner", 16},
                         {"fused_add_norm", true},
                         {"rms_norm", true},
                         {"pad_vocab_size_multiple", 8},
                         {"expand", 2},
                         {"intermediate_size", 16},
                         {"ssm_cfg", json::object()}};
  for (const char* type : {"mamba", "falcon_mamba", "mamba2"}) known(type, original);
  known("mamba2",
        {{"norm_before_gate", true}, {"time_step_scale", 1.0}, {"time_step_init_scheme", "random"}});
  known("qwen3_5_text", {{"attn_output_gate", true},
                         {"output_gate_type", "swish"},
                         {"mamba_ssm_dtype", "float32"},
                         {"mtp_num_hidden_layers", 1},
                         {"rope_parameters",
                          {{"rope_theta", 1e7},
                           {"partial_rotary_factor", 0.25},
                           {"mrope_interleaved", true},
                           {"mrope_section", {1, 1, 0}}}}});
}

// transformers wrote bare words before its version 5, which are no JSON.
TEST(FamilyConfigs, InfinityMayBeABareWord) {
  const fs::path folder = fs::temp_directory_path() / ("fovea-infinity-" + std::to_string(::getpid()));
  const json config = tiny_config("mamba2");
  save_random_model(folder.string(), config.dump());
  const auto with = [&](const std::string& limit, const std::string& name) {
    std::string text = config.dump();
    text.pop_back();
    std::ofstream(folder / "config.json")
        << text << R"(, "_name_or_path": ")" << name << R"(", "time_step_limit": )" << limit << "}";
    return loaded(folder);
  };
  const std::string name = R"(a \" Infinity \\)";
  EXPECT_EQ(with("[0.0, Infinity]", name), "");
  EXPECT_EQ(json::parse(ModelFolder(folder).config())["_name_or_path"], json::parse('"' + name + '"'));
  EXPECT_EQ(with(R"([0.0, {"__float__": "Infinity"}])", name), "");
  EXPECT_NE(with("[0.0, NaN]", name).find("time_step_limit"), std::string::npos);
  EXPECT_NE(with("[0.0, -Infinity]", name).find("time_step_limit"), std::string::npos);
  EXPECT_NE(with("[0.0, Infinit]", name), "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace fovea::models
