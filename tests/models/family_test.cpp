// Families of other libraries: folders that are written and read. Errors of damaged ones are in
// family_damage_test.cpp. tests/models/families_oracle.py compares the numbers with transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "fovea/files/weights.h"
#include "fovea/models/decoding.h"
#include "fovea/models/model_folder.h"
#include "models/family/row.h"
#include "models/family_folders.h"

namespace fovea::models {
namespace {

class Families : public FamilyFolders {};

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
  const std::set<std::string_view> without{"ernie4_5", "cohere", "cohere2", "granite",
                                           "xglm",     "cwm",    "jais2",   "vaultgemma"};
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
  // mBART and PLBart begin with the last id that is no padding, the others with the config's.
  const bool by_last = GetParam() == "mbart" || GetParam() == "plbart";
  const std::int32_t first = by_last ? 5 : 4;
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

INSTANTIATE_TEST_SUITE_P(Table, Families, testing::ValuesIn(families()), test_name);

}  // namespace
}  // namespace fovea::models
