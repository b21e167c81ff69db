// What families that cannot be run would need.
#include <string>
#include <string_view>

#include "models/family/row.h"

namespace fovea::models {
namespace {

constexpr const char* experts = "feed-forward parts of experts, and blocks here have one feed-forward part";
constexpr const char* alibi = "positions by ALiBi, which only bloom and mpt have here";
constexpr const char* images = "images beside texts, and models here read ids alone";
constexpr const char* sound = "sound, and models here read ids alone";
constexpr const char* two_mixers =
    "attention in some layers and Mamba in others, which families here do not have";
constexpr const char* latent =
    "latent attention (keys and values of low rank), which families here do not have";
constexpr const char* sparse = "attention to blocks and to global ids, which families here do not have";

// By model_type of transformers 5.23.
constexpr std::pair<std::string_view, const char*> known[] = {
    {"afmoe", experts},
    {"apertus", "the activation xielu, which is not among those of a block"},
    {"bamba", two_mixers},
    {"big_bird", sparse},
    {"bigbird_pegasus", sparse},
    {"bitnet", "norms inside of attention and of the feed-forward part"},
    {"blenderbot-small", "a norm of embeddings before positions are added"},
    {"codegen", "a fused tensor of q, v and k by groups of heads, in an order that no rule here has"},
    {"convbert", "attention beside convolutions in one mixer"},
    {"ctrl", "sinusoidal positions of another form"},
    {"dbrx", experts},
    {"deberta", "scores between contents and relative positions, both ways"},
    {"deberta-v2", "scores between contents and relative positions, both ways"},
    {"deepseek_v2", "latent attention and feed-forward parts of experts, which families here do not have"},
    {"deepseek_v3", "latent attention and feed-forward parts of experts, which families here do not have"},
    {"diffllama", "differential attention, which families here do not have"},
    {"dots1", experts},
    {"ernie4_5_moe", experts},
    {"esm", "a factor of embeddings that follows from how many ids of a text are masked"},
    {"falcon_h1", "attention and a recurrence side by side in one block, and blocks here have one mixer"},
    {"flex_olmo", experts},
    {"fnet", "a Fourier transform in the place of attention"},
    {"funnel", "blocks that shorten the sequence"},
    {"gemma3", images},
    {"gemma3n", images},
    {"glm4_moe", experts},
    {"gpt_neox_japanese", "a bias behind attention in the last block alone"},
    {"gpt_oss", experts},
    {"granitemoe", experts},
    {"granitemoehybrid", experts},
    {"hunyuan_v1_dense", "norms of queries and keys behind the rotation, and here they stand before it"},
    {"hunyuan_v1_moe", experts},
    {"ibert", "values quantised inside of the blocks"},
    {"jamba", experts},
    {"jetmoe", experts},
    {"kimi_linear", "latent attention and feed-forward parts of experts, which families here do not have"},
    {"led", sparse},
    {"lfm2", "short convolutions in the place of attention"},
    {"lfm2_moe", experts},
    {"llama4", images},
    {"llama4_text", experts},
    {"longformer", sparse},
    {"longt5", "attention to blocks and to their summaries, which families here do not have"},
    {"minicpm3", latent},
    {"minimax", experts},
    {"ministral3", "a scale of queries that grows with their positions"},
    {"mixtral", experts},
    {"mllama", images},
    {"mobilebert", "blocks with a bottleneck"},
    {"nanochat", "norms without weights, and of queries and keys behind the rotation"},
    {"nemotron_h", two_mixers},
    {"nllb-moe", experts},
    {"nystromformer", "attention by landmarks"},
    {"olmoe", experts},
    {"openai-gpt", "norms behind the parts of a causal block"},
    {"pegasus_x", sparse},
    {"persimmon", "layer norms of queries and keys beside a fused tensor of q, k and v by head"},
    {"phimoe", experts},
    {"prophetnet", "streams that predict several ids at once"},
    {"qwen2_audio", sound},
    {"qwen2_moe", experts},
    {"qwen2_vl", images},
    {"qwen3_5", "images beside the texts of qwen3_5_text, and no model here reads them"},
    {"qwen3_5_moe", "images and feed-forward parts of experts, which no model here has"},
    {"qwen3_5_moe_text", experts},
    {"qwen3_moe", experts},
    {"qwen3_next", experts},
    {"recurrent_gemma", "the recurrence RG-LRU, which is not among the mixers of a block"},
    {"reformer", "attention by hashes"},
    {"rwkv", "the recurrence RWKV-4, which is not among the mixers of a block"},
    {"squeezebert", "grouped convolutions in the place of matrices"},
    {"switch_transformers", experts},
    {"t5gemma", "a translator whose sides are blocks of Gemma"},
    {"whisper", sound},
    {"xlnet", "attention in two streams"},
    {"xlstm", "the recurrence xLSTM, which is not among the mixers of a block"},
    {"xmod", "adapters of languages behind each block"},
    {"zamba", two_mixers},
    {"zamba2", two_mixers}};

// What a key asks for, in any family. A value of null, false, 0 or 1 asks for nothing.
constexpr std::pair<std::string_view, const char*> asked_by_key[] = {
    {"num_experts", experts},      {"num_local_experts", experts},
    {"n_routed_experts", experts}, {"moe_num_experts", experts},
    {"kv_lora_rank", latent},      {"vision_config", images},
    {"audio_config", sound},       {"alibi", alibi},
    {"mamba_d_state", two_mixers}, {"ssm_cfg", "another form of the recurrence Mamba"}};

}  // namespace

std::string missing_parts(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  for (const auto& [name, parts] : known) {
    if (type != config.end() && *type == name) return parts;
  }
  for (const auto& [key, parts] : asked_by_key) {
    const auto value = config.find(key);
    const bool asks =
        value != config.end() && !value->is_null() && *value != false && *value != 0 && *value != 1;
    if (asks) return std::string(parts) + " (" + std::string(key) + " is " + shown(*value) + ")";
  }
  return "";
}

}  // namespace fovea::models
