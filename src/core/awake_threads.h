// Whether a loop would begin at once, or threads would have to wake for it.
#pragma once

namespace fovea {

/// Whether the default executor is a pool of this library, has been made, and all its threads wait for a loop
/// right now without sleeping. They do so for some 50 us behind a loop. The next one then begins within about
/// a microsecond, so smaller ones are worth sharing. A hint: it may be wrong a moment later.
bool default_threads_are_awake() noexcept;

}  // namespace fovea
