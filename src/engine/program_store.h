// Programs on disk, found by their trace: what one process has compiled the next one need not plan anew.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/object_cache.h"

namespace torch_xla {

// Thread-safe; any number of processes may share the directory. What cannot be read, or was written by another build, for other hardware
// or under other settings, is a miss, never an error. Counters: PersistentCacheHit, PersistentCacheMiss, and PersistentCacheNotStored for
// programs of which the engine has no form for files; the time of what is found is the metric PersistentCacheLoad.
class ProgramStore {
 public:
  static ProgramStore& get(); // of engine()'s programs; leaked on purpose

  // Empty switches it off. `read_only`: nothing is written there.
  void set_directory(const std::string& path, bool read_only);
  // By what the program of a trace is found: all that decides on it, the whole trace too. Empty where the store is off.
  std::string key_of(const Engine& engine, const Graph& trace, const CompileOptions& options) const;
  // The program that was put under the key, or null.
  std::shared_ptr<Executable> find(Engine& engine, const std::string& key, const CompileOptions& options);
  // `stored` is what the engine gave for CompileOptions::stored.
  void put(const std::string& key, const std::string& stored);

 private:
  ObjectCache files_;
};

} // namespace torch_xla
