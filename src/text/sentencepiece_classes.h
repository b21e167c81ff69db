// The classes of transformers whose folders may hold a SentencePiece model alone. The file says the pieces;
// which ids these have, and which special ones stand beside them, only the class says.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "text/sentencepiece_proto.h"

namespace fovea::text {

/// A token with a name in tokenizer_config.json.
struct NamedToken {
  const char* key;      ///< "eos_token"
  const char* content;  ///< where the files say nothing; nullptr: then there is none
  bool takes_blanks_before = false;
};

struct SentencePieceClass {
  std::string_view name;
  const char* file;
  std::span<const char* const> model_types;  ///< config.json of those whose folder names no class
  /// The pieces that transformers' class can split: Unigram alone, byte-pair encoding alone.
  SentencePieceFile::Type type;
  std::span<const NamedToken> tokens;
  /// Which tokens stand before the pieces. fairseq: <s>, <pad>, </s>, <unk>, and the model's first three
  /// pieces are left out. camembert: <s>NOTUSED, <pad>, </s>NOTUSED, <unk>, <unk>NOTUSED, and the first piece
  /// is left out.
  enum class Front : std::uint8_t { none, fairseq, camembert } front = Front::none;
  /// Which stand behind them: T5's <extra_id_99> to <extra_id_0>, or the codes of languages.
  bool extra_ids = false;
  std::span<const char* const> languages = {};
  /// How blanks become "▁": before each word and none between, before the text, or not before it.
  enum class Blanks : std::uint8_t { words, text, as_they_are } blanks = Blanks::words;
  /// What stands around a text: `A </s>`; `<s> A </s>` and `<s> A </s></s> B </s>`; `A </s> en_XX`; `en_XX A
  /// </s>`; or what add_bos_token and add_eos_token say.
  enum class Template : std::uint8_t {
    end,
    roberta,
    language_behind,
    language_before,
    as_said
  } around = Template::end;
};

/// All of them.
std::span<const SentencePieceClass> sentencepiece_classes();

/// The names of files that hold a SentencePiece model of another library.
std::span<const char* const> sentencepiece_files();

}  // namespace fovea::text
