#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <array>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/files/bytes.h"
#include "fovea/text/tokenizer.h"
#include "text/sentencepiece_classes.h"
#include "text/sentencepiece_proto.h"
#include "text/sentencepiece_spans.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581, the blank as SentencePiece spells it

class LinesIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit LinesIterator(std::span<const std::string> lines) : lines_(lines) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> lines_;
  std::size_t at_ = 0;
};

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument("SentencePieceTokenizer::train", argument, expected, got);
}

void check_training(std::span<const std::string> lines, const SentencePieceOptions& options) {
  if (options.vocabulary_size <= kNumSpecialIds || options.vocabulary_size > (1 << 24)) {
    refuse("vocabulary_size", "5..16777216", std::to_string(options.vocabulary_size));
  }
  if (!(options.character_coverage > 0.9 && options.character_coverage <= 1)) {
    refuse("character_coverage", "above 0.9, at most 1", std::to_string(options.character_coverage));
  }
  bool any = false;
  for (const std::string& line : lines) {
    if (find_invalid_utf8(line) != std::string_view::npos) refuse("lines", "valid UTF-8", "bad bytes");
    any = any || !is_blank(line);
  }
  if (!any) refuse("lines", "at least one line with text", std::to_string(lines.size()) + " empty lines");
}

}  // namespace

struct SentencePieceTokenizer::Model {
  std::string serialized;
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceTokenizer::SentencePieceTokenizer(std::unique_ptr<Model> model) : model_(std::move(model)) {}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::unique_ptr<SentencePieceTokenizer> SentencePieceTokenizer::train(std::span<const std::string> lines,
                                                                      const SentencePieceOptions& options) {
  static constexpr ProfileLabel label{"learning a tokenizer", ProfilePart::data};
  const ProfileSpan span(label);
  check_training(lines, options);
  LinesIterator iterator(lines);
  std::string serialized;
  const bool characters = options.pieces == SentencePieceOptions::Pieces::characters;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", characters ? "char" : "bpe"},
       {"add_dummy_prefix", characters ? "false" : "true"},
       {"remove_extra_whitespaces", characters ? "false" : "true"},
       {"vocab_size", std::to_string(options.vocabulary_size)},
       {"hard_vocab_limit", "false"},
       {"character_coverage", std::to_string(options.character_coverage)},
       {"normalization_rule_name", "identity"},
       {"num_threads", "1"},
       {"shuffle_input_sentence", "false"},
       // The default of 4192 silently drops longer lines.
       {"max_sentence_length", std::to_string(1 << 30)},
       {"pad_id", std::to_string(kPadId)},
       {"unk_id", std::to_string(kUnknownId)},
       {"bos_id", std::to_string(kBosId)},
       {"eos_id", std::to_string(kEosId)},
       {"minloglevel", "3"}},
      &iterator, &serialized);
  if (!status.ok()) refuse("lines", "text that SentencePiece can train on", status.ToString());
  return from_bytes(std::move(serialized), "the trained model");
}

std::unique_ptr<SentencePieceTokenizer> SentencePieceTokenizer::from_bytes(std::string serialized,
                                                                           const std::string& name) {
  auto model = std::make_unique<Model>();
  model->serialized = std::move(serialized);
  load_model(model->processor, model->serialized, name);
  const auto& processor = model->processor;
  if (processor.pad_id() != kPadId || processor.unk_id() != kUnknownId || processor.bos_id() != kBosId ||
      processor.eos_id() != kEosId) {
    throw FileError(name, -1, "<pad>, <unk>, <s>, </s> are not the ids 0, 1, 2, 3");
  }
  return std::unique_ptr<SentencePieceTokenizer>(new SentencePieceTokenizer(std::move(model)));
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view line) const {
  static constexpr ProfileLabel label{"text to tokens", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = static_cast<double>(line.size())});
  std::vector<int> ids;
  const auto status = model_->processor.Encode(line, &ids);
  if (!status.ok()) throw Error("SentencePieceTokenizer::encode: " + status.ToString());
  return {ids.begin(), ids.end()};
}

