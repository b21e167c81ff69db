#include "text/sentencepiece_classes.h"

namespace fovea::text {
namespace {

using Class = SentencePieceClass;

constexpr const char* kT5[] = {"t5", "mt5", "umt5"};
constexpr const char* kXlmRoberta[] = {"xlm-roberta"};
constexpr const char* kCamembert[] = {"camembert"};
constexpr const char* kMbart[] = {"mbart"};
constexpr const char* kLlama[] = {"llama", "mistral"};
constexpr const char* kGemma[] = {"gemma", "gemma2", "gemma3_text"};

constexpr NamedToken kT5Tokens[] = {{"pad_token", "<pad>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
constexpr NamedToken kRobertaTokens[] = {
    {"bos_token", "<s>"},   {"eos_token", "</s>"},  {"sep_token", "</s>"},         {"cls_token", "<s>"},
    {"unk_token", "<unk>"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>", true}};
constexpr NamedToken kLlamaTokens[] = {
    {"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", nullptr}};
constexpr NamedToken kGemmaTokens[] = {{"unk_token", "<unk>"},
                                       {"bos_token", "<bos>"},
                                       {"eos_token", "<eos>"},
                                       {"pad_token", "<pad>"},
                                       {"mask_token", "<mask>"}};

// In the order of their ids.
constexpr const char* kMbartLanguages[] = {"ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI",
                                           "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR",
                                           "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU",
                                           "si_LK", "tr_TR", "vi_VN", "zh_CN"};
constexpr const char* kMbart50Languages[] = {
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT",
    "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK",
    "tr_TR", "vi_VN", "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE",
    "km_KH", "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN",
    "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"};

constexpr auto kUnigram = SentencePieceFile::Type::unigram, kBpe = SentencePieceFile::Type::bpe;

constexpr Class kClasses[] = {
    {.name = "T5Tokenizer",
     .file = "spiece.model",
     .model_types = kT5,
     .type = kUnigram,
     .tokens = kT5Tokens,
     .extra_ids = true},
    {.name = "XLMRobertaTokenizer",
     .file = "sentencepiece.bpe.model",
     .model_types = kXlmRoberta,
     .type = kUnigram,
     .tokens = kRobertaTokens,
     .front = Class::Front::fairseq,
     .around = Class::Template::roberta},
    {.name = "CamembertTokenizer",
     .file = "sentencepiece.bpe.model",
     .model_types = kCamembert,
     .type = kUnigram,
     .tokens = kRobertaTokens,
     .front = Class::Front::camembert,
     .around = Class::Template::roberta},
    {.name = "MBartTokenizer",
     .file = "sentencepiece.bpe.model",
     .model_types = kMbart,
     .type = kUnigram,
     .tokens = kRobertaTokens,
     .front = Class::Front::fairseq,
     .languages = kMbartLanguages,
     .around = Class::Template::language_behind},
    {.name = "MBart50Tokenizer",
     .file = "sentencepiece.bpe.model",
     .model_types = {},
     .type = kUnigram,
     .tokens = kRobertaTokens,
     .front = Class::Front::fairseq,
     .languages = kMbart50Languages,
     .around = Class::Template::language_before},
    {.name = "LlamaTokenizer",
     .file = "tokenizer.model",
     .model_types = kLlama,
     .type = kBpe,
     .tokens = kLlamaTokens,
     .blanks = Class::Blanks::text,
     .around = Class::Template::as_said},
    {.name = "GemmaTokenizer",
     .file = "tokenizer.model",
     .model_types = kGemma,
     .type = kBpe,
     .tokens = kGemmaTokens,
     .blanks = Class::Blanks::as_they_are,
     .around = Class::Template::as_said},
};

constexpr const char* kFiles[] = {"spiece.model", "sentencepiece.bpe.model", "tokenizer.model"};

}  // namespace

std::span<const SentencePieceClass> sentencepiece_classes() {
  return kClasses;
}

std::span<const char* const> sentencepiece_files() {
  return kFiles;
}

}  // namespace fovea::text
