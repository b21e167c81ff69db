#include "cli/generate_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/crc32c.h"
#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/files/safetensors.h"
#include "fovea/files/weights.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

// Of all weights: a state belongs to the model that made it. Values that a packed model has left in its file
// are read from there.
std::string fingerprint(const GenerateOptions& o, const models::LanguageModel& model) {
  const files::WeightFile file(files::find_weights(o.model));
  std::uint32_t checksum = 0;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    const Tensor& value = parameter.value;
    const files::StoredTensor* stored = value.empty() ? file.find(parameter.name) : nullptr;
    if (value.empty() && (!stored || stored->shape != value.shape()))
      throw FileError(file.path(), -1, "has no tensor '" + parameter.name + "' of the model that was read");
    const auto add = [&](const float* values, std::int64_t count) {
      checksum = crc32c(values, static_cast<std::uint64_t>(count) * sizeof(float), checksum);
    };
    if (!stored) {
      add(value.data<float>(), value.count());
      continue;
    }
    std::vector<float> piece(std::size_t{1} << 16);
    for (std::int64_t at = 0; at < value.count(); at += std::ssize(piece)) {
      const std::int64_t count = std::min(std::ssize(piece), value.count() - at);
      stored->copy_to(piece.data(), at, count);
      add(piece.data(), count);
    }
    stored->release(0, value.count());
  }
  return fmt::format("{:08x}{}", checksum, o.weights == "f32" ? "" : " " + o.weights);
}

}  // namespace

void save_state(const GenerateOptions& o, const models::LanguageModel& model, const KvCache& cache,
                const TextState& state) {
  const json note = {{"model", fingerprint(o, model)}, {"unread", state.unread}, {"written", state.written}};
  cache.save(state.sequence, o.save_state, note.dump());
}

TextState load_state(const GenerateOptions& o, const models::LanguageModel& model, KvCache& cache) {
  const std::string note = KvCache::note_of(o.load_state);
  const auto refuse = [&](const std::string& problem) -> FileError {
    return FileError(o.load_state, -1, problem);
  };
  TextState state;
  std::string made_by;
  try {
    const json read = files::parse_json_object(o.load_state, note, 3);
    made_by = read.at("model").get<std::string>();
    state.unread = read.at("unread").get<Ids>();
    state.written = read.at("written").get<std::int64_t>();
  } catch (const json::exception&) {
    throw refuse("is no state of fovea generate: its note is '" + excerpt(note) + "'");
  }
  if (made_by != fingerprint(o, model))
    throw refuse("is the state of another model: of weights " + excerpt(made_by) + ", and " + o.model +
                 " has " + fingerprint(o, model));
  if (state.unread.empty() || state.written < 0) throw refuse("has no id to go on with");
  state.sequence = cache.load(o.load_state, {.note = note, .memory = CacheMemory::mapped});
  return state;
}

}  // namespace fovea::cli
