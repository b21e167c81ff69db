// From a line of text to ids and back. Two tokenizers: text that is already split (words or `@@` sub-words),
// and byte-pair encoding or single characters, trained in-line through SentencePiece. Both put <pad>, <unk>,
// <s>, </s> at 0, 1, 2, 3.
//
// One shared ("joint") vocabulary for two languages is one tokenizer built from the lines of both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/text/encoding.h"
#include "fovea/text/vocabulary.h"

namespace fovea::text {

/// Immutable after construction; const calls may come from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of a line, without <s> and </s>. An empty line gives an empty vector. Text that merely spells a
  /// special piece ("</s>") never yields its id.
  virtual std::vector<std::int32_t> encode(std::string_view line) const = 0;
  /// The same ids and their places in `line`. A blank belongs to the piece of SentencePiece that begins with
  /// it. Throws InvalidArgument for a line that is not UTF-8.
  virtual Encoding encoding(std::string_view line) const = 0;
  /// The text of `ids`, without <pad>, <s> and </s>. Throws InvalidArgument for an id outside 0 .. size()-1.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// The spelling of each id ("▁Hou", "se" or "Hou@@", "se"; "</s>" for kEosId). Throws as `decode` does.
  virtual std::vector<std::string> pieces(std::span<const std::int32_t> ids) const = 0;
  /// For each piece the index of its word, from 0 and never decreasing. The sub-words of a word share its
  /// index; a special piece is a word of its own.
  virtual std::vector<std::int32_t> word_of(std::span<const std::string> pieces) const = 0;
  /// Number of ids, the four special ones included.
  virtual std::int64_t size() const = 0;
  /// Writes `<prefix>vocab.json` or `<prefix>spm.model` into `folder` (which must exist). `prefix` keeps two
  /// tokenizers apart in one folder ("source.", "target."). Throws FileError.
  virtual void save(const std::filesystem::path& folder, const std::string& prefix = {}) const = 0;
  /// "whitespace" or "sentencepiece".
  virtual std::string_view kind() const = 0;

  std::int32_t pad_id() const noexcept { return kPadId; }
  std::int32_t bos_id() const noexcept { return kBosId; }
  std::int32_t eos_id() const noexcept { return kEosId; }

  /// The words of a sequence of pieces: the pieces of a word joined, without markers, and special pieces as
  /// they are. These are the labels that go with `word_of`.
  std::vector<std::string> words(std::span<const std::string> pieces) const;

 protected:
  /// A piece without its sub-word marker, as it appears in a word.
  virtual std::string surface(const std::string& piece) const = 0;
};

struct WhitespaceOptions {
  std::int64_t min_frequency = 1;  ///< rarer pieces become <unk>
  std::int64_t max_size = 0;       ///< entries in all, special ones included; 0: no limit
};

/// Splits at blanks. On output a piece that ends in `@@` (subword-nmt's mark) is joined to the next one.
class WhitespaceTokenizer final : public Tokenizer {
 public:
  explicit WhitespaceTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  /// Counts the pieces of `lines`. Throws InvalidArgument for a negative option or a line that is not UTF-8.
  static std::unique_ptr<WhitespaceTokenizer> build(std::span<const std::string> lines,
                                                    const WhitespaceOptions& options = {});

  std::vector<std::int32_t> encode(std::string_view line) const override;
  Encoding encoding(std::string_view line) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::vector<std::string> pieces(std::span<const std::int32_t> ids) const override;
  std::vector<std::int32_t> word_of(std::span<const std::string> pieces) const override;
  std::int64_t size() const override { return vocabulary_.size(); }
  void save(const std::filesystem::path& folder, const std::string& prefix = {}) const override;
  std::string_view kind() const override { return "whitespace"; }
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

 protected:
  std::string surface(const std::string& piece) const override;

 private:
  Vocabulary vocabulary_;
};

struct SentencePieceOptions {
  std::int64_t vocabulary_size = 8000;  ///< an upper limit: small corpora may hold fewer pieces
  double character_coverage = 1.0;      ///< share of characters that get a piece; the rest is <unk>
  /// Characters that stand together often become one piece, or each character stays a piece of its own. Then
  /// a line has no blank put before it, and its blanks stay as many as they are.
  enum class Pieces : std::uint8_t { merged, characters };
  Pieces pieces = Pieces::merged;
};

/// Byte-pair encoding (Sennrich et al. 2016) by SentencePiece (Kudo and Richardson 2018). Trained without
/// text normalisation, so that decode(encode(line)) == line for known characters and single blanks. NFKC
/// would turn "…" into "..." and cost BLEU against the original reference.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Deterministic (one thread, no sampling). Throws InvalidArgument when SentencePiece refuses `lines` or
  /// options.
  static std::unique_ptr<SentencePieceTokenizer> train(std::span<const std::string> lines,
                                                       const SentencePieceOptions& options = {});
  /// From the bytes of an `spm.model`; `name` is used in errors. Throws FileError when the bytes are not a
  /// model, or its special ids are not 0, 1, 2, 3.
  static std::unique_ptr<SentencePieceTokenizer> from_bytes(std::string serialized, const std::string& name);
  ~SentencePieceTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view line) const override;
  Encoding encoding(std::string_view line) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::vector<std::string> pieces(std::span<const std::int32_t> ids) const override;
  std::vector<std::int32_t> word_of(std::span<const std::string> pieces) const override;
  std::int64_t size() const override;
  void save(const std::filesystem::path& folder, const std::string& prefix = {}) const override;
  std::string_view kind() const override { return "sentencepiece"; }
  /// How the model was trained.
  SentencePieceOptions::Pieces piece_kind() const;
  const std::string& serialized() const noexcept;

 protected:
  std::string surface(const std::string& piece) const override;

 private:
  struct Model;  // keeps SentencePiece out of this header
  explicit SentencePieceTokenizer(std::unique_ptr<Model> model);
  std::unique_ptr<Model> model_;
};

/// The tokenizer that `save` left in `folder`: `<prefix>spm.model` if it is there, else `<prefix>vocab.json`.
/// Throws FileError if neither is, or what is there cannot be read, or beside vocab.json is a tokenizer of
/// another library: tokenizer.json, merges.txt, source.spm, spiece.model and the like.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                          const std::string& prefix = {});

/// A text of many lines, as language models read it: the ids of each line, and </s> for each end of a line.
std::vector<std::int32_t> encode_lines(const Tokenizer& tokenizer, std::string_view text);
/// The text of such ids, with `line_end` for each </s>.
std::string decode_lines(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                         std::string_view line_end = "\n");

}  // namespace fovea::text
