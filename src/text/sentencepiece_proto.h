// What SentencePiece trusts in a model file and should not.
#pragma once

#include <string>
#include <string_view>

namespace fovea::text {

/// Walks the protocol buffer of an `spm.model` and throws FileError unless it is well formed and its
/// normalisation trie stays inside its own bytes: the library follows that trie without looking, so a damaged
/// one reads anywhere.
void check_sentencepiece_model(std::string_view bytes, const std::string& name);

}  // namespace fovea::text
