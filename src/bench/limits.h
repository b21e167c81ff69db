// The limits of this machine for the shares of a profile.
#pragma once

#include "fovea/core/profile.h"

namespace fovea::bench {

/// What `threads` threads reach, measured now in about 0.4 s.
ProfileLimits profile_limits(int threads);

}  // namespace fovea::bench
