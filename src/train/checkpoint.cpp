#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/excerpt.h"
#include "files/json.h"
#include "files/json_scanner.h"
#include "fovea/core/profile.h"
#include "train/validation_json.h"

namespace fovea::train {
namespace {

using nlohmann::json;

// JSON has no infinity and no NaN, which a training gone wrong has: text then.
json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
double number_of(const json& j) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    if (j == number(value)) return value;
  }
  return j;
}

}  // namespace

json to_json(const Validation& v) {
  return {{"update", v.update},
          {"epoch", v.epoch},
          {"seconds", v.seconds},
          {"train_loss", number(v.train_loss)},
          {"cross_entropy", number(v.cross_entropy)},
          {"perplexity", number(v.perplexity)},
          {"bleu", v.bleu},
          {"improved", v.improved}};
}

namespace {

// Refuses states that no training writes: they would index out of range, or have no best validation.
void check(const std::string& path, const TrainState& state, std::int64_t adam_steps) {
  const auto refuse = [&](const std::string& name) {
    throw FileError(path, -1, "its state is invalid: " + name);
  };
  if (!std::isfinite(state.seconds) || state.seconds < 0)
    refuse("seconds is " + std::to_string(state.seconds));
  if (!state.curve.empty() && !state.curve.front().improved)
    refuse("the first validation was not the best so far");
  if (adam_steps != state.update)
    refuse("adam_steps is " + std::to_string(adam_steps) + ", update " + std::to_string(state.update));
  for (const Validation& v : state.curve) {
    if (v.update > state.update) refuse("a validation's update is " + std::to_string(v.update));
  }
}

// Throws FileError unless `value` is a whole number from 0 to 2^53.
std::int64_t count_of(const std::string& path, const char* name, const json& value) {
  const std::optional<std::int64_t> count = files::whole_number(value, 0, std::int64_t{1} << 53);
  if (!count)
    throw FileError(path, -1, std::string("its state is invalid: ") + name + " is " + excerpt(value.dump()));
  return *count;
}

Validation validation_of(const std::string& path, const json& j) {
  return {.update = count_of(path, "a validation's update", j.at("update")),
          .epoch = count_of(path, "a validation's epoch", j.at("epoch")),
          .seconds = j.at("seconds"),
          .train_loss = number_of(j.at("train_loss")),
          .cross_entropy = number_of(j.at("cross_entropy")),
          .perplexity = number_of(j.at("perplexity")),
          .bleu = j.at("bleu"),
          .improved = j.at("improved")};
}

}  // namespace

const Tensor& tensor_like(const Tensor& like, const std::string& path, const files::TensorFile& file,
                          const std::string& name) {
  const Tensor* found = file.find(name);
  if (!found || !(found->shape() == like.shape()) || found->dtype() != like.dtype()) {
    throw FileError(path, -1,
                    "tensor '" + name + "' is missing or has another shape than " + to_string(like.shape()));
  }
  return *found;
}

std::string checkpoint_path(const std::string& folder) {
  return folder + "/checkpoint.safetensors";
}
std::string snapshot_path(const std::string& folder, std::int64_t update) {
  return folder + "/snapshot-" + std::to_string(update) + ".safetensors";
}

void save_checkpoint(const std::string& folder, const TrainState& state, const std::string& fingerprint,
                     nn::ParameterSet& parameters, nn::Adam& adam) {
  static constexpr ProfileLabel label{"writing a checkpoint", ProfilePart::data};
  const ProfileSpan span(label);
  json curve = json::array();
  for (const Validation& v : state.curve) curve.push_back(to_json(v));
  // Numbers that must come back to the last bit are integers or go through JSON's shortest round-trip form of
  // a double.
  const json record{{"update", state.update},
                    {"epoch", state.epoch},
                    {"batch", state.batch},
                    {"seconds", state.seconds},
                    {"loss_sum", state.loss_sum},
                    {"loss_tokens", state.loss_tokens},
                    {"without_improvement", state.without_improvement},
                    {"curve", curve},
                    {"validation_due", state.validation_due},
                    {"snapshots", state.snapshots},
                    {"adam_steps", adam.steps()}};
  files::TensorFile file;
  file.metadata["fovea.state"] = record.dump();
  file.metadata["fovea.fingerprint"] = fingerprint;
  std::size_t index = 0;
  for (const nn::Parameter& parameter : parameters.all()) {
    file.tensors.push_back({"value." + parameter.name, parameter.value});
    file.tensors.push_back({"first." + parameter.name, adam.first_moments()[index]});
    file.tensors.push_back({"second." + parameter.name, adam.second_moments()[index]});
    ++index;
  }
  files::save_safetensors(checkpoint_path(folder), file);
}

