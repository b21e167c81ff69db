// A language model and sampling from it: a decoder-only Transformer (Radford et al. 2018), that is the layers
// of Vaswani et al. 2017 under a causal mask, with pre-norm. It handles token ids only; the caller decides
// whether an id is a byte or a sub-word.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/cache/kv_cache.h"
#include "fovea/models/decoding.h"
#include "fovea/models/encoder.h"
#include "fovea/models/mixers.h"
#include "fovea/models/token_rules.h"

namespace fovea::models {

struct LanguageModelConfig {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 128, feed_forward = 512, heads = 4, layers = 4;
  std::int64_t positions = 4096;  ///< the longest sequence: LanguageModel::longest
  float dropout = 0.0f, attention_dropout = 0.0f;
  /// One for each layer; empty: attention in all. A model of a list with attention alone has no list in its
  /// config(). Recurrences have `heads` heads of dim / heads elements. Mamba-2 and RetNet's values have twice
  /// as many.
  std::vector<LayerMixer> mixers = {};
};

/// Any language model: what is between the ids and the logits.
struct LanguageModelSpec {
  std::int64_t vocabulary = 0;
  std::int64_t positions = 4096;  ///< the longest sequence
  nn::StackSpec stack = {};       ///< run under a causal mask
  float embedding_factor = 1.0f;  ///< of the embeddings as the stack's input
  /// The output matrix is the embeddings' table (Press & Wolf 2017, arXiv 1608.05859), or one of its own:
  /// parameter "lm_head.weight".
  enum class Output : std::uint8_t { tied, own };
  Output output = Output::tied;
  /// Between the last rows and the output matrix: parameters "head.dense" and, where there is a norm,
  /// "head.norm".
  struct Dense {
    autograd::Activation activation = autograd::Activation::gelu;
    nn::Linear::Bias bias = nn::Linear::Bias::with;
    std::optional<nn::NormSpec> norm = {};  ///< behind the activation
  };
  std::optional<Dense> dense = {};
  /// Of the logits: parameter "lm_head.bias".
  nn::Linear::Bias bias = nn::Linear::Bias::without;
  float logit_factor = 1.0f;            ///< of the logits, before a cap: Cohere
  std::optional<float> logit_cap = {};  ///< logits become cap·tanh(logit / cap): Gemma 2
};

/// Embeddings times sqrt(dim), causal layers with rotary positions (Su et al. 2021, arXiv 2104.09864), and an
/// output layer tied to the embeddings (Press & Wolf 2017, arXiv 1608.05859). The layers are those of Hugging
/// Face's Starcoder2. Each side can therefore read the other's model folders (save_model,
/// load_language_model). Layers with recurrences take the place of attention alone, and such a model has a
/// folder of its own kind.
class LanguageModel {
 public:
  /// Throws InvalidArgument for sizes below 1, for rates outside [0, 1), unless dim / heads is an even whole
  /// number, and unless there is a mixer for each layer or none.
  LanguageModel(const LanguageModelConfig& config, std::uint64_t seed);
  /// The same in `parameters`, which are empty: a reader's have a source, from which the values come.
  LanguageModel(const LanguageModelConfig& config, nn::ParameterSet parameters);
  /// A model whose values come from elsewhere, for inference. Parameters: "model.embed_tokens", "lm_head",
  /// and those of a TransformerStack named "model".
  LanguageModel(const LanguageModelSpec& spec, nn::ParameterSet::Source source);

  /// Of a model that was made of a LanguageModelSpec its sizes only; heads are those of the first block.
  const LanguageModelConfig& config() const noexcept { return config_; }
  /// Whether the model was made of a LanguageModelConfig, so that config() says all of it.
  bool has_config() const noexcept { return has_config_; }
  nn::ParameterSet& parameters() noexcept { return *parameters_; }
  const nn::ParameterSet& parameters() const noexcept { return *parameters_; }
  const nn::TransformerStack& stack() const noexcept { return stack_; }
  /// The most tokens of a sequence: config().positions, and any number where no layer has attention or rotary
  /// positions. The config of a family whose positions have no end has the largest number there.
  std::int64_t longest() const;
  /// The most tokens of a sequence that is read piece by piece with a cache. Fewer than longest() where
  /// longer texts have other rotary frequencies (DynamicNtkScaling, LongRopeScaling). The keys of a cache
  /// were rotated by those of the shorter text, and all that was computed from them would be other numbers.
  std::int64_t longest_kept() const;
  /// Why a text has no more tokens, for errors: longest() without reuse, longest_kept() with it.
  std::string reads(Reuse reuse) const;

