// Programs on disk, found by their trace, so that later processes need not plan or compile them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/object_cache.h"

namespace torch_xla {

// The keys of a program on disk. Empty if the store is off.
struct ProgramKey {
  std::string program; // everything that the program depends on, the whole trace too
  std::string structure; // the same for programs that differ in sizes alone; empty if the engine does not reuse code

  bool empty() const {
    return program.empty();
  }
};

// Thread-safe; any number of processes may share the directory. A file that cannot be read, or was written by another build, for other
// hardware or under other settings, is a miss, never an error. Counters: PersistentCacheHit, PersistentCacheMiss, and
// PersistentCacheNotStored for programs that the engine cannot serialize; the metric PersistentCacheLoad is the time of hits.
class ProgramStore {
 public:
  static ProgramStore& get(); // of engine()'s programs; leaked on purpose

  // Empty switches it off. `read_only`: nothing is written there.
  void set_directory(const std::string& path, bool read_only);
  // `structure`: the trace's structure_of().
  ProgramKey key_of(const Engine& engine, const Graph& trace, const Hash128& structure, const CompileOptions& options) const;
  // The program that was put under the key, or null.
  std::shared_ptr<Executable> find(Engine& engine, const ProgramKey& key, const CompileOptions& options);
  // Has the engine learn() the first stored program of the structure; false if there is none.
  bool teach(Engine& engine, const ProgramKey& key) const;
  // What later processes of this build shall know under the key, beside the programs. Nothing is found while the store is off.
  std::optional<std::string> find_note(const std::string& key) const;
  void put_note(const std::string& key, const std::string& note);
  // `stored`: the bytes that the engine wrote to CompileOptions::stored.
  void put(const ProgramKey& key, const std::string& stored);

 private:
  ObjectCache files_;
};

} // namespace torch_xla
