#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/sentence_folder.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string folder;
  bool json = false;
};

// What the tokenizer is, or why it cannot be read.
struct TokenizerReport {
  std::string type, refused, unit = "ids";
  std::int64_t size = 0;
  std::optional<std::int64_t> max_length;
};

std::optional<TokenizerReport> tokenizer_of(const std::filesystem::path& folder) {
  const bool json = text::has_json_tokenizer(folder), marian = text::MarianTokenizer::is_in(folder);
  std::error_code error;
  const bool own = std::filesystem::exists(folder / "spm.model", error) ||
                   std::filesystem::exists(folder / "vocab.json", error);
  if (!json && !marian && !own) return std::nullopt;
  TokenizerReport report;
  try {
    if (!json && marian) {
      report.type = "Marian";
      report.size = text::MarianTokenizer::read(folder).size();
      return report;
    }
    if (!json) {
      const std::unique_ptr<text::Tokenizer> tokenizer = text::load_tokenizer(folder);
      const bool words = tokenizer->kind() == "whitespace";
      report.type = words ? "words" : "SentencePiece";
      report.unit = words ? "words" : "pieces";
      report.size = tokenizer->size();
      return report;
    }
    const text::FolderTokenizer read = text::read_folder_tokenizer(folder);
    report.type = read.tokenizer.model_type();
    report.size = read.tokenizer.size();
    report.max_length = read.max_length;
  } catch (const FileError& error) {
    report.refused = error.what();
  }
  return report;
}

ordered_json json_of(const std::optional<TokenizerReport>& tokenizer) {
  if (!tokenizer) return nullptr;
  if (!tokenizer->refused.empty()) return {{"refused", tokenizer->refused}};
  return {{"type", tokenizer->type},
          {"size", tokenizer->size},
          {"max_length", tokenizer->max_length ? ordered_json(*tokenizer->max_length) : ordered_json()}};
}

void print(const std::optional<TokenizerReport>& tokenizer) {
  if (!tokenizer)
    fmt::print("tokenizer   none\n");
  else if (!tokenizer->refused.empty())
    fmt::print("tokenizer   cannot be read: {}\n", tokenizer->refused);
  else
    fmt::print("tokenizer   {}{} {}{}\n", tokenizer->type == tokenizer->unit ? "" : tokenizer->type + ", ",
               tokenizer->size, tokenizer->unit,
               tokenizer->max_length ? fmt::format(", texts of at most {}", *tokenizer->max_length) : "");
}

ordered_json json_of(const models::FolderReport& report) {
  ordered_json problems = ordered_json::array();
  for (const models::ConfigProblem& problem : report.problems)
    problems.push_back({{"key", problem.key}, {"expected", problem.expected}, {"got", problem.got}});
  ordered_json layers = ordered_json::array();
  for (const models::LayerKeeps& layer : report.layers)
    layers.push_back({{"mixer", layer.mixer},
                      {"state_bytes", layer.state_bytes},
                      {"cache_bytes_per_token", layer.bytes_per_token}});
  return {{"model_type", report.model_type},
          {"runs", report.refused.empty()},
          {"refused", report.refused.empty() ? ordered_json(nullptr) : ordered_json(report.refused)},
          {"problems", problems},
          {"tensors", report.tensors},
          {"parameters", report.parameters},
          {"bytes", report.bytes},
          {"types", report.types},
          {"cache_bytes_per_token", report.cache_bytes_per_token},
          {"layers", layers},
          {"specification",
           report.config ? ordered_json::parse(models::to_json(*report.config)) : ordered_json(nullptr)}};
}

void run(const Options& o) {
  const auto sentences = models::read_sentence_folder(o.folder);
  const std::filesystem::path folder = sentences ? sentences->model : std::filesystem::path(o.folder);
  const models::FolderReport report = models::report_on(models::ModelFolder(folder));
  const std::optional<TokenizerReport> tokenizer = tokenizer_of(folder);
  if (o.json) {
    ordered_json json = json_of(report);
    json["tokenizer"] = json_of(tokenizer);
    json["sentence_vectors"] = sentences.has_value();
    fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print("family      {}\n", report.model_type.empty() ? "not named" : report.model_type);
  if (report.config) {
    const models::FamilyConfig& c = *report.config;
    fmt::print("class       {}\n", c.architecture.empty() ? "not named" : c.architecture);
    fmt::print("kind        {}\n", c.kind == models::FamilyKind::decoder   ? "language model"
                                   : c.kind == models::FamilyKind::encoder ? "encoder"
                                                                           : "translator");
    fmt::print("sizes       {} layers, width {}, {} heads of {}, {} of keys and values, inner width {}\n",
               c.layers, c.dim, c.heads, c.head_dim, c.kv_heads, c.feed_forward);
    fmt::print("vocabulary  {}\npositions   {}\n", c.vocabulary, c.positions);
    if (!c.labels.empty()) fmt::print("labels      {}\n", fmt::join(c.labels, ", "));
  }
  fmt::print("weights     {} elements in {} tensors, {} bytes\n", report.parameters, report.tensors,
             report.bytes);
  for (const auto& [type, count] : report.types) fmt::print("            {} of {}\n", count, type);
  print(tokenizer);
  if (sentences) fmt::print("sentences   one vector for each, by modules.json\n");
  for (std::size_t n = 0; n < report.layers.size(); ++n) {
    const models::LayerKeeps& layer = report.layers[n];
    fmt::print("layer {:<5} {}, {}\n", n + 1, layer.mixer,
               layer.state_bytes > 0 ? fmt::format("a state of {} bytes", layer.state_bytes)
                                     : fmt::format("{} bytes a token", layer.bytes_per_token));
  }
  if (report.cache_bytes_per_token > 0)
    fmt::print("cache       {} bytes a token\n", report.cache_bytes_per_token);
  for (const models::ConfigProblem& problem : report.problems)
    fmt::print("problem     {}: expected {}, got {}\n", problem.key, problem.expected, problem.got);
  if (report.refused.empty())
    fmt::print("runs        yes\n");
  else
    fmt::print("runs        no: {}\n", report.refused);
}

}  // namespace

void register_show(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("show", "Say what the folder of a model is, and whether it can be run");
  command->add_option("folder", o->folder, "folder with config.json and weights")->required();
  command->add_flag("--json", o->json, "the parsed specification and all else as JSON");
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