  /// The input of the output layer, [size, length, dim]. Row i depends on tokens 0..i of its sequence alone,
  /// so no row depends on padding at the end. `weights` and `log_decays`: as in TransformerStack::Call.
  /// Throws InvalidArgument for tokens whose members do not belong together, as `loss` does, and for padded
  /// texts of more than longest_kept() tokens.
  nn::Var hidden(nn::Context& context, const Padded& tokens,
                 const std::function<Tensor*(std::string_view, std::size_t)>& weights = {},
                 const std::function<Tensor*(std::size_t)>& log_decays = {});
  /// The cross-entropies of all tokens but the first of each sequence, each given those before it, reduced:
  /// [1]. Throws InvalidArgument where no sequence has two tokens, for padded texts that read more than
  /// longest_kept() tokens, and for a model that caps its logits.
  nn::Var loss(nn::Context& context, const Padded& tokens, const LossOptions& options = {},
               autograd::CrossEntropyStats* stats = nullptr);
  /// What softmax makes probabilities of, for rows of `hidden` [..., dim]: [rows, vocabulary]. Not recorded.
  /// Throws InvalidArgument for rows of another width.
  Tensor logits(const nn::Var& hidden);
  /// log p(next token | ...) over the vocabulary, for rows of `hidden` [..., dim]: [rows, vocabulary]. Not
  /// recorded.
  Tensor log_probabilities(const nn::Var& hidden);

  /// The rows that this model keeps of what it reads, for the options of a KvCache.
  std::vector<CacheLayer> cache_layers(const CacheStore& store = Paged{}) const;
  /// Reads the next ids of a sequence of `cache`, which has the layers of cache_layers, and commits them.
  /// Returns their rows as `hidden` would, [1, ids.size(), dim]. If it throws (CacheFull, an id outside the
  /// vocabulary, more than longest_kept()), the sequence is as before.
  nn::Var extend(std::span<const std::int32_t> ids, KvCache& cache, Sequence& sequence);
  /// What a sequence reads beside others.
  struct Next {
    Sequence* sequence = nullptr;
    std::span<const std::int32_t> ids;
    bool known = true;  ///< whether KvCache::start(ids) shall find the rows
  };
  /// The same for several sequences: the rows of the first, then of the second, ... [1, all ids, dim]. The
  /// rows of a sequence have the same bits as alone, as long as the number of its ids is the same
  /// (docs/cache.md). `before_commit` is called with these rows before they are committed: if it throws, the
  /// sequences are as before.
  nn::Var extend(std::span<const Next> next, KvCache& cache,
                 const std::function<void(const nn::Var&)>& before_commit = {});

 private:
  /// Refuses more tokens behind `before` than the model reads.
  void check_padding(const char* function, const Padded& tokens, std::int64_t read) const;
  void check_length(const char* function, const char* argument, std::int64_t before, std::int64_t length,
                    Reuse reuse) const;
  nn::Var embed(nn::Context& context, std::span<const std::int32_t> ids, std::int64_t size) const;
  nn::Parameter& output_matrix() const { return output_ ? *output_ : *embedding_.table; }
  /// What the output matrix multiplies: rows, or what the dense layer makes of them.
  nn::Var before_output(nn::Context& context, const nn::Var& rows) const;
  nn::Var output_bias(nn::Context& context) const { return bias_ ? context.use(*bias_) : nn::Var(); }

