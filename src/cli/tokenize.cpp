#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/ids.h"
#include "cli/texts.h"
#include "core/excerpt.h"
#include "files/json_scanner.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/text/pieces.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {
namespace {

using nlohmann::ordered_json;

struct TokenizeCommand {
  std::string model, input = "/dev/stdin", output, write;
  bool json = false, pieces = false, decode = false, plain = false, limits = false, keep = false,
       input_given = false;
};

// A line of --json: a string, or an array of two.
std::vector<std::string> texts_of(const TokenizeCommand& o, const std::string& line, std::int64_t number) {
  if (!o.json) return {line};
  std::string text = line;
  files::JsonScanner scanner(o.input, text, files::JsonScanner::Position::byte);
  std::vector<std::string> texts;
  try {
    if (scanner.at_array()) {
      scanner.open_array();
      while (scanner.next_element()) texts.emplace_back(scanner.string());
    } else {
      texts.emplace_back(scanner.string("a string or an array of two"));
    }
    scanner.finish();
  } catch (const FileError& error) {
    throw FileError(o.input, number, error.reason(), "line");
  }
  if (texts.empty() || texts.size() > 2)
    throw FileError(o.input, number, "expected one text or two, got " + std::to_string(texts.size()), "line");
  return texts;
}

template <typename TokenizerType>
std::string json_of(const TokenizerType& tokenizer, const text::Encoding& encoding) {
  auto offsets = ordered_json::array(), pieces = ordered_json::array();
  for (const text::ByteRange& range : encoding.offsets) offsets.push_back({range.begin, range.end});
  for (const std::int32_t id : encoding.ids) pieces.push_back(tokenizer.token(id));
  return ordered_json{{"ids", encoding.ids},         {"tokens", pieces},        {"offsets", offsets},
                      {"special", encoding.special}, {"types", encoding.types}, {"texts", encoding.texts},
                      {"words", encoding.words}}
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Ids ids_of(const TokenizeCommand& o, const std::string& line, std::int64_t number) {
  try {
    return line.empty() ? Ids() : parse_ids(line, "ids");
  } catch (const InvalidArgument& error) {
    throw FileError(o.input, number, "expected " + error.expected() + ", got " + error.got(), "line");
  }
}

template <typename TokenizerType>
std::string line_of(const TokenizeCommand& o, const TokenizerType& tokenizer, const Ids& ids) {
  if (!o.pieces) return fmt::format("{}", fmt::join(ids, " "));
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) pieces.push_back(tokenizer.token(id));
  return fmt::format("{}", fmt::join(pieces, " "));
}

std::string answer(const TokenizeCommand& o, const text::JsonTokenizer& tokenizer, const std::string& line,
                   std::int64_t number) {
  if (o.decode) {
    const std::string text =
        tokenizer.decode(ids_of(o, line, number), o.keep ? text::JsonTokenizer::SpecialTokens::keep
                                                         : text::JsonTokenizer::SpecialTokens::skip);
    return o.json ? ordered_json(text).dump() : text;
  }
  using Encode = text::EncodeOptions;
  const Encode options{
      .special_tokens = o.plain ? Encode::SpecialTokens::leave_out : Encode::SpecialTokens::add,
      .limits = o.limits ? Encode::Limits::apply : Encode::Limits::ignore};
  const std::vector<std::string> texts = texts_of(o, line, number);
  const text::Encoding encoding =
      texts.size() == 1 ? tokenizer.encode(texts[0], options) : tokenizer.encode(texts[0], texts[1], options);
  return o.json ? json_of(tokenizer, encoding) : line_of(o, tokenizer, encoding.ids);
}

// By the files that a folder has instead of a tokenizer.json.
std::string answer(const TokenizeCommand& o, const text::PieceReader& reader, const std::string& line,
                   std::int64_t number) {
  try {
    if (o.decode) {
      const std::string text = reader.decode(ids_of(o, line, number));
      return o.json ? ordered_json(text).dump() : text;
    }
    using Special = text::EncodeOptions::SpecialTokens;
    const std::vector<std::string> texts = texts_of(o, line, number);
    if (texts.size() > 1)
      throw FileError(o.input, number, "expected one text, because only a tokenizer.json joins two, got 2",
                      "line");
    const text::Encoding encoding = reader.encode(texts[0], o.plain ? Special::leave_out : Special::add);
    return o.json ? json_of(reader, encoding) : line_of(o, reader, encoding.ids);
  } catch (const InvalidArgument& error) {
    throw FileError(o.input, number, "expected " + error.expected() + ", got " + error.got(), "line");
  }
}

// An option that would change nothing is refused.
void check(const TokenizeCommand& o, const std::vector<std::filesystem::path>& files) {
  const auto refuse = [](const char* option, const std::string& expected, const std::string& got) {
    throw InvalidArgument("fovea tokenize", option, expected, got);
  };
  struct Given {
    const char* name;
    bool given, with_decode, with_json;
  };
  for (const auto& [name, given, with_decode, with_json] :
       {Given{"--input", o.input_given, true, true}, Given{"--output", !o.output.empty(), true, true},
        Given{"--decode", o.decode, true, true}, Given{"--json", o.json, true, true},
        Given{"--pieces", o.pieces, false, false}, Given{"--plain", o.plain, false, true},
        Given{"--limits", o.limits, false, true}, Given{"--keep-special", o.keep, true, true}}) {
    if (given && !o.write.empty()) refuse(name, "nothing beside --write", "a value");
    if (given && o.decode && !with_decode) refuse(name, "nothing beside --decode", "the option");
    if (given && o.json && !with_json) refuse(name, "nothing beside --json", "the option");
  }
  if (o.keep && !o.decode) refuse("--keep-special", "--decode beside it", "none");
  if (!o.output.empty() && same_file(o.output, o.input))
    refuse("--output", "a file other than --input", o.output);
  for (const auto& [option, path] : {std::pair{"--output", o.output}, {"--write", o.write}}) {
    for (const std::filesystem::path& file : files) {
      if (!path.empty() && same_file(path, file)) refuse(option, "a file other than that of --model", path);
    }
  }
}

// These need what only a tokenizer.json has: limits, and tokens that are marked as special.
void check_without_json(const TokenizeCommand& o) {
  for (const auto& [name, given] :
       {std::pair{"--limits", o.limits}, {"--keep-special", o.keep}, {"--write", !o.write.empty()}}) {
    if (given)
      throw InvalidArgument("fovea tokenize", name, "a --model with a tokenizer.json",
                            o.model + ", which has other files");
  }
}

template <typename TokenizerType>
void run(const TokenizeCommand& o, const TokenizerType& tokenizer) {
  TextWindows lines(o.input);
  Output output(o.output);
  FailedTexts failed;
  std::int64_t count = 0;
  for (auto window = lines.next(); !window.empty(); window = lines.next()) {
    for (const text::CheckedLine& line : window) {
      if (stop_requested()) break;
      ++count;
      std::string answered, reason = line.problem;
      try {
        if (reason.empty()) answered = answer(o, tokenizer, line.text, line.number);
      } catch (const Error&) {
        reason = reason_of(std::current_exception());
      }
      if (!reason.empty()) failed.add(lines.place(line.number), reason);
      if (!reason.empty() && o.json)
        answered = ordered_json{{"line", line.number}, {"error", reason}}.dump(
            -1, ' ', false, ordered_json::error_handler_t::replace);
      output.stream() << answered << '\n';
    }
    output.flush();
  }
  if (stop_requested()) throw Stopped{fmt::format("stopped; the first {} lines are written", count)};
  failed.end(count);
}

void run(const TokenizeCommand& o) {
  const std::filesystem::path model = o.model;
  if (std::filesystem::is_directory(model) && !text::has_folder_tokenizer(model)) {
    check(o, {model / "source.spm", model / "target.spm", model / "vocab.json", model / "spm.model"});
    const std::unique_ptr<text::PieceReader> reader = text::read_pieces(model);
    check_without_json(o);
    return run(o, *reader);
  }
  const bool folder = std::filesystem::is_directory(model);
  if (folder)
    check(o, {model / "tokenizer.json", model / "spiece.model", model / "sentencepiece.bpe.model",
              model / "tokenizer.model"});
  else
    check(o, {model});
  const text::JsonTokenizer tokenizer =
      folder ? text::read_folder_tokenizer(model).tokenizer : text::JsonTokenizer::read(model);
  if (!o.write.empty()) return files::write_file(o.write, tokenizer.to_json());
  run(o, tokenizer);
}

}  // namespace

void register_tokenize(Command app) {
  auto o = std::make_shared<TokenizeCommand>();
  Command command = app.add_subcommand("tokenize", "Write the token ids of texts, or the texts of ids");
  command.footer(bad_lines_help);
  command.add_option("--model", o->model, "folder with a tokenizer, or a tokenizer.json").required();
  Option input =
      command.add_option("--input", o->input, "a text a line, or with --decode ids").check(file_name());
  command.add_option("--output", o->output, "default standard output").check(file_name());
  command.add_flag("--json", o->json,
                   "read each line as a JSON string, or an array of two for a pair; write ids, tokens and "
                   "the bytes they stand for");
  command.add_flag("--pieces", o->pieces, "the spelling of each token instead of its id");
  command.add_flag("--plain", o->plain, "without the ids that the template adds, such as [CLS]");
  command.add_flag("--limits", o->limits, "apply the file's truncation and padding");
  command.add_flag("--decode", o->decode, "read ids and write texts");
  command.add_flag("--keep-special", o->keep, "with --decode: also the special tokens");
  command.add_option("--write", o->write, "read no text, and write the tokenizer.json to this file")
      .check(file_name());
  command.callback([o, input] {
    o->input_given = input.given();
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
