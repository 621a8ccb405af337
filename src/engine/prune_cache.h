// Keeps a directory of compiled code within limits.
#pragma once

#include <cstdint>
#include <string>

namespace torch_xla {

// Limits of a directory. The least recently used files go first.
struct CacheLimits {
  int64_t bytes = int64_t{1} << 30;
  int64_t files = 50'000;
};

// Deletes files over the limits, and leftovers of writers that ended early.
void prune_cache(const std::string& directory, const CacheLimits& limits);
// As prune_cache(), at most once an hour among all processes.
void prune_cache_hourly(const std::string& directory, const CacheLimits& limits);

} // namespace torch_xla
