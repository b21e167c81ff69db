#include "cli/generate_state.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/crc32c.h"
#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/files/safetensors.h"
#include "fovea/files/weights.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

constexpr std::size_t most_config_bytes = std::size_t{1} << 24;

// Of the folder's weights and config.json, as they lie in their files: a state belongs to the model that made
// it.
std::string fingerprint(const GenerateOptions& o) {
  const std::string config =
      files::read_file(std::filesystem::path(o.model) / "config.json", most_config_bytes);
  std::uint32_t checksum = crc32c(config.data(), config.size());
  const files::WeightFile file(files::find_weights(o.model));
  for (const files::StoredTensor& tensor : file.tensors()) {
    checksum = crc32c(tensor.name.data(), tensor.name.size(), checksum);
    checksum = crc32c(tensor.bytes.data(), tensor.bytes.size(), checksum);
    tensor.release(0, tensor.shape.count());
  }
  return fmt::format("{:08x}{}", checksum, o.weights == "f32" ? "" : " " + o.weights);
}

}  // namespace

void save_state(const GenerateOptions& o, const KvCache& cache, const TextState& state) {
  const json note = {{"model", fingerprint(o)}, {"unread", state.unread}, {"written", state.written}};
  cache.save(state.sequence, o.save_state, note.dump());
}

TextState load_state(const GenerateOptions& o, KvCache& cache) {
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
  if (made_by != fingerprint(o))
    throw refuse("is the state of another model: of weights " + excerpt(made_by) + ", and " + o.model +
                 " has " + fingerprint(o));
  if (state.unread.empty() || state.written < 0) throw refuse("has no id to go on with");
  state.sequence = cache.load(o.load_state, {.note = note, .memory = CacheMemory::mapped});
  return state;
}

}  // namespace fovea::cli
