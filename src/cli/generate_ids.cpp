#include "cli/generate_ids.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/commands.h"
#include "cli/ids.h"

namespace fovea::cli {

void generate_ids(const GenerateIds& options, const models::ModelFolder& folder, std::ostream& out) {
  Ids unread = parse_ids(options.prompt, "--prompt-ids");
  const models::GenerationDefaults defaults = folder.generation();
  for (const std::string& key : defaults.not_applied)
    fmt::print(stderr, "fovea: {} of generation_config.json is not applied\n", key);
  models::LanguageModel model = folder.language_model();
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = options.limit_bytes});
  Sequence sequence = cache.start();
  models::SampleOptions one = options.sample;
  one.length = 1;
  Ids ids;
  std::vector<double> log_probabilities;
  for (std::int64_t n = 0; n < options.sample.length && !stop_requested(); ++n) {
    one.first = n;
    const models::Generated next = models::generate(model, cache, sequence, unread, one);
    unread = next.ids;
    ids.push_back(unread.front());
    log_probabilities.push_back(next.log_probabilities.front());
    const auto& stops = defaults.stop_ids;
    if (std::find(stops.begin(), stops.end(), unread.front()) != stops.end()) break;
  }
  if (options.json)
    out << nlohmann::ordered_json{{"ids", ids}, {"log_probabilities", log_probabilities}}.dump() << '\n';
  else
    out << fmt::format("{}\n", fmt::join(ids, " "));
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

}  // namespace fovea::cli
