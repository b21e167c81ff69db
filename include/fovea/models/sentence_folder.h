// Folders of sentence-transformers: a model, and how one vector for each text is made of its hidden states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "fovea/models/pooling.h"
#include "fovea/models/similarity.h"

namespace fovea::models {

struct SentenceFolder {
  std::filesystem::path model;  ///< the folder of the model itself
  SentencePooling pooling;
  std::optional<std::int64_t> max_length;  ///< ids of a text; what is behind them is cut off
  bool pools_prompt = true;                ///< false: the rows of a prompt's ids take no part in the pooling
  /// Of config_sentence_transformers.json: the first elements of a vector are kept, and the others cut off.
  std::optional<std::int64_t> truncate_dim = {};
  Similarity similarity = Similarity::cosine;
  std::map<std::string, std::string> prompts = {};  ///< what stands before a text, by the prompt's name
  std::string default_prompt = {};                  ///< the name of the one for any text; "": none

  /// How many ids a text is cut to. `of_tokenizer` is text::FolderTokenizer::max_length. A folder need not
  /// say more than how long a sequence of its model is.
  std::int64_t longest(std::optional<std::int64_t> of_tokenizer, std::int64_t positions) const;
  /// The prompt of that name; that of default_prompt for "". Throws InvalidArgument for a name that is not
  /// there.
  const std::string& prompt(const std::string& name) const;
  /// The prompts with which sentence-transformers searches. A query has the one named "query". A passage has
  /// the first of "document", "passage" and "corpus" that is there. Without one it is that of default_prompt.
  const std::string& query_prompt() const;
  const std::string& passage_prompt() const;
};

/// Reads modules.json of a folder, the configs of the modules that it names, and
/// config_sentence_transformers.json; nothing without modules.json. Throws FileError for modules other than
/// Transformer, Pooling and Normalize in this order, and for settings that are not known.
std::optional<SentenceFolder> read_sentence_folder(const std::filesystem::path& folder);

/// Whether sentence-transformers wrote the folder with modules.json and as another kind of model than a
/// CrossEncoder, which scores pairs of texts. Throws FileError for a file that cannot be read.
bool makes_sentence_vectors(const std::filesystem::path& folder);

}  // namespace fovea::models
