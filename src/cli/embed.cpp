#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/ids.h"
#include "cli/progress.h"
#include "cli/texts.h"
#include "fovea/files/bytes.h"
#include "fovea/files/npy.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/sentence_folder.h"
#include "fovea/text/corpus.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string model, ids, input, targets, output, weights = "f32";
  bool hidden = false, logits = false, sentence = false, truncate = false;
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

Computes model_of(const Options& o, const std::filesystem::path& path) {
  const models::ModelFolder folder(path);
  const autograd::WeightType weights = autograd::parse_weight_type(o.weights);
  const auto kind = models::family_kind(folder.config());
  const bool translator = kind == models::FamilyKind::translator;
  if (translator == o.targets.empty())
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
void check_ids(const Options& o, const std::string& file, const Computes& model,
               std::vector<Ids>& sequences) {
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    Ids& ids = sequences[s];
    const auto refuse = [&](const std::string& reason) {
      throw FileError(file, static_cast<std::int64_t>(s) + 1, reason, "line");
    };
    for (const std::int32_t id : ids) {
      if (id >= model.vocabulary)
        refuse(fmt::format("has the id {}, and those of the model are below {}", id, model.vocabulary));
    }
    if (std::ssize(ids) <= model.positions) continue;
    if (!o.truncate)
      refuse(fmt::format("has {} ids, and the model reads at most {}; --truncate cuts it", ids.size(),
                         model.positions));
    ids.resize(static_cast<std::size_t>(model.positions));
  }
}

// What the sequences come from, for errors.
std::string source_of(const Options& o) {
  const std::string& file = o.ids.empty() ? o.input : o.ids;
  return file.empty() || file == "-" ? "standard input" : file;
}

// How many ids of a line a folder of sentence-transformers takes. It need not say more than how long a
// sequence of its model is.
std::optional<std::int64_t> longest_of(const models::SentenceFolder& sentences,
                                       const text::FolderTokenizer& read) {
  if (sentences.max_length) return sentences.max_length;
  const auto config = models::report_on(models::ModelFolder(sentences.model)).config;
  if (!config) return read.max_length;
  return std::min(read.max_length.value_or(config->positions), config->positions);
}

// The ids of the lines of --input. A folder of sentence-transformers says where longer ones are cut.
std::vector<Ids> ids_of_lines(const Options& o, const std::filesystem::path& path,
                              const std::optional<models::SentenceFolder>& sentences, std::int64_t longest) {
  const text::FolderTokenizer read = text::read_folder_tokenizer(path);
  std::optional<std::int64_t> most;
  if (sentences)
    most = longest_of(*sentences, read);
  else if (o.truncate)  // cut by the tokenizer, which keeps the ids that end a text
    most = longest;
  std::vector<Ids> sequences;
  for (const std::string& line : text::read_lines(input_path(o.input))) {
    sequences.push_back(read.tokenizer.encode(line, {.max_length = most, .cut_side = read.cut_side}).ids);
    if (sequences.back().empty())
      throw FileError(source_of(o), std::ssize(sequences), "has no ids: the model needs at least one",
                      "line");
  }
  if (sequences.empty()) throw FileError(source_of(o), -1, "has no line");
  return sequences;
}

void check(const Options& o) {
  if (int{o.hidden} + int{o.logits} + int{o.sentence} != 1)
    throw InvalidArgument("fovea embed", "--hidden, --logits, --sentence", "one of them",
                          o.hidden || o.logits || o.sentence ? "several" : "none");
  if (!o.ids.empty() && !o.input.empty())
    throw InvalidArgument("fovea embed", "--input, --ids-file", "one of them", "both");
  for (const std::string* read : {&o.ids, &o.input}) {
    if (!read->empty() && same_file(o.output, *read))
      throw InvalidArgument("fovea embed", "--output", "a file other than those it reads", o.output);
  }
}

// A line for the vector of a sequence, or for its rows: rows behind the sequence are not there.
nlohmann::ordered_json json_of(const Tensor& rows, bool vector) {
  const auto numbers = [](const float* from, std::int64_t count) {
    return nlohmann::ordered_json(std::vector<float>(from, from + count));
  };
  if (vector) return numbers(rows.data<float>(), rows.count());
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  const std::int64_t width = rows.shape()[-1];
  for (std::int64_t row = 0; row < rows.count() / width; ++row)
    all.push_back(numbers(rows.data<float>() + row * width, width));
  return all;
}

bool is_json(const std::string& path) {
  return std::filesystem::path(path).extension() == ".json";
}

// An array with an entry for each sequence: its vector, or its rows.
void write_json(const Options& o, const std::vector<Ids>& sequences, const std::vector<Ids>& targets,
                bool vectors, const std::function<Tensor(const Ids& ids, const Ids& target)>& result_of) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  CountProgress progress("embed", "lines");
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    progress.show(static_cast<std::int64_t>(s), std::ssize(sequences));
    all.push_back(json_of(result_of(sequences[s], targets.empty() ? Ids() : targets[s]), vectors));
  }
  files::write_file(o.output, all.dump() + "\n");
}

