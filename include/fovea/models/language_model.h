// A language model: a decoder-only Transformer (Radford et al. 2018; the layers of Vaswani et al. 2017 under
// a causal mask, pre-norm), and what is drawn from it. Token ids only; what an id means, a byte, a sub-word,
// is the caller's business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/models/decoding.h"
#include "fovea/models/encoder.h"

namespace fovea::models {

struct LanguageModelConfig {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 128, feed_forward = 512, heads = 4, layers = 4;
  std::int64_t positions = 4096;  ///< the longest sequence
  float dropout = 0.0f, attention_dropout = 0.0f;
};

/// Embeddings times sqrt(dim), causal layers with rotary positions (Su et al. 2021, arXiv 2104.09864), and
/// the embeddings again as output layer (Press & Wolf 2017, arXiv 1608.05859). The layers are those of
/// Hugging Face's Starcoder2, so that both sides read each other's folders (save_model, load_language_model).
class LanguageModel {
 public:
  /// Throws InvalidArgument for sizes below 1, and a dim that is no even multiple of `heads`.
  LanguageModel(const LanguageModelConfig& config, std::uint64_t seed);

  const LanguageModelConfig& config() const noexcept { return config_; }
  nn::ParameterSet& parameters() noexcept { return *parameters_; }
  const nn::ParameterSet& parameters() const noexcept { return *parameters_; }
  const nn::TransformerStack& stack() const noexcept { return stack_; }

  /// What the output layer reads, [size, length, dim]: row i has seen tokens 0..i of its sequence and no
  /// other, so padding at the end is seen by no row before it. `weights`: as in TransformerStack::Call.
  nn::Var hidden(nn::Context& context, const Padded& tokens,
                 const std::function<Tensor*(std::string_view, std::size_t)>& weights = {});
  /// Σ cross-entropy of every token but the first of each sequence, given those before it, times
  /// options.scale: [1]. Throws InvalidArgument where no sequence has two tokens.
  nn::Var loss(nn::Context& context, const Padded& tokens, const LossOptions& options = {},
               autograd::CrossEntropyStats* stats = nullptr);
  /// log p(next | ...) of every token, for rows of `hidden` [..., dim]: [rows, vocabulary]. Not recorded.
  Tensor log_probabilities(const nn::Var& hidden);

  using Cache = nn::TransformerStack::Cache;
  /// No token read yet.
  Cache start();
  /// The next ids of one sequence -> the rows that `hidden` gives them, [1, ids.size(), dim]. `room`: rows
  /// of keys and values to make place for at first; more are made when they are full.
  nn::Var extend(std::span<const std::int32_t> ids, Cache& cache, std::int64_t room = 64);

 private:
  nn::Var embed(nn::Context& context, std::span<const std::int32_t> ids, std::int64_t size) const;

  LanguageModelConfig config_;
  std::unique_ptr<nn::ParameterSet> parameters_;
  nn::Embedding embedding_;
  nn::TransformerStack stack_;
};

/// How a token is chosen. The rules act in this order, as in Hugging Face's generate:
/// 1. p_i ∝ exp(log p_i / temperature);
/// 2. the top_k most probable tokens stay (Fan et al. 2018, arXiv 1805.04833), and p is made to sum to 1
/// again;
/// 3. of these the fewest most probable ones stay whose p sum to top_p or more (the nucleus: Holtzman et al.
///    2020, arXiv 1904.09751), and p is made to sum to 1 again.
/// Among equally probable tokens the smaller id comes first, at both cuts too: exactly top_k stay.
struct SampleOptions {
  double temperature = 1.0;  ///< 0: always the most probable token
  std::int64_t top_k = 0;    ///< 0: all
  double top_p = 1.0;        ///< in (0, 1]
  std::uint64_t seed = 1;
  std::int64_t length = 100;  ///< tokens to write
  Reuse reuse = Reuse::on;
};

struct Choice {
  std::int32_t id = 0;
  double probability = 0.0;
};
/// What a token is drawn from, most probable first; tokens of log-probability -inf are never in it. Throws
/// InvalidArgument for options outside their ranges, no log-probabilities, a NaN or +inf, or -inf alone.
std::vector<Choice> choices(std::span<const float> log_probabilities, const SampleOptions& options);
/// The token at which the running sum of `choices` exceeds `uniform`, which lies in [0, 1).
std::int32_t sample(std::span<const float> log_probabilities, const SampleOptions& options, double uniform);

struct Generated {
  std::vector<std::int32_t> ids;  ///< options.length of them, without the prompt
  std::vector<double>
      log_probabilities;         ///< of each, nats, under the model itself: before temperature and cuts
  std::int64_t cache_bytes = 0;  ///< keys and values at the end
};
/// Continues `prompt`. Token i is drawn with numbers that follow from options.seed and i alone. The last
/// token is not read by the model, so n tokens after a prompt of m cost m + n - 1 rows with reuse, and a pass
/// over m, m + 1, ... m + n - 1 rows without. Throws InvalidArgument for an empty prompt, an id outside the
/// vocabulary, a negative length, and what `choices` refuses.
Generated generate(LanguageModel& model, std::span<const std::int32_t> prompt, const SampleOptions& options);

/// folder/config.json and folder/model.safetensors, as transformers' Starcoder2ForCausalLM reads them. There
/// embeddings have no factor: those of the file are multiplied by it, and the last layer norm, from which the
/// logits are made with the same table, is divided by it; a rounding each. Throws FileError.
void save_model(const std::string& folder, const LanguageModel& model);
/// Throws FileError: a config that asks for what this model lacks; missing, unexpected or wrongly shaped
/// tensors are named.
LanguageModel load_language_model(const std::string& folder);

}  // namespace fovea::models
