#include "cli/generate_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/crc32c.h"
#include "core/excerpt.h"
#include "files/json.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

// Of all weights: a state belongs to the model that made it.
std::string fingerprint(const models::LanguageModel& model, const std::string& weights) {
  std::uint32_t checksum = 0;
  for (const nn::Parameter& parameter : model.parameters().all())
    checksum = crc32c(parameter.value.raw(),
                      static_cast<std::uint64_t>(parameter.value.count()) * sizeof(float), checksum);
  return fmt::format("{:08x}{}", checksum, weights == "f32" ? "" : " " + weights);
}

}  // namespace

void save_state(const GenerateOptions& o, const models::LanguageModel& model, const KvCache& cache,
                const TextState& state) {
  const json note = {
      {"model", fingerprint(model, o.weights)}, {"unread", state.unread}, {"written", state.written}};
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
  if (made_by != fingerprint(model, o.weights))
    throw refuse("is the state of another model: of weights " + excerpt(made_by) + ", and " + o.model +
                 " has " + fingerprint(model, o.weights));
  if (state.unread.empty() || state.written < 0) throw refuse("has no id to go on with");
  state.sequence = cache.load(o.load_state, {.note = note, .memory = CacheMemory::mapped});
  return state;
}

}  // namespace fovea::cli
