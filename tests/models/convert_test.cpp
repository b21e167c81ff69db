// Folders that are written anew. tests/models/convert_oracle.py lets transformers read them.
#include "fovea/models/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fovea/files/bytes.h"
#include "fovea/files/safetensors.h"
#include "models/random_family.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Convert : public testing::Test {
 protected:
  Convert() : folder(fs::temp_directory_path() / ("fovea-convert-" + std::to_string(::getpid()))) {
    fs::create_directories(folder);
  }
  ~Convert() override { fs::remove_all(folder); }

  // A folder with random weights and this config.
  fs::path written(const std::string& name, const json& config) const {
    save_random_model((folder / name).string(), config.dump());
    return folder / name;
  }
  static files::TensorFile weights(const fs::path& path) {
    return files::load_weights(files::find_weights(path));
  }
  static json config_of(const fs::path& path) {
    return json::parse(files::read_file(path / "config.json", 1 << 20));
  }
  static void expect_same(const files::TensorFile& a, const files::TensorFile& b) {
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const files::NamedTensor& named : a.tensors) {
      const Tensor* other = b.find(named.name);
      ASSERT_TRUE(other) << named.name;
      ASSERT_EQ(other->dtype(), named.tensor.dtype()) << named.name;
      ASSERT_EQ(other->shape(), named.tensor.shape()) << named.name;
      const auto bytes = static_cast<std::size_t>(other->count()) * size_of(other->dtype());
      EXPECT_EQ(std::memcmp(other->raw(), named.tensor.raw(), bytes), 0) << named.name;
    }
  }
  std::string refusal(const fs::path& from, const ConvertOptions& options = {}) const {
    try {
      convert_folder(from, folder / "refused", options);
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }

  const json llama{{"model_type", "llama"},    {"architectures", {"LlamaForCausalLM"}},
                   {"vocab_size", 11},         {"hidden_size", 8},
                   {"intermediate_size", 12},  {"num_hidden_layers", 2},
                   {"num_attention_heads", 2}, {"rope_theta", 500.0},
                   {"torch_dtype", "float32"}};
  fs::path folder;
};

TEST_F(Convert, TheSameTypeHasTheSameBytesInOneFileAndInShards) {
  const fs::path from = written("from", llama);
  std::ofstream(from / "tokenizer.json") << "{}";
  std::ofstream(from / "notes.bin") << "x";
  fs::create_directories(from / "1_Pooling");
  std::ofstream(from / "1_Pooling" / "config.json") << "{}";
  const Converted whole = convert_folder(from, folder / "whole");
  expect_same(weights(from), weights(folder / "whole"));
  EXPECT_EQ(whole.tensors, std::ssize(weights(from).tensors));
  EXPECT_EQ(whole.files, (std::vector<std::string>{"1_Pooling", "tokenizer.json"}));
  EXPECT_TRUE(fs::exists(folder / "whole" / "1_Pooling" / "config.json"));
  EXPECT_FALSE(fs::exists(folder / "whole" / "notes.bin"));
  convert_folder(from, folder / "shards", {.shard_bytes = 600});
  EXPECT_TRUE(fs::exists(folder / "shards" / "model.safetensors.index.json"));
  expect_same(weights(from), weights(folder / "shards"));
}

// 16 bits are exact in 32, so they come back as they were.
TEST_F(Convert, SixteenBitsComeBackFromThirtyTwo) {
  const fs::path from = written("from", llama);
  for (const DType type : {DType::bf16, DType::f16}) {
    const fs::path narrow = folder / ("narrow" + std::string(to_string(type))),
                   wide = folder / ("wide" + std::string(to_string(type))),
                   again = folder / ("again" + std::string(to_string(type)));
    convert_folder(from, narrow, {.type = type});
    convert_folder(narrow, wide, {.type = DType::f32});
    convert_folder(wide, again, {.type = type});
    expect_same(weights(narrow), weights(again));
    for (const files::NamedTensor& named : weights(narrow).tensors) EXPECT_EQ(named.tensor.dtype(), type);
    EXPECT_EQ(config_of(narrow)["dtype"], type == DType::bf16 ? "bfloat16" : "float16");
    EXPECT_EQ(config_of(wide)["dtype"], "float32");
    // Without a type they stay as they are.
    convert_folder(narrow, folder / ("same" + std::string(to_string(type))));
    expect_same(weights(narrow), weights(folder / ("same" + std::string(to_string(type)))));
  }
}

