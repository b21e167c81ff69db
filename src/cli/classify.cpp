#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.h"
#include "cli/head_texts.h"
#include "fovea/models/heads.h"

namespace fovea::cli {
namespace {

using nlohmann::ordered_json;

struct ClassifyCommand {
  HeadOptions head;
  std::size_t top_k = 1;
};

void run(const ClassifyCommand& o) {
  const HeadModel model(o.head, "fovea classify", {models::FamilyHead::sequence_labels});
  const std::vector<std::string>& labels = model.config().labels;
  const std::size_t shown = o.top_k == 0 ? labels.size() : std::min(o.top_k, labels.size());
  const auto print = [&](const text::CheckedLine& line, auto, std::span<const Tensor> logits) {
    const std::vector<double> scores =
        models::scores_of(model.config().score_function, {logits[0].data<float>(), labels.size()});
    std::vector<std::size_t> order(labels.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(shown);
    if (o.head.json) {
      ordered_json list = ordered_json::array();
      for (const std::size_t i : order) list.push_back({{"label", labels[i]}, {"score", scores[i]}});
      return print_line({{"line", line.number}, {"text", line.text}, {"labels", list}});
    }
    for (std::size_t n = 0; n < order.size(); ++n)
      fmt::print("{}{:.4f}\t{}", n > 0 ? "\t" : "", scores[order[n]], labels[order[n]]);
    fmt::print("\t{}\n", line.text);
  };
  const auto encode = [&](const std::string& text) { return std::vector{model.encode(text)}; };
  model.answer(o.head, {.encode = encode, .print = print});
}

}  // namespace

void register_classify(Command app) {
  auto o = std::make_shared<ClassifyCommand>();
  Command command = app.add_subcommand("classify", "Say which labels texts have");
  command.footer(bad_lines_help);
  add_head_options(command, o->head, "texts to classify");
  add_truncate(command, o->head);
  command.add_option("--top-k", o->top_k, "labels for each text, the best first; 0: all");
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