// One vector for each sequence, [sequences, width].
void write_sentences(const Options& o, const std::vector<Ids>& sequences, const RowsOf& rows,
                     const models::SentencePooling& pooling) {
  if (is_json(o.output))
    return write_json(o, sequences, {}, true,
                      [&](const Ids& ids, const Ids&) { return pooling.apply(rows(ids, {})); });
  Tensor all;
  CountProgress progress("embed", "lines");
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    progress.show(static_cast<std::int64_t>(s), std::ssize(sequences));
    const Tensor one = pooling.apply(rows(sequences[s], {}));
    if (!all) all = Tensor::zeros(DType::f32, {std::ssize(sequences), one.count()});
    std::copy_n(one.data<float>(), one.count(),
                all.data<float>() + static_cast<std::int64_t>(s) * one.count());
  }
  files::write_npy(o.output, all);
}

// Whether a folder has a head with one row of numbers for each sequence.
bool has_pooled_logits(const std::filesystem::path& path) {
  const auto config = models::report_on(models::ModelFolder(path)).config;
  return config && config->head == models::FamilyHead::sequence_labels;
}

// The rows of each sequence, [sequences, longest, width].
void write_rows(const Options& o, const std::vector<Ids>& sequences, const std::vector<Ids>& targets,
                const RowsOf& rows) {
  if (targets.size() != sequences.size())
    throw FileError(o.targets, -1,
                    "expected " + std::to_string(sequences.size()) + " lines, as many as in " + source_of(o) +
                        ", got " + std::to_string(targets.size()));
  if (is_json(o.output)) return write_json(o, sequences, targets, false, rows);
  std::size_t longest = 0;
  for (const Ids& ids : targets) longest = std::max(longest, ids.size());
  Tensor all;
  CountProgress progress("embed", "lines");
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    progress.show(static_cast<std::int64_t>(s), std::ssize(sequences));
    const Tensor one = rows(sequences[s], targets[s]);
    const std::int64_t width = one.shape()[-1];
    if (!all)
      all = Tensor::zeros(DType::f32, {std::ssize(sequences), static_cast<std::int64_t>(longest), width});
    std::copy_n(one.data<float>(), one.count(),
                all.data<float>() + static_cast<std::int64_t>(s * longest) * width);
  }
  files::write_npy(o.output, all);
}

void run(const Options& o) {
  check(o);
  nn::use_threads(o.threads);
  const std::optional<models::SentenceFolder> sentences = models::read_sentence_folder(o.model);
  if (o.sentence && !sentences)
    throw FileError(o.model, -1, "has no modules.json, which says how vectors of sentences are made");
  const std::filesystem::path path = sentences ? sentences->model : std::filesystem::path(o.model);
  const Computes model = model_of(o, path);
  std::vector<Ids> sequences =
      o.ids.empty() ? ids_of_lines(o, path, sentences, model.positions) : read_ids(o.ids);
  check_ids(o, source_of(o), model, sequences);
  std::vector<Ids> targets = o.targets.empty() ? sequences : read_ids(o.targets);
  if (!o.targets.empty()) check_ids(o, o.targets, model, targets);
  const RowsOf rows = [&](const Ids& ids, const Ids& target) {
    Tensor found = model.rows(ids, target);
    expect_numbers(found, o.model, "a line");
    return found;
  };
  if (o.sentence)
    write_sentences(o, sequences, rows, sentences->pooling);
  else if (o.logits && has_pooled_logits(path))
    write_sentences(o, sequences, rows, {.kind = models::SentencePooling::Kind::first});
  else
    write_rows(o, sequences, targets, rows);
}

}  // namespace

void register_embed(Command app) {
  auto o = std::make_shared<Options>();
  Command command = app.add_subcommand("embed", "Write what a model computes for texts or token ids");
  command.add_option("--model", o->model, "folder of an encoder or a language model").required();
  command.add_option(
      "--input", o->input,
      "a text a line; needs the folder's tokenizer.json. Without it, or for -, standard input");
  command.add_option("--ids-file", o->ids, "instead of texts: one sequence of token ids a line");
  command.add_option("--target-ids-file", o->targets,
                     "for a translator: what its decoder reads, the id that it starts with included");
  command
      .add_option(
          "--output", o->output,
          "npy file, [lines, longest line, width], and 0 behind a line; of --sentence, and of the logits of "
          "labels of texts, [lines, width]. A name that ends with .json: an array of the rows, or of the "
          "vector, "
          "of each line")
      .required();
  command.add_flag("--hidden", o->hidden, "the last hidden states");
  command.add_flag("--logits", o->logits, "what the model's head makes of them");
  command.add_flag("--sentence", o->sentence,
                   "one vector for each line, as modules.json of a sentence-transformers folder says");
  command.add_option("--weights", o->weights, "products with weights of f32, bf16 or int8")
      .check(one_of({"f32", "bf16", "int8"}));
  command.add_flag("--truncate", o->truncate, "cut lines that are too long, which are refused otherwise");
  add_threads_option(command, o->threads);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