TEST_F(Convert, ConfigsHaveTodaysKeysAndTheSameMeaning) {
  const auto converted = [&](const char* name, const json& config) {
    const fs::path from = written(name, config), to = folder / (std::string(name) + "-now");
    convert_folder(from, to);
    EXPECT_EQ(to_json(read_family(config.dump()).config), to_json(read_family(config_of(to).dump()).config));
    return config_of(to);
  };
  json now = converted("flat", llama);
  EXPECT_EQ(now["rope_parameters"], (json{{"rope_type", "default"}, {"rope_theta", 500.0}}));
  for (const char* key : {"rope_theta", "torch_dtype"}) EXPECT_FALSE(now.contains(key)) << key;
  json scaled = llama;
  scaled["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  now = converted("scaled", scaled);
  EXPECT_EQ(now["rope_parameters"], (json{{"rope_type", "linear"}, {"rope_theta", 500.0}, {"factor", 2.0}}));
  EXPECT_FALSE(now.contains("rope_scaling"));
  json gemma = llama;
  gemma.update({{"model_type", "gemma3_text"}, {"architectures", {"Gemma3ForCausalLM"}}, {"head_dim", 6}});
  gemma.update({{"rope_local_base_freq", 50.0},
                {"sliding_window", 3},
                {"sliding_window_pattern", 2},
                {"num_key_value_heads", 1}});
  now = converted("by-layer", gemma);
  EXPECT_EQ(now["rope_parameters"]["sliding_attention"]["rope_theta"], 50.0);
  EXPECT_EQ(now["rope_parameters"]["full_attention"]["rope_theta"], 500.0);
  EXPECT_EQ(now["layer_types"], (json{"sliding_attention", "full_attention"}));
  // What is today's form already stays as it is.
  convert_folder(folder / "by-layer-now", folder / "twice");
  EXPECT_EQ(config_of(folder / "twice"), now);
}

TEST_F(Convert, CopiesOfOtherTensorsAreLeftOut) {
  json tied = llama;
  tied["tie_word_embeddings"] = true;
  const fs::path from = written("from", tied);
  files::TensorFile file = weights(from);
  file.tensors.push_back({"lm_head.weight", file.find("model.embed_tokens.weight")->clone()});
  file.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", Tensor::zeros(DType::f32, {2})});
  files::save_safetensors(from / "model.safetensors", file);
  const Converted done = convert_folder(from, folder / "to");
  EXPECT_EQ(done.left_out,
            (std::vector<std::string>{"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}));
  // An output matrix with other numbers counts, whatever the config says.
  file.tensors[file.tensors.size() - 2].tensor.data<float>()[3] += 1.0f;
  files::save_safetensors(from / "model.safetensors", file);
  EXPECT_EQ(convert_folder(from, folder / "own").left_out.size(), 1u);
}

TEST_F(Convert, NormsOfTheFirstFilesGetTodaysNames) {
  const json bert{{"model_type", "bert"},     {"architectures", {"BertForMaskedLM"}},
                  {"vocab_size", 11},         {"hidden_size", 8},
                  {"intermediate_size", 12},  {"num_hidden_layers", 1},
                  {"num_attention_heads", 2}, {"max_position_embeddings", 16}};
  const fs::path from = written("from", bert);
  const files::TensorFile today = weights(from);
  files::TensorFile old = today;
  for (files::NamedTensor& named : old.tensors) {
    for (const auto& [now, before] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (named.name.ends_with(now))
        named.name.replace(named.name.rfind("LayerNorm"), std::string::npos, before);
    }
  }
  files::save_safetensors(from / "model.safetensors", old);
  convert_folder(from, folder / "to");
  expect_same(today, weights(folder / "to"));
}

// The same rows and the same logits, by the class of another library.
TEST_F(Convert, ATranslatorOfOursIsAMarian) {
  const TransformerConfig config{
      .vocabulary = 23, .dim = 8, .feed_forward = 12, .heads = 2, .encoder_layers = 2, .decoder_layers = 1};
  const auto ours = make_transformer(config, 5);
  save_model((folder / "ours").string(), *ours);
  EXPECT_EQ(convert_folder(folder / "ours", folder / "theirs").model_type, "marian");
  const json marian = config_of(folder / "theirs");
  EXPECT_EQ(marian["architectures"], json{"MarianMTModel"});
  EXPECT_EQ(weights(folder / "theirs").find("final_logits_bias")->shape(), (Shape{1, 23}));
  const auto theirs = ModelFolder(folder / "theirs").sequence_to_sequence();
  nn::Context context;
  const Batch batch = make_batch({{5, 7, 4, 9}}, {{8, 6, 5}});
  const Tensor a = ours->logits(ours->hidden(context, batch, nullptr, nullptr)),
               b = theirs->logits(theirs->hidden(context, batch, nullptr, nullptr));
  ASSERT_EQ(a.shape(), b.shape());
  for (std::int64_t i = 0; i < a.count(); ++i) EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5);
  TransformerConfig other = config;
  other.norm = NormPlace::pre;
  save_model((folder / "pre").string(), *make_transformer(other, 5));
  EXPECT_NE(refusal(folder / "pre").find("expected a model that transformers has"), std::string::npos);
  other = config;
  other.decoder_mixers = parse_mixers("gated_delta", 1);
  save_model((folder / "recurrent").string(), *make_transformer(other, 5));
  EXPECT_NE(refusal(folder / "recurrent").find("expected a model that transformers has"), std::string::npos);
}

TEST_F(Convert, RefusesWhatWouldBeWrong) {
  const fs::path from = written("from", llama);
  EXPECT_THROW(convert_folder(from, from), FileError);
  convert_folder(from, folder / "to");
  EXPECT_THROW(convert_folder(from, folder / "to"), FileError);  // weights are there
  files::TensorFile file = weights(from);
  file.tensors.front().tensor.data<float>()[0] = 1e6f;
  files::save_safetensors(from / "model.safetensors", file);
  EXPECT_NE(refusal(from, {.type = DType::f16}).find("has a number that f16 cannot hold"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "refused"));  // no empty folder is left
  EXPECT_EQ(refusal(from, {.type = DType::bf16}), "");
  json odd = llama;
  odd["odd"] = 1;
  std::ofstream(from / "config.json") << odd.dump();
  fs::remove_all(folder / "refused");
  EXPECT_NE(refusal(from).find("odd: expected a key"), std::string::npos);
}

}  // namespace
}  // namespace fovea::models
