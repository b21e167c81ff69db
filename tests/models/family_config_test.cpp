// Configs of families: keys of today's and of older folders, classes, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fovea/models/family.h"
#include "fovea/models/model_folder.h"
#include "models/family/row.h"
#include "models/random_family.h"
#include "models/tiny_families.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;

TEST(FamilyConfigs, AnUnknownFamilyIsRefusedWithItsReason) {
  const std::string error = refusal({{"model_type", "gpt_odd"}});
  EXPECT_NE(error.find("expected one of the " + std::to_string(families().size()) + " families"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("gpt_odd"), std::string::npos);
  for (const std::string_view type : families()) EXPECT_FALSE(family_classes(type).empty()) << type;
  EXPECT_TRUE(family_classes("gpt_odd").empty());
  // What some of them would need is known.
  EXPECT_NE(refusal({{"model_type", "qwen3_next"}}).find("needs feed-forward parts of experts"),
            std::string::npos);
  EXPECT_NE(refusal({{"model_type", "falcon_h1"}}).find("side by side"), std::string::npos);
  EXPECT_NE(refusal({{"model_type", "pegasus_x"}}).find("attention to blocks"), std::string::npos);
  // Of others their keys tell it, where a value asks for something.
  EXPECT_NE(refusal({{"model_type", "gpt_odd"}, {"num_experts", 8}}).find("experts"), std::string::npos);
  EXPECT_NE(refusal({{"model_type", "gpt_odd"}, {"alibi", true}}).find("ALiBi"), std::string::npos);
  for (const json& nothing : {json(nullptr), json(false), json(0), json(1)}) {
    const std::string none = refusal({{"model_type", "gpt_odd"}, {"num_experts", nothing}, {"alibi", false}});
    EXPECT_EQ(none.find("needs"), std::string::npos) << none;
  }
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
  json neox = tiny_config("gpt_neox");
  neox.erase("rotary_pct");
  same(neox, {{"rotary_pct", 0.5}, {"rotary_emb_base", 500.0}},
       {{"rope_parameters", {{"rope_theta", 500.0}, {"partial_rotary_factor", 0.5}}}});
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

// Without its decoder.
TEST(FamilyConfigs, T5sEncoderAloneIsAnEncoder) {
  for (const auto& [type, name] :
       {std::pair{"t5", "T5EncoderModel"}, {"mt5", "MT5EncoderModel"}, {"umt5", "UMT5EncoderModel"}}) {
    json config = tiny_config(type);
    config["architectures"] = {name};
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

// Their heads may be of another size than the width divided by their number.
TEST(FamilyConfigs, HeadsOfCohere2HaveTheirOwnSize) {
  json config = tiny_config("cohere2");
  config["head_dim"] = 24;
  EXPECT_EQ(read_family(config.dump()).config.head_dim, 24);
  config["head_dim"] = "wide";
  EXPECT_NE(refusal(config).find("head_dim: expected a whole number"), std::string::npos);
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

// Keys and spellings of published folders that transformers itself does not write.
TEST(FamilyConfigs, PublishedFoldersMayHaveOtherKeys) {
  const auto with = [](const char* type, const json& more) {
    json config = tiny_config(type);
    config.update(more);
    return refusal(config);
  };
  EXPECT_EQ(with("mpt", {{"architectures", {"MPTForCausalLM"}},
                         {"attn_config",
                          {{"alibi", true},
                           {"alibi_bias_max", 8},
                           {"attn_impl", "torch"},
                           {"attn_pdrop", 0},
                           {"attn_type", "multihead_attention"},
                           {"attn_uses_sequence_id", false},
                           {"clip_qkv", nullptr},
                           {"prefix_lm", false},
                           {"qk_ln", false},
                           {"softmax_scale", nullptr}}},
                         {"init_device", "cpu"},
                         {"no_bias", true},
                         {"norm_type", "low_precision_layernorm"},
                         {"verbose", 0}}),
            "");
  EXPECT_NE(with("mpt", {{"attn_config", {{"qk_ln", true}}}}).find("attn_config.qk_ln: expected false"),
            std::string::npos);
  EXPECT_NE(with("mpt", {{"attn_config", {{"odd", 1}}}}).find("attn_config.odd: expected nothing"),
            std::string::npos);
  EXPECT_EQ(with("umt5", {{"scalable_attention", true}, {"tie_word_embeddings", false}}), "");
  const json published{{"n_embed", 12},         {"n_inner", nullptr},
                       {"offset_alibi", 100},   {"masked_softmax_fusion", true},
                       {"skip_bias_add", true}, {"skip_bias_add_qkv", false}};
  EXPECT_EQ(with("bloom", published), "");
  json bloom = tiny_config("bloom");
  bloom.update(published);
  EXPECT_EQ(read_family(bloom.dump()).config.dim, 12);
}

// T5's bias, BLOOM's ALiBi and recurrences take sequences of any length.
TEST(FamilyConfigs, SomeSequencesHaveNoLongestLength) {
  for (const char* type : {"t5", "umt5", "bloom", "mamba"})
    EXPECT_FALSE(positions_end(read_family(tiny_config(type).dump()).config)) << type;
  for (const char* type : {"gpt2", "llama", "mpnet", "mpt", "bart"})
    EXPECT_TRUE(positions_end(read_family(tiny_config(type).dump()).config)) << type;
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

// nomic-embed-text has the keys of its own code, and the same values as a config of transformers.
TEST(FamilyConfigs, PublishedKeysOfNomicBert) {
  json today = tiny_config("nomic_bert"), published = today;
  for (const auto& [before, now] : {std::pair{"n_embd", "hidden_size"},
                                    {"n_head", "num_attention_heads"},
                                    {"n_inner", "intermediate_size"},
                                    {"n_layer", "num_hidden_layers"},
                                    {"n_positions", "max_position_embeddings"}}) {
    published[before] = today[now];
    published.erase(now);
  }
  published.update({{"activation_function", "swiglu"},
                    {"prenorm", false},
                    {"rotary_emb_base", 1000},
                    {"rotary_emb_fraction", 1.0},
                    {"rotary_scaling_factor", nullptr},
                    {"use_flash_attn", true}});
  EXPECT_EQ(refusal(published), "");
  EXPECT_EQ(to_json(read_family(published.dump()).config), to_json(read_family(today.dump()).config));
  for (const auto& [key, value] : {std::pair<const char*, json>{"prenorm", true},
                                   {"rotary_emb_base", 10000},
                                   {"rotary_emb_fraction", 0.5},
                                   {"qkv_proj_bias", true}}) {
    json other = published;
    other[key] = value;
    EXPECT_NE(refusal(other).find(std::string(key) + ": expected"), std::string::npos);
  }
  // transformers reads today's names alone.
  for (const auto& [key, same, value] : {std::tuple{"n_embd", "hidden_size", json(64)},
                                         {"n_layer", "num_hidden_layers", json(9)},
                                         {"layer_norm_epsilon", "layer_norm_eps", json(0.125)}}) {
    json both = today;
    both[same] = today.value(same, json(1e-12));
    both[key] = value;
    EXPECT_NE(refusal(both).find(std::string(key) + ": expected the value of " + same), std::string::npos)
        << refusal(both);
    both[same] = value;
    EXPECT_EQ(refusal(both).find(key), std::string::npos) << refusal(both);
  }
}

TEST(FamilyConfigs, NoMoreElementsAreRotatedThanAHeadHas) {
  json config = tiny_config("gptj");
  config["rotary_dim"] = 6;
  EXPECT_NE(refusal(config).find("rotary_dim: expected at most the 4 elements of a head, got 6"),
            std::string::npos)
      << refusal(config);
}

// Without rope_parameters there is the scaling of the class, beside which transformers does not read a base.
TEST(FamilyConfigs, CwmHasAScalingOfItsOwn) {
  json config = tiny_config("cwm");
  const auto scaling = [&] { return read_family(config.dump()).config.rope.scaling; };
  EXPECT_EQ(refusal(config), "");
  EXPECT_TRUE(std::holds_alternative<Llama3Scaling>(scaling()));
  config["rope_theta"] = 500.0;
  EXPECT_NE(refusal(config).find("rope_theta: expected rope_parameters beside it"), std::string::npos);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  EXPECT_EQ(refusal(config), "");
  EXPECT_TRUE(std::holds_alternative<NoScaling>(scaling()));
}

// The window is half of local_attention, unless sliding_window says it.
TEST(FamilyConfigs, WindowsOfModernBertsDecoder) {
  json config = tiny_config("modernbert-decoder");
  const auto window = [&] { return read_family(config.dump()).config.window; };
  EXPECT_EQ(window(), 2);
  config["sliding_window"] = 3;
  EXPECT_EQ(window(), 3);
  config["sliding_window"] = nullptr;
  EXPECT_NE(refusal(config).find("sliding_window: expected a number of rows"), std::string::npos);
}

// EuroBERT's labels are pooled behind the dense layer, unless its config says otherwise.
TEST(FamilyConfigs, PoolingOfEuroBert) {
  json config = tiny_config("eurobert");
  config["architectures"] = {"EuroBertForSequenceClassification"};
  const auto layers = [&] { return read_family(config.dump()).config.head_layers; };
  EXPECT_TRUE(layers().pools_late);
  EXPECT_EQ(layers().pooling, SentencePooling::Kind::mean);
  config["classifier_pooling"] = "mean";
  EXPECT_FALSE(layers().pools_late);
  config["classifier_pooling"] = "bos";
  EXPECT_FALSE(layers().pools_late);
  EXPECT_EQ(layers().pooling, SentencePooling::Kind::first);
  config["classifier_pooling"] = "max";
  EXPECT_NE(refusal(config).find("classifier_pooling: expected"), std::string::npos);
}

}  // namespace
}  // namespace fovea::models
