// Checks of a model file that SentencePiece itself does not make.
#pragma once

#include <string>
#include <string_view>

namespace fovea::text {

/// Walks the protocol buffer of an `spm.model`. Throws FileError unless it is well formed and its
/// normalisation trie stays inside its own bytes. The library follows that trie without checks, so a damaged
/// trie would read arbitrary memory.
void check_sentencepiece_model(std::string_view bytes, const std::string& name);

/// The same for the normalisation trie alone, which tokenizer.json has as precompiled_charsmap.
void check_charsmap(std::string_view blob, const std::string& name);

/// Whether the pieces of such a checked model are single characters, as its training was told.
bool has_character_pieces(std::string_view bytes, const std::string& name);

}  // namespace fovea::text
