// Pages of a model's attention, shared by inspect and demo.
#pragma once

#include <string>

#include "cli/ids.h"
#include "fovea/inspect/data.h"
#include "fovea/models/model_folder.h"
#include "fovea/text/pieces.h"
#include "fovea/train/translator.h"

namespace fovea::cli {

/// Every layer and head for `source` and `target` (teacher-forced). A recurrence shows the shares of its
/// quadratic form, and the facts say how fast it forgets and what a decoder keeps.
inspect::InspectPage page_of(train::Translator& translator, const std::string& title,
                             const std::string& source, const std::string& target);

/// Whether a folder has a model that continues texts, and does not translate them.
bool is_language_model(const models::ModelFolder& folder);
/// A page over tokens, and the tokens of its texts. `target` is empty but for a translator, whose rows are
/// the ids that it writes and whose keys are those that it has read.
struct TokenPage {
  inspect::InspectPage page;
  text::Pieces source, target;
};
/// Every layer and head of an encoder of another library.
TokenPage encoder_page(const models::ModelFolder& folder, const std::string& title, text::Pieces source,
                       autograd::WeightType weights);
/// Every layer and head of a translator of another library that writes `target`, its last id included. Throws
/// FileError if the folder does not say which id the decoder reads first.
TokenPage translator_page(const models::ModelFolder& folder, const std::string& title, text::Pieces source,
                          text::Pieces target, autograd::WeightType weights);
/// The same page over words in place of tokens.
inspect::InspectPage over_words(const TokenPage& page);

/// Every layer and head of a language model that reads `source`. A recurrence shows the shares of its
/// quadratic form (autograd::recurrence_weights). The facts say what each layer keeps of the text,
/// and how fast it forgets. A layer of Mamba has no map, because each of its channels has weights of its own.
TokenPage language_page(const models::ModelFolder& folder, const std::string& title, text::Pieces source,
                        autograd::WeightType weights);

/// Weights of a recurrence [B, heads, L, L] may be negative and need not sum to 1: each row becomes its
/// shares.
void make_shares(Tensor& weights);
/// "; decay a token, by head: 0.98, 0.999", the geometric mean over the tokens of a text. Of Mamba's channels
/// the range: "; decay a token, of 32 channels: 0.2 to 0.99". "" for no decays.
std::string decays_text(const Tensor& log_decays);
/// "a state of 4096 bytes, whatever the length", or the bytes of keys and values of so many tokens.
std::string kept_text(const models::LayerKeeps& keeps, std::int64_t tokens);

}  // namespace fovea::cli
