#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/embed_output.h"
#include "cli/ids.h"
#include "cli/progress.h"
#include "cli/texts.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/weight_errors.h"
#include "fovea/text/tokenizer_json.h"
#include "fovea/train/sentence_embedder.h"
#include "models/configs.h"

namespace fovea::cli {
namespace {

struct EmbedCommand {
  std::string model, ids, input, targets, output, prompt_name, compare, weights = "f32";
  bool hidden = false, logits = false, sentence = false, truncate = false, json = false;
  int threads = 0;
};

// Rows of one sequence, [ids, width], or of a head that pools [1, labels]. A translator gives those of its
// target.
using RowsOf = std::function<Tensor(const Ids& ids, const Ids& target)>;

// What a model computes, and which sequences it reads.
struct Computes {
  RowsOf rows;
  std::int64_t vocabulary = 0, positions = 0;
};

Computes model_of(const EmbedCommand& o, const std::filesystem::path& path, autograd::WeightType weights) {
  const models::ModelFolder folder(path);
  folder.check_runs();
  const auto kind = models::family_kind(folder.config());
  const bool translator = kind == models::FamilyKind::translator;
  // A translator of fovea train is one that this command does not run: reading it says so below.
  if (translator == o.targets.empty() && !models::is_own_translator(folder.config()))
    throw InvalidArgument("fovea embed", "--target-ids-file",
                          translator ? "what the decoder reads, because the model is a translator"
                                     : "nothing, because the model is no translator",
                          translator ? "none" : o.targets);
  if (translator) {
    const std::shared_ptr<models::SequenceToSequence> model = folder.sequence_to_sequence(weights);
    const auto rows = [model, logits = o.logits](const Ids& ids, const Ids& target) {
      nn::Context inference;
      const models::Batch batch{.size = 1,
                                .source_len = std::ssize(ids),
                                .target_len = std::ssize(target),
                                .source = ids,
                                .source_lengths = {std::ssize(ids)},
                                .target_input = target,
                                .target_lengths = {std::ssize(target)}};
      const nn::Var rows = model->hidden(inference, batch, nullptr, nullptr);
      return logits ? model->logits(rows) : rows.value();
    };
    return {rows, model->vocabulary(), models::read_family(folder.config()).config.positions};
  }
  if (kind == models::FamilyKind::encoder) {
    const auto model = std::make_shared<models::TextEncoder>(folder.text_encoder(weights));
    const auto rows = [model, logits = o.logits](const Ids& ids, const Ids&) {
      nn::Context inference;
      return logits ? model->logits({&ids, 1}) : model->hidden(inference, {&ids, 1}).value();
    };
    const models::FamilyConfig config = models::read_family(folder.config()).config;
    return {rows, config.vocabulary, config.positions};
  }
  const auto model = std::make_shared<models::LanguageModel>(folder.language_model(weights));
  const auto rows = [model, logits = o.logits](const Ids& ids, const Ids&) {
    nn::Context inference;
    const nn::Var rows = model->hidden(inference, models::pad({&ids, 1}));
    return logits ? model->logits(rows) : rows.value();
  };
  return {rows, model->config().vocabulary, model->longest()};
}

// What the model does not read is named by its line before anything is computed. --truncate cuts what is
// long.
void check_ids(const EmbedCommand& o, const std::string& file, const Computes& model,
               std::vector<Ids>& sequences) {
  check_vocabulary(file, sequences, model.vocabulary);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    Ids& ids = sequences[s];
    if (std::ssize(ids) <= model.positions) continue;
    if (!o.truncate)
      throw FileError(file, static_cast<std::int64_t>(s) + 1,
                      fmt::format("has {} ids, and the model reads at most {}; --truncate cuts it",
                                  ids.size(), model.positions),
                      "line");
    ids.resize(static_cast<std::size_t>(model.positions));
  }
}

// What the sequences come from, for errors.
std::string source_of(const EmbedCommand& o) {
  const std::string& file = o.ids.empty() ? o.input : o.ids;
  return name_of(file);
}

// The sequences, and where they are texts, those.
struct Lines {
  std::vector<std::string> texts;
  std::vector<Ids> sequences;
  const std::string* text(std::size_t number) const { return texts.empty() ? nullptr : &texts[number]; }
};

// The lines of --ids-file, or those of --input with the ids that `ids_of` gives them.
Lines read_lines(const EmbedCommand& o, const std::function<Ids(const std::string&)>& ids_of) {
  Lines lines;
  if (!o.ids.empty()) {
    lines.sequences = read_ids(o.ids);
    return lines;
  }
  lines.texts = all_lines(o.input);
  for (const std::string& line : lines.texts) {
    lines.sequences.push_back(ids_of(line));
    if (lines.sequences.back().empty())
      throw FileError(source_of(o), std::ssize(lines.sequences), "has no ids: the model needs at least one",
                      "line");
  }
  if (lines.texts.empty()) throw FileError(source_of(o), -1, "has no line");
  return lines;
}

void check(const EmbedCommand& o) {
  if (int{o.hidden} + int{o.logits} + int{o.sentence} != 1)
    throw InvalidArgument("fovea embed", "--hidden, --logits, --sentence", "one of them",
                          o.hidden || o.logits || o.sentence ? "several" : "none");
  if (o.output.empty() && !o.json && o.compare.empty())
    throw InvalidArgument("fovea embed", "--output, --json, --compare", "at least one of them", "none");
  if (o.compare == o.weights)
    throw InvalidArgument("fovea embed", "--compare", "other weights than those of --weights, such as int8",
                          o.compare);
  if (!o.prompt_name.empty() && (!o.sentence || !o.ids.empty()))
    throw InvalidArgument("fovea embed", "--prompt-name", "texts and --sentence beside it",
                          o.sentence ? "--ids-file" : "no --sentence");
  if (!o.ids.empty() && !o.input.empty())
    throw InvalidArgument("fovea embed", "--input, --ids-file", "one of them", "both");
  for (const std::string* read : {&o.ids, &o.input}) {
    if (!read->empty() && !o.output.empty() && same_file(o.output, *read))
      throw InvalidArgument("fovea embed", "--output", "a file other than those it reads", o.output);
  }
}

// Whether a folder has a head with one row of numbers for each sequence.
bool has_pooled_logits(const std::filesystem::path& path) {
  const auto config = models::report_on(models::ModelFolder(path)).config;
  return config && config->head == models::FamilyHead::sequence_labels;
}

// What the weights change.
void print_errors(const EmbedCommand& o, const models::RowErrors& errors) {
  if (o.json)
    return print_line({{"weights", o.weights},
                       {"compared_with", o.compare},
                       {"rows", errors.rows},
                       {"relative_error", errors.numbers.value()},
                       {"mean_cosine", errors.mean_cosine()},
                       {"least_cosine", errors.least_cosine}});
  fmt::print("weights          {} beside {}, over {} rows\n", o.weights, o.compare, errors.rows);
  fmt::print("numbers          relative error {:.3g}\n", errors.numbers.value());
  fmt::print("cosine           {:.6f} in the mean, {:.6f} at least\n", errors.mean_cosine(),
             errors.least_cosine);
}

const std::string& prompt_of(const EmbedCommand& o, const models::SentenceFolder& folder) {
  try {
    return folder.prompt(o.prompt_name);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("fovea embed", "--prompt-name", error.expected(), error.got());
  }
}

// One vector for each line, as the folder of sentence-transformers says.
void write_sentences(const EmbedCommand& o) {
  if (!o.targets.empty())
    throw InvalidArgument("fovea embed", "--target-ids-file", "nothing beside --sentence", o.targets);
  train::SentenceEmbedder embedder(o.model, autograd::parse_weight_type(o.weights));
  const std::string& prompt = prompt_of(o, embedder.folder());
  Lines lines = read_lines(o, [&](const std::string& line) { return embedder.ids(line, prompt); });
  check_ids(o, source_of(o), {{}, embedder.encoder().vocabulary(), embedder.encoder().positions()},
            lines.sequences);
  const std::int64_t prompt_ids = o.ids.empty() ? embedder.prompt_ids(prompt) : 0;
  const auto vectors_of = [&](const models::SentenceEncoder& encoder) {
    CountProgress progress("embed", "lines");
    Tensor vectors = encoder.vectors(lines.sequences, prompt_ids, [&](std::int64_t done) {
      progress.show(done, std::ssize(lines.sequences));
      return true;
    });
    expect_numbers(vectors, o.model, "a line");
    return vectors;
  };
  const Tensor vectors = vectors_of(embedder.encoder());
  EmbedOutput output(o.output, o.json, EmbedOutput::Form::vectors, lines.sequences.size(), 1);
  for (std::size_t s = 0; s < lines.sequences.size(); ++s)
    output.add(lines.text(s), lines.sequences[s],
               autograd::slice(nn::Var(vectors), 0, static_cast<std::int64_t>(s), 1).value());
  output.finish();
  if (o.compare.empty()) return;
  const models::SentenceEncoder exact(embedder.folder(), autograd::parse_weight_type(o.compare));
  models::RowErrors errors;
  errors.add(vectors_of(exact), vectors);
  print_errors(o, errors);
}

// The rows of each line, or of a head with labels of texts its numbers.
void write_rows(const EmbedCommand& o) {
  if (!o.targets.empty() && input_path(o.targets) == "/dev/stdin" && name_of(o.targets) == source_of(o))
    throw InvalidArgument("fovea embed", "--target-ids-file", "a file, because the source is standard input",
                          o.targets);
  const std::optional<models::SentenceFolder> sentences = models::read_sentence_folder(o.model);
  const std::filesystem::path path = sentences ? sentences->model : std::filesystem::path(o.model);
  const Computes model = model_of(o, path, autograd::parse_weight_type(o.weights));
  std::optional<Computes> exact;
  if (!o.compare.empty()) exact = model_of(o, path, autograd::parse_weight_type(o.compare));
  models::RowErrors errors;
  std::optional<text::FolderTokenizer> read;
  std::optional<std::int64_t> most;
  Lines lines = read_lines(o, [&](const std::string& line) {
    if (!read) {
      read = text::read_folder_tokenizer(path);
      if (sentences)
        most = sentences->longest(read->max_length, model.positions);
      else if (o.truncate)  // cut by the tokenizer, which keeps the ids that end a text
        most = model.positions;
    }
    return read->tokenizer.encode(line, {.max_length = most, .cut_side = read->cut_side}).ids;
  });
  const std::vector<Ids>& sequences = lines.sequences;
  check_ids(o, source_of(o), model, lines.sequences);
  std::vector<Ids> targets = o.targets.empty() ? sequences : read_ids(o.targets);
  if (!o.targets.empty()) check_ids(o, o.targets, model, targets);
  if (targets.size() != sequences.size())
    throw FileError(o.targets, -1,
                    "expected " + std::to_string(sequences.size()) + " lines, as many as in " + source_of(o) +
                        ", got " + std::to_string(targets.size()));
  std::size_t longest = 0;
  for (const Ids& ids : targets) longest = std::max(longest, ids.size());
  const bool labels = o.logits && has_pooled_logits(path);
  EmbedOutput output(o.output, o.json, labels ? EmbedOutput::Form::vectors : EmbedOutput::Form::rows,
                     sequences.size(), longest);
  CountProgress progress("embed", "lines");
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    progress.show(static_cast<std::int64_t>(s), std::ssize(sequences));
    const Tensor rows = model.rows(sequences[s], targets[s]);
    expect_numbers(rows, o.model, "a line");
    if (o.json) progress.clear();
    output.add(lines.text(s), sequences[s], rows);
    if (!exact) continue;
    const Tensor of_exact = exact->rows(sequences[s], targets[s]);
    expect_numbers(of_exact, o.model, "a line");
    errors.add(of_exact, rows);
  }
  progress.clear();
  output.finish();
  if (exact) print_errors(o, errors);
}

