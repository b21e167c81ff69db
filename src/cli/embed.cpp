#include <algorithm>
#include <functional>
#include <memory>

#include "cli/commands.h"
#include "cli/ids.h"
#include "fovea/files/npy.h"
#include "fovea/models/model_folder.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string model, ids, targets, output;
  bool hidden = false, logits = false;
  int threads = 0;
};

// Rows of one sequence, [ids, width]. A translator gives those of its target.
using RowsOf = std::function<Tensor(const Ids& ids, const Ids& target)>;

RowsOf rows_of(const Options& o) {
  const models::ModelFolder folder(o.model);
  const auto kind = models::family_kind(folder.config());
  const bool translator = kind == models::FamilyKind::translator;
  if (translator == o.targets.empty())
    throw InvalidArgument("fovea embed", "--target-ids-file",
                          translator ? "what the decoder reads, because the model is a translator"
                                     : "nothing, because the model is no translator",
                          translator ? "none" : o.targets);
  if (translator) {
    const std::shared_ptr<models::SequenceToSequence> model = folder.sequence_to_sequence();
    return [model, logits = o.logits](const Ids& ids, const Ids& target) {
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
  }
  if (kind == models::FamilyKind::encoder) {
    const auto model = std::make_shared<models::TextEncoder>(folder.text_encoder());
    return [model, logits = o.logits](const Ids& ids, const Ids&) {
      nn::Context inference;
      const nn::Var rows = model->hidden(inference, {&ids, 1});
      return logits ? model->logits(rows) : rows.value();
    };
  }
  const auto model = std::make_shared<models::LanguageModel>(folder.language_model());
  return [model, logits = o.logits](const Ids& ids, const Ids&) {
    nn::Context inference;
    const nn::Var rows = model->hidden(inference, models::pad({&ids, 1}));
    return logits ? model->logits(rows) : rows.value();
  };
}

void run(const Options& o) {
  if (o.hidden == o.logits)
    throw InvalidArgument("fovea embed", "--hidden, --logits", "one of them", o.hidden ? "both" : "none");
  if (same_file(o.output, o.ids))
    throw InvalidArgument("fovea embed", "--output", "a file other than --ids-file", o.output);
  nn::use_openmp(o.threads);
  const std::vector<Ids> sequences = read_ids(o.ids);
  const RowsOf rows = rows_of(o);
  const std::vector<Ids> targets = o.targets.empty() ? sequences : read_ids(o.targets);
  if (targets.size() != sequences.size())
    throw FileError(o.targets, -1,
                    "expected " + std::to_string(sequences.size()) + " lines, as many as in " + o.ids +
                        ", got " + std::to_string(targets.size()));
  std::size_t longest = 0;
  for (const Ids& ids : targets) longest = std::max(longest, ids.size());
  Tensor all;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const Tensor one = rows(sequences[s], targets[s]);
    const std::int64_t width = one.shape()[-1];
    if (!all)
      all = Tensor::zeros(DType::f32, {std::ssize(sequences), static_cast<std::int64_t>(longest), width});
    std::copy_n(one.data<float>(), one.count(),
                all.data<float>() + static_cast<std::int64_t>(s * longest) * width);
  }
  files::write_npy(o.output, all);
}

}  // namespace

void register_embed(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("embed", "Write what a model computes for token ids");
  command->add_option("--model", o->model, "folder of an encoder or a language model")->required();
  command->add_option("--ids-file", o->ids, "one sequence of token ids a line")->required();
  command->add_option("--target-ids-file", o->targets,
                      "for a translator: what its decoder reads, the id that it starts with included");
  command
      ->add_option("--output", o->output, "npy file, [lines, longest line, width]; rows behind a line are 0")
      ->required();
  command->add_flag("--hidden", o->hidden, "the last hidden states");
  command->add_flag("--logits", o->logits, "what the model's head makes of them");
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
