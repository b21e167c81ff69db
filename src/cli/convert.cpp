#include "fovea/models/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.h"
#include "cli/progress.h"
#include "fovea/files/bytes.h"
#include "fovea/text/tokenizer.h"

namespace fovea::cli {
namespace {

struct ConvertCommand {
  std::string model, output;
  models::ConvertOptions convert;
  std::int64_t shard_mb = 5 << 10;
};

// The tokenizer of a translator of ours as MarianTokenizer reads it: one list of sub-words for both sides.
void write_marian_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::unique_ptr<text::Tokenizer> tokenizer = text::load_tokenizer(from);
  if (tokenizer->kind() != "sentencepiece") {
    fmt::print(stderr,
               "fovea: {} splits words at blanks, which no tokenizer of Marian does: it is not written\n",
               from.string());
    return;
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokenizer->size()));
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<std::string> pieces = tokenizer->pieces(ids);
  nlohmann::ordered_json vocabulary;
  for (const std::int32_t id : ids) vocabulary[pieces[static_cast<std::size_t>(id)]] = id;
  files::write_file(to / "vocab.json", vocabulary.dump());
  for (const char* name : {"source.spm", "target.spm"})
    std::filesystem::copy_file(from / "spm.model", to / name,
                               std::filesystem::copy_options::overwrite_existing);
  std::filesystem::remove(to / "spm.model");
  const nlohmann::ordered_json config{{"tokenizer_class", "MarianTokenizer"},
                                      {"separate_vocabs", false},
                                      {"eos_token", "</s>"},
                                      {"pad_token", "<pad>"},
                                      {"unk_token", "<unk>"}};
  files::write_file(to / "tokenizer_config.json", config.dump(2) + "\n");
}

void run(ConvertCommand o) {
  o.convert.shard_bytes = static_cast<std::size_t>(o.shard_mb) << 20;
  CountProgress progress("convert", "tensors");
  o.convert.progress = [&](std::int64_t count, std::int64_t total) { progress.show(count, total); };
  const models::Converted done = models::convert_folder(o.model, o.output, o.convert);
  progress.clear();
  if (done.from_ours) write_marian_tokenizer(o.model, o.output);
  fmt::print("wrote {}: {}, {} tensors, {} bytes\n", o.output, done.model_type, done.tensors, done.bytes);
  if (!done.files.empty()) fmt::print("copied {}\n", fmt::join(done.files, ", "));
  if (!done.left_out.empty())
    fmt::print("left out {}, which follow from the rest\n", fmt::join(done.left_out, ", "));
}

}  // namespace

void register_convert(Command app) {
  auto o = std::make_shared<ConvertCommand>();
  Command command = app.add_subcommand("convert", "Write a model's folder in other types or shards");
  command.add_option("--model", o->model, "folder of a model, of ours or of transformers").required();
  command.add_option("--output", o->output, "folder without weights").required();
  const std::vector<std::pair<std::string, DType>> types{
      {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  command
      .add_choice("--dtype", o->convert.type, types,
                  "of the weights; default: as they are, with f8 and f64 as f32")
      .option_text("f32, bf16 or f16");
  command
      .add_option("--shard-mb", o->shard_mb,
                  "size of a file of weights; more are shards, and a larger tensor has one of its own")
      .check(in_range(1, 1 << 20));
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
