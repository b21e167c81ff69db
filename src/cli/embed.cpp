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
  std::string model, ids, output;
  bool hidden = false, logits = false;
  int threads = 0;
};

// Rows of one sequence, [ids, width].
using RowsOf = std::function<Tensor(const Ids&)>;

RowsOf rows_of(const Options& o) {
  const models::ModelFolder folder(o.model);
  if (models::is_encoder(folder.config())) {
    const auto model = std::make_shared<models::TextEncoder>(folder.text_encoder());
    return [model, logits = o.logits](const Ids& ids) {
      nn::Context inference;
      const nn::Var rows = model->hidden(inference, {&ids, 1});
      return logits ? model->logits(rows) : rows.value();
    };
  }
  const auto model = std::make_shared<models::LanguageModel>(folder.language_model());
  return [model, logits = o.logits](const Ids& ids) {
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
  std::size_t longest = 0;
  for (const Ids& ids : sequences) longest = std::max(longest, ids.size());
  Tensor all;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const Tensor one = rows(sequences[s]);
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
  command->add_option("--output", o->output, "npy file, [lines, longest line, width]; rows behind a line are 0")
      ->required();
  command->add_flag("--hidden", o->hidden, "the last hidden states");
  command->add_flag("--logits", o->logits, "what the model's head makes of them");
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
