#include "train/record.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <variant>

#include "core/excerpt.h"
#include "core/shortest.h"
#include "files/json_scanner.h"
#include "fovea/files/bytes.h"
#include "fovea/models/model_folder.h"
#include "train/schedule.h"
#include "train/validation_json.h"

namespace fovea::train {
namespace {

using nlohmann::json;

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

void put_schedule(const nn::Schedule& schedule, std::map<std::string, std::string>& options) {
  if (const auto* constant = std::get_if<nn::Constant>(&schedule)) {
    options["schedule"] = quoted("constant");
    options["learn_rate"] = shortest(constant->rate);
  } else if (const auto* root = std::get_if<nn::InverseSquareRoot>(&schedule)) {
    options["schedule"] = quoted("inverse-square-root");
    options["learn_rate"] = shortest(root->peak);
    options["warmup"] = std::to_string(root->warmup);
  } else if (const auto* cosine = std::get_if<nn::WarmupCosine>(&schedule)) {
    options["schedule"] = quoted("cosine");
    options["learn_rate"] = shortest(cosine->peak);
    options["warmup"] = std::to_string(cosine->warmup);
    options["updates"] = std::to_string(cosine->updates);
  }
}

// The shortest decimal that reads back as this float: 0.1, not 0.10000000149011612.
std::string shortest_float(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// The options of training.json, each as the text that stands there.
std::map<std::string, std::string> read_options(const std::string& path) {
  constexpr std::size_t largest_file = std::size_t{256} << 20, most_options = 100;
  std::string text = files::read_file(path, largest_file);
  std::map<std::string, std::string> options;
  files::JsonScanner scanner(path, text, files::JsonScanner::Position::line);
  scanner.open_object("an object of a training's curve and options");
  for (std::string_view key; scanner.next_member(key);) {
    if (key != "options") {
      scanner.skip_value(4);
      continue;
    }
    scanner.open_object("an object of options");
    for (std::string_view option; scanner.next_member(option);) {
      if (options.size() == most_options) scanner.fail("more options than a training has");
      options[excerpt(option)] = excerpt(scanner.raw_value(1));
    }
  }
  scanner.finish();
  return options;
}

std::string listed(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

}  // namespace

TrainingRecord record_of(const TrainOptions& options, std::uint64_t train_data, std::uint64_t valid_data) {
  TrainingRecord record;
  record.fixed = {{"batch_words", std::to_string(options.batch_words)},
                  {"seed", std::to_string(options.seed)},
                  {"smoothing", shortest_float(options.smoothing)},
                  {"precision", quoted(std::string(autograd::to_string(options.precision)))},
                  {"metric", quoted(options.metric == Metric::bleu ? "bleu" : "perplexity")},
                  {"beta1", shortest(options.adam.beta1)},
                  {"beta2", shortest(options.adam.beta2)},
                  {"epsilon", shortest(options.adam.epsilon)},
                  {"clip_norm", shortest(options.adam.clip_norm)},
                  {"train_data", quoted(std::to_string(train_data))},
                  {"valid_data", quoted(std::to_string(valid_data))}};
  const nn::Schedule schedule = ending_at(options.schedule, options.max_updates);
  put_schedule(schedule, record.fixed);
  if (is_endless(schedule)) record.fixed["minutes"] = shortest(options.max_minutes);
  record.free = {{"max_updates", std::to_string(options.max_updates)},
                 {"max_epochs", std::to_string(options.max_epochs)},
                 {"max_minutes", shortest(options.max_minutes)},
                 {"validate_every", std::to_string(options.validate_every)},
                 {"save_every", std::to_string(options.save_every)},
                 {"patience", std::to_string(options.patience)},
                 {"average", std::to_string(options.average)}};
  return record;
}

void save_record(const std::string& folder, const TrainingRecord& record, const TrainState& state) {
  json curve = json::array(), options = json::object();
  for (const Validation& v : state.curve) curve.push_back(to_json(v));
  for (const auto* part : {&record.fixed, &record.free}) {
    for (const auto& [name, value] : *part) options[name] = json::parse(value);
  }
  const json whole{{"updates", state.update},
                   {"epochs", state.epoch},
                   {"seconds", state.seconds},
                   {"curve", curve},
                   {"options", options}};
  files::write_file(models::training_path(folder).string(), whole.dump(1) + "\n");
}

std::vector<std::string> check_record(const std::string& folder, const TrainingRecord& record) {
  const std::string path = models::training_path(folder).string();
  std::map<std::string, std::string> kept = read_options(path);
  kept.try_emplace("precision", quoted("f32"));  // trainings before there was a choice
  std::vector<std::string> refused, changed;
  // As numbers, where both are: a person may have written 1e-3 for 0.001.
  const auto same = [](const std::string& a, const std::string& b) {
    return a == b || json::parse(a, nullptr, false) == json::parse(b, nullptr, false);
  };
  for (const auto& [name, value] : record.fixed) {
    const auto found = kept.find(name);
    if (found == kept.end())
      refused.push_back(name + " is not recorded");
    else if (!same(found->second, value))
      refused.push_back(name.ends_with("_data") ? name + " is other data than it was"
                                                : name + " is " + value + " and was " + found->second);
  }
  if (!refused.empty()) {
    throw FileError(
        path, -1,
        "a training is resumed with the data and options that it began with, or begun anew in another "
        "folder: " +
            listed(refused));
  }
  for (const auto& [name, value] : record.free) {
    const auto found = kept.find(name);
    if (found != kept.end() && !same(found->second, value))
      changed.push_back(name + " is now " + value + ", was " + found->second);
  }
  return changed;
}

}  // namespace fovea::train
