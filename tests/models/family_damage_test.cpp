// Folders of families with tensors and configs that are damaged: each is refused by the name of what is
// wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "files/fuzz_count.h"
#include "files/mutated.h"
#include "fovea/core/philox.h"
#include "fovea/files/weights.h"
#include "models/family_folders.h"

namespace fovea::models {
namespace {

class DamagedFamilies : public FamilyFolders {};

TEST_P(DamagedFamilies, NameTheTensorThatIsWrong) {
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
TEST_P(DamagedFamilies, NameTheKeyThatIsWrong) {
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
  if (GetParam() == "roformer") {  // whose positions no config changes
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
TEST_P(DamagedFamilies, RefuseSizesBeyondTheirWeights) {
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

// Whatever bytes stand in a config, it is refused, or a model runs.
TEST_P(DamagedFamilies, SurviveAnyConfig) {
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
TEST_P(DamagedFamilies, ConfigsAreReadOrRefused) {
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

INSTANTIATE_TEST_SUITE_P(Table, DamagedFamilies, testing::ValuesIn(families()), test_name);

}  // namespace
}  // namespace fovea::models
