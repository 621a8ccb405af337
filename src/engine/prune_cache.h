// Keeps a directory of compiled code within limits.
#pragma once

#include <cstdint>
#include <string>

namespace torch_xla {

// What a directory may hold. Files that were not used for the longest time go first.
struct CacheLimits {
  int64_t bytes = int64_t{1} << 30;
  int64_t files = 50'000;
};

// Deletes what is over the limits, and what writers that ended early have left.
void prune_cache(const std::string& directory, const CacheLimits& limits);
// As prune_cache(), at most once an hour, whichever process asks.
void prune_cache_hourly(const std::string& directory, const CacheLimits& limits);

} // namespace torch_xla
