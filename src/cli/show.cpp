#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "core/excerpt.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/sentence_folder.h"
#include "fovea/plan/plan.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {
namespace {

using nlohmann::ordered_json;

struct ShowCommand {
  std::string folder;
  bool json = false, families = false;
};

// What the tokenizer is, or why it cannot be read.
struct TokenizerReport {
  std::string type, refused, unit = "ids";
  std::int64_t size = 0;
  std::optional<std::int64_t> max_length;
};

std::optional<TokenizerReport> tokenizer_of(const std::filesystem::path& folder) {
  const bool json = text::has_folder_tokenizer(folder), marian = text::MarianTokenizer::is_in(folder);
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

// Why the generation_config.json of a model cannot be read; "" if it can, or if there is none.
std::string refused_generation(const std::filesystem::path& folder) {
  try {
    (void)models::ModelFolder(folder).generation();
    return "";
  } catch (const FileError& error) {
    return error.what();
  }
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

// "; decay a token, by head: 0.97, 0.98 to 0.99" where the parameters alone say it, and of many heads the
// range.
std::string resting_decays_text(const models::LayerKeeps& layer) {
  const std::vector<models::LayerKeeps::Decays>& decays = layer.decays;
  constexpr std::size_t most_heads = 16;
  if (decays.empty()) return "";
  const auto range = [](double least, double most) {
    const std::string from = fmt::format("{:.4g}", least), to = fmt::format("{:.4g}", most);
    return from == to ? from : from + " to " + to;
  };
  if (decays.size() > most_heads) {
    double least = 1.0, most = 0.0;
    for (const auto& head : decays) {
      least = std::min(least, head.least);
      most = std::max(most, head.most);
    }
    return fmt::format("; decay a token at rest, of {} {}: {}", decays.size(),
                       layer.mixer == "mamba" ? "channels" : "heads", range(least, most));
  }
  std::string list;
  for (const auto& head : decays) list += (list.empty() ? "" : ", ") + range(head.least, head.most);
  return "; decay a token at rest, by head: " + list;
}

ordered_json layers_json(const std::vector<models::LayerKeeps>& layers) {
  ordered_json list = ordered_json::array();
  for (const models::LayerKeeps& layer : layers) {
    ordered_json decays = ordered_json::array();
    for (const auto& head : layer.decays) decays.push_back({head.least, head.most});
    list.push_back({{"mixer", layer.mixer},
                    {"state_bytes", layer.state_bytes},
                    {"cache_bytes_per_token", layer.bytes_per_token},
                    {"resting_decays", decays}});
  }
  return list;
}

ordered_json json_of(const models::FolderReport& report) {
  ordered_json problems = ordered_json::array();
  for (const models::ConfigProblem& problem : report.problems)
    problems.push_back({{"key", problem.key}, {"expected", problem.expected}, {"got", problem.got}});
  ordered_json encoder = ordered_json::array();
  for (const models::LayerKeeps& layer : report.encoder_layers) encoder.push_back(layer.mixer);
  return {{"model_type", report.model_type},
          {"runs", report.refused.empty()},
          {"refused", report.refused.empty() ? ordered_json(nullptr) : ordered_json(report.refused)},
          {"problems", problems},
          {"tensors", report.tensors},
          {"parameters", report.parameters},
          {"bytes", report.bytes},
          {"types", report.types},
          {"cache_bytes_per_token", report.cache_bytes_per_token},
          {"layers", layers_json(report.layers)},
          {"encoder_layers", encoder},
          {"specification",
           report.config ? ordered_json::parse(models::to_json(*report.config)) : ordered_json(nullptr)}};
}

std::string kept_text(const models::LayerKeeps& layer) {
  if (layer.state_bytes > 0 && layer.bytes_per_token > 0)
    return fmt::format("{} bytes a token, and {} bytes of the last block", layer.bytes_per_token,
                       layer.state_bytes);
  return layer.state_bytes > 0 ? fmt::format("a state of {} bytes", layer.state_bytes)
                               : fmt::format("{} bytes a token", layer.bytes_per_token);
}

void print_layers(const models::FolderReport& report) {
  for (std::size_t n = 0; n < report.encoder_layers.size(); ++n) {
    const std::string& mixer = report.encoder_layers[n].mixer;
    fmt::print("encoder {:<3} {}{}\n", n + 1, mixer, mixer == "attention" ? "" : ", reads both ways");
  }
  const char* side = report.encoder_layers.empty() ? "layer" : "decoder";
  for (std::size_t n = 0; n < report.layers.size(); ++n) {
    const models::LayerKeeps& layer = report.layers[n];
    fmt::print("{} {:<{}} {}, {}{}\n", side, n + 1, report.encoder_layers.empty() ? 5 : 3, layer.mixer,
               kept_text(layer), resting_decays_text(layer));
  }
}

// The kernels of attention that run here for this model's heads, by what they do.
std::vector<std::pair<std::string, std::string>> kernels_of(const models::FolderReport& report) {
  std::vector<std::pair<std::string, std::string>> kernels;
  if (!report.refused.empty() || !report.config || report.config->heads == 0) return kernels;
  const models::FamilyConfig& c = *report.config;
  const std::int64_t length = std::min<std::int64_t>(c.positions, 512);
  const auto add = [&](const char* name, std::int64_t queries, DType dtype) {
    const AttentionShape shape{.num_query_heads = c.heads,
                               .num_kv_heads = c.kv_heads,
                               .query_len = queries,
                               .key_len = length,
                               .head_dim = c.head_dim};
    kernels.emplace_back(name, make_plan({.mask = Causal{}}, shape, {.dtype = dtype}).kernel());
  };
  add("reading", length, DType::f32);
  add("reading, weights of bf16", length, DType::bf16);
  if (c.kind != models::FamilyKind::encoder) add("one token", 1, DType::f32);
  return kernels;
}

void print_sizes(const models::FamilyConfig& c) {
  fmt::print("sizes       {} layers{}, width {}", c.layers, c.one_block ? " with the same weights" : "",
             c.dim);
  if (c.embedding_dim) fmt::print(", embeddings of {}", *c.embedding_dim);
  // A recurrence alone has no heads of keys.
  const bool attends = c.heads > 0;
  if (attends) fmt::print(", {} heads of {}, {} of keys and values", c.heads, c.head_dim, c.kv_heads);
  if (c.has_feed_forward) fmt::print(", inner width {}", c.feed_forward);
  fmt::print("\nvocabulary  {}\n", c.vocabulary);
  if (models::positions_end(c))
    fmt::print("positions   {}\n", c.positions);
  else
    fmt::print("positions   any number\n");
}

void print_families(const ShowCommand& o) {
  ordered_json all = ordered_json::object();
  for (const std::string_view family : models::families()) {
    const std::vector<std::string> classes = models::family_classes(family);
    all[std::string(family)] = classes;
    if (!o.json) fmt::print("{:<20} {}\n", family, fmt::join(classes, ", "));
  }
  if (o.json) fmt::print("{}\n", all.dump(2));
}

void run(const ShowCommand& o) {
  if (o.families != o.folder.empty())
    throw InvalidArgument("fovea show", "folder",
                          o.families ? "none beside --families" : "a folder, or --families",
                          o.families ? o.folder : "none");
  if (o.families) return print_families(o);
  const auto sentences = models::read_sentence_folder(o.folder);
  const std::filesystem::path folder = sentences ? sentences->model : std::filesystem::path(o.folder);
  const models::FolderReport report = models::report_on(models::ModelFolder(folder));
  const std::optional<TokenizerReport> tokenizer = tokenizer_of(folder);
  const std::string generation_refused = report.refused.empty() ? refused_generation(folder) : "";
  if (o.json) {
    ordered_json json = json_of(report);
    json["tokenizer"] = json_of(tokenizer);
    json["generation_refused"] =
        generation_refused.empty() ? ordered_json() : ordered_json(generation_refused);
    json["attention_kernels"] = ordered_json::object();
    for (const auto& [name, kernel] : kernels_of(report)) json["attention_kernels"][name] = kernel;
    json["sentence_vectors"] = sentences.has_value();
    if (sentences) {
      json["similarity"] = models::to_string(sentences->similarity);
      json["prompts"] = sentences->prompts;
    }
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
    if (report.problems.empty()) print_sizes(c);  // those of a key with a problem would be the family's
    if (!c.labels.empty()) fmt::print("labels      {}\n", fmt::join(c.labels, ", "));
  }
  if (report.tensors > 0)
    fmt::print("weights     {} elements in {} tensors, {} bytes\n", report.parameters, report.tensors,
               report.bytes);
  else
    fmt::print("weights     none\n");
  for (const auto& [type, count] : report.types) fmt::print("            {} of {}\n", count, type);
  print(tokenizer);
  if (sentences) {
    fmt::print("sentences   one vector for each, by modules.json; {} similarity\n",
               models::to_string(sentences->similarity));
    for (const auto& [name, prompt] : sentences->prompts)
      fmt::print("prompt      {}: '{}'\n", excerpt(name), excerpt(prompt));
  }
  print_layers(report);
  if (report.cache_bytes_per_token > 0)
    fmt::print("cache       {} bytes a token\n", report.cache_bytes_per_token);
  for (const auto& [name, kernel] : kernels_of(report))
    fmt::print("kernel      attention, {}: {}\n", name, kernel);
  for (const models::ConfigProblem& problem : report.problems)
    fmt::print("problem     {}: expected {}, got {}\n", problem.key, problem.expected, problem.got);
  if (!report.refused.empty())
    fmt::print("runs        no: {}\n", report.refused);
  else if (!generation_refused.empty())
    fmt::print("runs        writes no texts: {}\n", generation_refused);
  else if (tokenizer && !tokenizer->refused.empty())
    fmt::print("runs        with ids alone: its tokenizer cannot be read\n");
  else
    fmt::print("runs        yes\n");
}

}  // namespace

void register_show(Command app) {
  auto o = std::make_shared<ShowCommand>();
  Command command = app.add_subcommand("show", "Say which model a folder has, and whether it runs");
  command.footer("The exit status is 0 where the folder can be read, also if its model does not run.");
  command.add_option("folder", o->folder, "folder with config.json and weights");
  command.add_flag("--families", o->families,
                   "list the model_types of transformers that run, and their classes");
  command.add_flag("--json", o->json, "the parsed specification and all else as JSON");
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