namespace {

// The comma-separated entry of `text` in which `at` lies: a fingerprint is long, and one entry says what
// changed.
std::string entry_at(const std::string& text, std::size_t at) {
  const std::size_t comma = at == 0 ? std::string::npos : text.rfind(',', at - 1),
                    begin = text.find_first_not_of(" \n{", comma == std::string::npos ? 0 : comma + 1),
                    end = text.find_first_of(",\n", std::max(at, begin));
  return begin == std::string::npos ? "" : text.substr(begin, end == std::string::npos ? end : end - begin);
}

// The members of the state without the curve. The curve grows with the training and is read one validation at
// a time: a JSON document of a hostile state would take 20 times its size.
json read_state(const std::string& path, std::string text, std::vector<Validation>& curve) {
  constexpr std::size_t longest_value = 4096;  // of snapshots, one number for each that is averaged
  constexpr int depth = 2;
  files::JsonScanner scanner(path, text, files::JsonScanner::Position::line);
  const auto value = [&] {
    const std::string_view raw = scanner.raw_value(depth);
    if (raw.size() > longest_value) scanner.fail("its state is invalid: a value of more than 4096 bytes");
    return json::parse(raw);
  };
  json state = json::object();
  scanner.open_object("the state of a training");
  for (std::string_view key; scanner.next_member(key);) {
    if (state.size() > 32 || state.contains(key) || key.size() > 32)
      scanner.fail("its state is invalid: '" + excerpt(key) + "' is unknown or occurs twice");
    if (key == "curve") {
      state["curve"] = true;
      for (scanner.open_array(); scanner.next_element();) curve.push_back(validation_of(path, value()));
    } else {
      state[std::string(key)] = value();
    }
  }
  scanner.finish();
  return state;
}

void check_fingerprint(const std::string& path, const std::string& kept, const std::string& fingerprint) {
  if (kept == fingerprint) return;
  const std::size_t at = static_cast<std::size_t>(
      std::mismatch(fingerprint.begin(), fingerprint.end(), kept.begin(), kept.end()).first -
      fingerprint.begin());
  throw FileError(path, -1,
                  "belongs to another training: expected " + entry_at(fingerprint, at) + ", got " +
                      excerpt(entry_at(kept, at)));
}

// `record` is the text of a state.
TrainState state_of(const std::string& path, const std::string& record) {
  try {
    std::vector<Validation> curve;
    const json j = read_state(path, record, curve);
    const auto count = [&](const char* name) { return count_of(path, name, j.at(name)); };
    TrainState state{.update = count("update"),
                     .epoch = count("epoch"),
                     .batch = count("batch"),
                     .seconds = j.at("seconds"),
                     .loss_sum = j.at("loss_sum"),
                     .loss_tokens = count("loss_tokens"),
                     .without_improvement = count("without_improvement"),
                     .curve = std::move(curve),
                     .validation_due = j.value("validation_due", false),
                     .snapshots = {}};
    if (!j.at("snapshots").is_array())
      throw FileError(path, -1, "its state is invalid: snapshots is " + excerpt(j.at("snapshots").dump()));
    for (const json& snapshot : j.at("snapshots"))
      state.snapshots.push_back(count_of(path, "a snapshot", snapshot));
    check(path, state, count("adam_steps"));
    return state;
  } catch (const json::exception& error) {
    throw FileError(path, -1, "its state cannot be read: " + excerpt_words(error.what()));
  }
}

void copy_tensors(const std::string& path, const files::TensorFile& file, nn::ParameterSet& parameters,
                  nn::Adam& adam) {
  // The search of a tensor by its name goes through all of them.
  if (file.tensors.size() != 3 * parameters.all().size()) {
    throw FileError(path, -1,
                    "holds " + std::to_string(file.tensors.size()) + " tensors, and the training has " +
                        std::to_string(3 * parameters.all().size()));
  }
  struct Copy {
    const Tensor *from, *to;
  };
  std::vector<Copy> copies;  // nothing is copied unless all can be
  const auto add = [&](const std::string& name, const Tensor& to) {
    copies.push_back({&tensor_like(to, path, file, name), &to});
  };
  std::size_t index = 0;
  for (const nn::Parameter& parameter : parameters.all()) {
    add("value." + parameter.name, parameter.value);
    add("first." + parameter.name, adam.first_moments()[index]);
    add("second." + parameter.name, adam.second_moments()[index]);
    ++index;
  }
  for (const Copy& copy : copies) std::memcpy(copy.to->raw(), copy.from->raw(), copy.to->bytes());
}

}  // namespace

TrainState load_checkpoint(const std::string& folder, const std::string& fingerprint,
                           nn::ParameterSet& parameters, nn::Adam& adam) {
  static constexpr ProfileLabel label{"reading a checkpoint", ProfilePart::data};
  const ProfileSpan span(label);
  const std::string path = checkpoint_path(folder);
  const files::TensorFile file = files::load_safetensors(path);
  const auto kept = file.metadata.find("fovea.fingerprint"), record = file.metadata.find("fovea.state");
  if (kept == file.metadata.end() || record == file.metadata.end())
    throw FileError(path, -1, "is not a checkpoint of a training");
  check_fingerprint(path, kept->second, fingerprint);
  TrainState state = state_of(path, record->second);
  copy_tensors(path, file, parameters, adam);
  adam.set_steps(state.update);  // state_of has compared the two
  return state;
}

}  // namespace fovea::train
