// Families of other libraries: configs that are read, folders that are written and read, and the errors of
// damaged ones. tests/models/families_oracle.py compares the numbers with transformers.
#include "fovea/models/family.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
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
#include "models/tiny_families.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;
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
  const ModelFolder opened(folder);
  const fs::path other = folder / "other";
  const auto refused = [&](const nn::ParameterSet& parameters) {
    EXPECT_THROW(save_model(other.string(), opened.config(), parameters), InvalidArgument);
  };
  with_model(opened, refused, WeightType::f32);
  EXPECT_FALSE(fs::exists(other));
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
  const std::set<std::string_view> without{"ernie4_5", "cohere", "cohere2", "granite", "xglm"};
  if (!config_is_translator(config) && attends_somewhere(config))
    EXPECT_EQ(heads.empty(), without.contains(GetParam()));
}

// A table of one side is a copy of the shared one, or the folder is refused: transformers has other tables
// there where a config ties none.
TEST_P(Families, TablesOfOneSideAreCopies) {
  const json config = tiny_config(GetParam());
  if (!config_is_translator(config)) GTEST_SKIP() << "it has one table";
  write(config);
  files::TensorFile file = files::load_safetensors(folder / "model.safetensors");
  const auto shared = std::ranges::find_if(
      file.tensors, [](const files::NamedTensor& t) { return t.name.ends_with("shared.weight"); });
  ASSERT_NE(shared, file.tensors.end());
  const std::string prefix = shared->name.substr(0, shared->name.size() - std::size("shared.weight") + 1);
  file.tensors.push_back({prefix + "encoder.embed_tokens.weight", shared->tensor.clone()});
  const Tensor& table = file.tensors.back().tensor;
  files::save_safetensors(folder / "model.safetensors", file);
  EXPECT_EQ(loaded(folder), "");
  table.data<float>()[3] += 1.0f;
  files::save_safetensors(folder / "model.safetensors", file);
  EXPECT_NE(loaded(folder).find("expected the numbers of the shared table"), std::string::npos)
      << loaded(folder);
}

// A folder without the prefix of the model in it, such as GPT-2's on the Hub.
TEST_P(Families, DoNotNeedThePrefixOfTheirNames) {
  write(tiny_config(GetParam()));
  const Tensor before = rows();
  files::TensorFile file = files::load_safetensors(folder / "model.safetensors");
  const std::string_view prefixes[] = {"model.",
                                       "transformer.",
                                       "bert.",
                                       "roberta.",
                                       "mpnet.",
                                       "distilbert.",
                                       "backbone.",
                                       "electra.",
                                       "albert.",
                                       "data2vec_text.",
                                       "roberta_prelayernorm."};
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
  // The header's first tensor says that it has whole numbers.
  files::save_safetensors(folder / "model.safetensors", good);
  std::string whole = bytes();
  whole.replace(whole.find("F32"), 3, "I32");
  files::write_file(folder / "model.safetensors", whole);
  says(loaded(folder), "expected floating-point numbers, got I32");
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
  if (config.rotary_elements) {  // the only number of its rotation that a config may change
    says("rotary_dim", 3, "rope_parameters: expected rotary_dim: an even number");
    says("rope_parameters", json::object(), "rope_parameters: expected a key that");
    return;
  }
  if (config.window_rope) {
    says("rope_parameters", {{"full_attention", {{"odd", 1}}}}, "rope_parameters.full_attention.odd");
    says("rope_parameters", {{"odd", {{"rope_theta", 1}}}}, "rope_parameters.odd");
    return;
  }
  says("rope_parameters", {{"rope_type", "proportional"}},
       "rope_parameters.rope_type: expected default, linear");
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
    // One block serves any number of layers.
    if (std::string(key) == "num_hidden_layers" && GetParam() == "albert") continue;
    json config = good;
    config[key] = size;
    write_config(config);
    EXPECT_NE(loaded(folder), "") << key;
  }
  // Rotary tables grow with what is read, and a position of the config costs nothing.
  json long_one = good;
  if (!positions_end(read_family(good.dump()).config)) return;
  long_one[GetParam() == "mpt"            ? "max_seq_len"
           : good.contains("n_positions") ? "n_positions"
                                          : "max_position_embeddings"] = 1 << 30;
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
  if (!config_is_translator(config) || find_family(GetParam())->heads.empty()) return;
  for (const ClassRow& row : find_family(GetParam())->classes) {
    if (row.head == FamilyHead::sequence_labels) config["architectures"] = {row.name};
  }
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

}  // namespace
}  // namespace fovea::models
