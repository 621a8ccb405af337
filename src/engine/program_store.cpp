// Keys of programs, and their way to and from the disk.
#include "engine/program_store.h"

#include "core/env.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "core/program_sources.h"
#include "ir/archive.h"

namespace torch_xla {
namespace {

// Everything besides the trace that a program depends on.
void write_settings(Writer& out, const Engine& engine, const CompileOptions& options) {
  const Precision& precision = options.precision;
  out(std::string_view(kProgramSources), env::fusion(), env::float_storage(), precision.products, precision.convolutions);
  out(engine.settings(options));
}

std::string note_key(const std::string& key) {
  return str("note ", kProgramSources, " ", key);
}

} // namespace

ProgramStore& ProgramStore::get() {
  static auto* store = new ProgramStore;
  return *store;
}

void ProgramStore::set_directory(const std::string& path, bool read_only) {
  files_.set_directory(path, {}, read_only);
}

ProgramKey ProgramStore::key_of(const Engine& engine, const Graph& trace, const Hash128& structure, const CompileOptions& options) const {
  if (!files_.is_on()) {
    return {};
  }
  Writer settings;
  write_settings(settings, engine, options);
  const std::string common = settings.take();
  return {common + graph_key(trace), engine.reuses_code() ? str(common, "structure ", structure.hex()) : std::string()};
}

std::shared_ptr<Executable> ProgramStore::find(Engine& engine, const ProgramKey& key, const CompileOptions& options) {
  static metrics::Counter hits("PersistentCacheHit");
  static metrics::Counter misses("PersistentCacheMiss");
  static metrics::Metric load("PersistentCacheLoad", metrics::Unit::kTime);
  if (key.empty()) {
    return nullptr;
  }
  int64_t start = metrics::now_ns();
  std::shared_ptr<Executable> executable;
  if (std::optional<std::string> stored = files_.find(key.program)) {
    try {
      executable = engine.restore(*stored, options);
    } catch (const InternalError& error) { // a library's operation is missing in this process
      if (env::debug_level() >= 1) {
        env::debug_print("cache", str("a program on disk is compiled again: ", error.what()));
      }
    }
  }
  (executable ? hits : misses).add();
  if (executable) {
    load.add(static_cast<double>(metrics::now_ns() - start));
  }
  return executable;
}

// The file of a structure has the hash of its first program's key.
bool ProgramStore::teach(Engine& engine, const ProgramKey& key) const {
  std::optional<std::string> first = key.structure.empty() ? std::nullopt : files_.find(key.structure);
  if (!first) {
    return false;
  }
  try {
    Reader in(*first);
    Hash128 program;
    in(program);
    std::optional<std::string> stored = files_.find(program);
    if (stored) {
      engine.learn(*stored);
    }
    return stored.has_value();
  } catch (const InternalError&) { // a damaged file: nothing to learn
    return false;
  }
}

std::optional<std::string> ProgramStore::find_note(const std::string& key) const {
  return files_.find(note_key(key));
}

void ProgramStore::put_note(const std::string& key, const std::string& note) {
  files_.put(note_key(key), note);
}

void ProgramStore::put(const ProgramKey& key, const std::string& stored) {
  static metrics::Counter not_stored("PersistentCacheNotStored");
  if (key.empty()) {
    return;
  }
  if (stored.empty()) {
    not_stored.add();
    return;
  }
  files_.put(key.program, stored);
  if (!key.structure.empty() && !files_.find(key.structure)) {
    Writer first;
    first(ObjectCache::hash_of(key.program));
    files_.put(key.structure, first.take());
  }
}

} // namespace torch_xla