void run(const EmbedCommand& o) {
  check(o);
  nn::use_threads(o.threads);
  o.sentence ? write_sentences(o) : write_rows(o);
}

}  // namespace

void register_embed(Command app) {
  auto o = std::make_shared<EmbedCommand>();
  Command command = app.add_subcommand("embed", "Write what a model computes for texts or token ids");
  command.add_option("--model", o->model, "folder of an encoder or a language model").required();
  command
      .add_option("--input", o->input,
                  "a text a line, of at most 65,536 bytes; needs the folder's tokenizer.json. Without it, "
                  "or for -, standard input")
      .check(file_name());
  command.add_option("--ids-file", o->ids, "instead of texts: one sequence of token ids a line")
      .check(file_name());
  command
      .add_option("--target-ids-file", o->targets,
                  "for a translator: what its decoder reads, the id that it starts with included")
      .check(file_name());
  command
      .add_option(
          "--output", o->output,
          "npy file, [lines, longest line, width], and 0 behind a line; of --sentence, and of the logits of "
          "labels of texts, [lines, width]. A name that ends with .json: an array of the rows, or of the "
          "vector, of each line")
      .check(file_name());
  command.add_flag("--json", o->json,
                   "print a JSON object for each line: its text, its ids, and its rows or its vector");
  command.add_flag("--hidden", o->hidden, "the last hidden states");
  command.add_flag("--logits", o->logits, "what the model's head makes of them");
  command.add_flag("--sentence", o->sentence,
                   "one vector for each line, as modules.json of a sentence-transformers folder says");
  command.add_option("--prompt-name", o->prompt_name,
                     "of --sentence: the prompt of config_sentence_transformers.json before each text; "
                     "default: what its default_prompt_name says");
  command.add_option("--weights", o->weights, "products with weights of f32, bf16 or int8")
      .check(one_of({"f32", "bf16", "int8"}));
  command
      .add_option("--compare", o->compare,
                  "of --weights int8 or bf16: print how far the numbers are from those with these weights, "
                  "such as f32")
      .check(one_of({"f32", "int8", "bf16"}));
  command.add_flag("--truncate", o->truncate, "cut lines that are too long, which are refused otherwise");
  add_threads_option(command, o->threads);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
