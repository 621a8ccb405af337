// Programs on disk, found by their trace: what one process has compiled the next one need not plan anew.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/object_cache.h"

namespace torch_xla {

// By what a program is found on disk. Empty where the store is off.
struct ProgramKey {
  std::string program; // all that decides on it, the whole trace too
  std::string structure; // what programs that differ in sizes alone have in common; empty where the engine does not reuse code

  bool empty() const {
    return program.empty();
  }
};

// Thread-safe; any number of processes may share the directory. What cannot be read, or was written by another build, for other hardware
// or under other settings, is a miss, never an error. Counters: PersistentCacheHit, PersistentCacheMiss, and PersistentCacheNotStored for
// programs of which the engine has no form for files; the time of what is found is the metric PersistentCacheLoad.
class ProgramStore {
 public:
  static ProgramStore& get(); // of engine()'s programs; leaked on purpose

  // Empty switches it off. `read_only`: nothing is written there.
  void set_directory(const std::string& path, bool read_only);
  // `structure`: the trace's structure_of().
  ProgramKey key_of(const Engine& engine, const Graph& trace, const Hash128& structure, const CompileOptions& options) const;
  // The program that was put under the key, or null.
  std::shared_ptr<Executable> find(Engine& engine, const ProgramKey& key, const CompileOptions& options);
  // Has the engine learn from the program of the structure that was put first; false where there is none.
  bool teach(Engine& engine, const ProgramKey& key) const;
  // `stored` is what the engine gave for CompileOptions::stored.
  void put(const ProgramKey& key, const std::string& stored);

 private:
  ObjectCache files_;
};

} // namespace torch_xla
