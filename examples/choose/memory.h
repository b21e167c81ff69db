// The bytes that the program holds: every operator new of this program is counted, tensors and workspaces
// among them.
#pragma once

#include <cstdint>

namespace choose {

/// Bytes in use now.
std::int64_t bytes_held();
/// The most that were in use since forget_peak().
std::int64_t peak_bytes();
void forget_peak();

}  // namespace choose
