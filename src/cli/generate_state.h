// `fovea generate --save-state` and `--load-state`: a text that goes on in another process.
#pragma once

#include <cstdint>

#include "cli/generate_options.h"
#include "cli/ids.h"
#include "fovea/cache/kv_cache.h"

namespace fovea::cli {

/// A text that is being written: what was read is in a sequence, and some ids are still to be read.
struct TextState {
  Sequence sequence;
  Ids unread;
  std::int64_t written = 0;
};

void save_state(const GenerateOptions& options, const KvCache& cache, const TextState& state);
/// Throws FileError for a file that is no state, or one of another model.
TextState load_state(const GenerateOptions& options, KvCache& cache);

}  // namespace fovea::cli