  LanguageModelConfig config_;
  bool has_config_ = false;
  float embedding_factor_ = 1.0f, logit_factor_ = 1.0f;
  std::optional<float> logit_cap_;
  std::unique_ptr<nn::ParameterSet> parameters_;
  nn::Embedding embedding_;
  nn::TransformerStack stack_;
  nn::Linear dense_;  // without a weight: none
  autograd::Activation dense_activation_ = autograd::Activation::gelu;
  std::optional<nn::Norm> dense_norm_;
  nn::Parameter* output_ = nullptr;  // null: the embeddings' table
  nn::Parameter* bias_ = nullptr;    // of the logits
};

/// log p(id | those before it), in nats, of every id but the first. Throws InvalidArgument for fewer than two
/// ids, for one outside the vocabulary, and for more than longest().
std::vector<double> token_log_probabilities(LanguageModel& model, std::span<const std::int32_t> ids);

/// How a token is chosen. The rules act in this order, as in Hugging Face's generate:
/// 0. the logit of an id that stands in the text is divided by repetition_penalty if it is above 0, and
///    multiplied by it otherwise (Keskar et al. 2019, arXiv 1909.05858); then `rules` forbid and force ids;
/// 1. p_i ∝ exp(log p_i / temperature);
/// 2. the top_k most probable tokens stay (Fan et al. 2018, arXiv 1805.04833), and p is normalised again;
/// 3. of these, the smallest set of most probable tokens stays whose p sum to top_p or more (the nucleus:
///    Holtzman et al. 2020, arXiv 1904.09751), and p is normalised again. Of equally probable tokens the
///    smaller id comes first, in both cuts too, so exactly top_k stay;
/// 4. of these, the tokens stay whose p is at least min_p times the largest one (Nguyen et al. 2024, arXiv
///    2407.01082), and p is normalised again.
struct SampleOptions {
  double temperature = 1.0;         ///< 0: always the most probable token
  std::int64_t top_k = 0;           ///< 0: all
  double top_p = 1.0;               ///< in (0, 1]
  double min_p = 0.0;               ///< in [0, 1]
  double repetition_penalty = 1.0;  ///< above 0; 1: none
  TokenRules rules = {};
  std::uint64_t seed = 1;
  std::int64_t length = 100;  ///< tokens to write
  /// The number of the first token that is written, for its random number: how many were written before,
  /// where a text is continued.
  std::int64_t first = 0;
  Reuse reuse = Reuse::on;
};

struct Choice {
  std::int32_t id = 0;
  double probability = 0.0;
};
/// The tokens that can be drawn, most probable first; never one with log-probability -inf. Throws
/// InvalidArgument for options outside their ranges, for no log-probabilities, a NaN or +inf, or if all are
/// -inf.
std::vector<Choice> choices(std::span<const float> log_probabilities, const SampleOptions& options);
/// The token at which the running sum of `choices` exceeds `uniform`. Throws what `choices` throws, and
/// InvalidArgument for a `uniform` outside [0, 1).
std::int32_t sample(std::span<const float> log_probabilities, const SampleOptions& options, double uniform);

struct Generated;
/// Chooses the token that follows those in `written` by its logits, and appends it: the random number of
/// token i depends on options.seed and options.first + i alone. `read` are the ids before, for the repetition
/// penalty and the rules. Throws what `choices` throws.
void write_next(std::span<const float> logits, std::span<const std::int32_t> read,
                const SampleOptions& options, Generated& written);

struct Generated {
  std::vector<std::int32_t> ids;  ///< options.length of them, without the prompt
  /// Of each id in nats, under the model itself: before temperature and cuts.
  std::vector<double> log_probabilities;
  std::int64_t cache_bytes = 0;  ///< of the keys and values that were read at the end
};
/// Continues `prompt`. The random number of token i depends on options.seed and options.first + i alone. The
/// model does not read the last token. So n tokens after a prompt of m cost m + n - 1 rows with reuse;
/// without it they cost n passes, the first over m rows and the last over m + n - 1. Throws InvalidArgument
/// for an empty prompt, an id outside the vocabulary, and a length that is negative or too long for the
/// model. The same is thrown for rules that leave no id, and for what `choices` refuses.
Generated generate(LanguageModel& model, std::span<const std::int32_t> prompt, const SampleOptions& options);
/// The same behind what `sequence` has read: `prompt` is read first. The last token that is written is not
/// read. To continue, pass it as the next prompt, with options.first increased by the tokens written; the
/// result has the same bits as one call. Rules on the first or the last tokens of a text (min_new,
/// begin_suppress and forced_eos) act in each call anew. If it throws (CacheFull), the sequence has read the
/// tokens whose rows fitted.
Generated generate(LanguageModel& model, KvCache& cache, Sequence& sequence,
                   std::span<const std::int32_t> prompt, const SampleOptions& options);

/// Reads `prompt` behind what `sequence` has read, but for the last piece of at most 64 tokens, and returns
/// that. `generate` goes on with it, and gives the bits that it gives for the whole prompt.
std::span<const std::int32_t> read_prompt(LanguageModel& model, KvCache& cache, Sequence& sequence,
                                          std::span<const std::int32_t> prompt);

/// folder/config.json and folder/model.safetensors, as transformers' Starcoder2ForCausalLM reads them. A
/// model with recurrences has the model_type "fovea-language", our own names, and is read with the same bits.
/// Embeddings have no factor there. So the file's embeddings are multiplied by the factor, and the last layer
/// norm is divided by it, because the logits are made from it with the same table. Each costs one rounding.
/// Throws FileError, and InvalidArgument for a model that was made of a LanguageModelSpec or read packed.
void save_model(const std::string& folder, const LanguageModel& model);
/// Throws FileError for a config with features that this model lacks, and for missing, unexpected or wrongly
/// shaped tensors, which it names.
LanguageModel load_language_model(const std::string& folder);

}  // namespace fovea::models