Encoding SentencePieceTokenizer::encoding(std::string_view line) const {
  return encoding_of(line, spanned_pieces(model_->processor, "SentencePieceTokenizer::encoding", line));
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  static constexpr ProfileLabel label{"tokens to text", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = 4.0 * static_cast<double>(ids.size())});
  std::vector<int> kept;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size()) {
      throw InvalidArgument("SentencePieceTokenizer::decode", "ids", "0.." + std::to_string(size() - 1),
                            std::to_string(id));
    }
    if (id != kPadId && id != kBosId && id != kEosId) kept.push_back(id);
  }
  std::string text;
  const auto status = model_->processor.Decode(kept, &text);
  if (!status.ok()) throw Error("SentencePieceTokenizer::decode: " + status.ToString());
  return text;
}

std::vector<std::string> SentencePieceTokenizer::pieces(std::span<const std::int32_t> ids) const {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size()) {
      throw InvalidArgument("SentencePieceTokenizer::pieces", "ids", "0.." + std::to_string(size() - 1),
                            std::to_string(id));
    }
    pieces.push_back(model_->processor.IdToPiece(id));
  }
  return pieces;
}

std::vector<std::int32_t> SentencePieceTokenizer::word_of(std::span<const std::string> pieces) const {
  std::vector<std::int32_t> word;
  std::int32_t current = -1;
  bool after_special = true;
  for (const std::string& piece : pieces) {
    // <unk> stands for characters inside a word, so it continues one; the other special pieces stand alone.
    const bool special = is_special_piece(piece) && piece != special_piece(kUnknownId);
    if (special || after_special || piece.starts_with(kWordStart)) ++current;
    word.push_back(current);
    after_special = special;
  }
  return word;
}

std::string SentencePieceTokenizer::surface(const std::string& piece) const {
  return piece.starts_with(kWordStart) ? piece.substr(kWordStart.size()) : piece;
}

std::int64_t SentencePieceTokenizer::size() const {
  return model_->processor.GetPieceSize();
}

SentencePieceOptions::Pieces SentencePieceTokenizer::piece_kind() const {
  return has_character_pieces(model_->serialized, "the model") ? SentencePieceOptions::Pieces::characters
                                                               : SentencePieceOptions::Pieces::merged;
}

const std::string& SentencePieceTokenizer::serialized() const noexcept {
  return model_->serialized;
}

void SentencePieceTokenizer::save(const std::filesystem::path& folder, const std::string& prefix) const {
  files::write_file(folder / (prefix + "spm.model"), model_->serialized);
  std::error_code ignored;
  std::filesystem::remove(folder / (prefix + "vocab.json"), ignored);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, const std::string& prefix) {
  static constexpr ProfileLabel label{"reading a tokenizer", ProfilePart::data};
  const ProfileSpan span(label);
  const std::filesystem::path model = folder / (prefix + "spm.model"),
                              list = folder / (prefix + "vocab.json");
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw FileError(folder.string(), -1,
                    std::filesystem::exists(folder, error) ? "is no folder" : "does not exist");
  if (std::filesystem::exists(model, error)) {
    return SentencePieceTokenizer::from_bytes(files::read_file(model, kMaxModelBytes), model.string());
  }
  // Beside them vocab.json is not a list of words.
  for (const char* name : {"tokenizer.json", "merges.txt"}) {
    if (std::filesystem::exists(folder / name, error))
      throw FileError((folder / name).string(), -1, "is the tokenizer of another library, not one of ours");
  }
  const std::array<const char*, 3> marian{"source.spm", "target.spm", "vocab.json"};
  for (const char* there : {"source.spm", "target.spm"}) {
    if (!std::filesystem::exists(folder / there, error)) continue;
    for (const char* missing : marian) {
      if (!std::filesystem::exists(folder / missing, error))
        throw FileError((folder / missing).string(), -1, std::string("is not there, and ") + there + " is");
    }
  }
  for (const char* name : sentencepiece_files()) {
    if (std::filesystem::exists(folder / name, error))
      throw FileError((folder / name).string(), -1, "is the tokenizer of another library, not one of ours");
  }
  if (std::filesystem::exists(list, error))
    return std::make_unique<WhitespaceTokenizer>(Vocabulary::load(list));
  throw FileError(folder.string(), -1,
                  "holds no tokenizer: neither tokenizer.json nor " + model.filename().string() + " nor " +
                      list.filename().string() + "; token ids may be given instead of text");
}

}  // namespace fovea::text
