// Keys of programs, and their way to and from the disk.
#include "engine/program_store.h"

#include "core/env.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "core/program_sources.h"
#include "ir/archive.h"

namespace torch_xla {

ProgramStore& ProgramStore::get() {
  static auto* store = new ProgramStore;
  return *store;
}

void ProgramStore::set_directory(const std::string& path, bool read_only) {
  files_.set_directory(path, {}, read_only);
}

std::string ProgramStore::key_of(const Engine& engine, const Graph& trace, const CompileOptions& options) const {
  if (!files_.is_on()) {
    return {};
  }
  Writer out;
  const Precision& precision = options.precision;
  out(std::string_view(kProgramSources),
      env::fusion(),
      env::float_storage(),
      precision.products,
      precision.convolutions,
      precision.cuda_convolutions);
  out(engine.settings(options), graph_key(trace));
  return out.take();
}

std::shared_ptr<Executable> ProgramStore::find(Engine& engine, const std::string& key, const CompileOptions& options) {
  static metrics::Counter hits("PersistentCacheHit");
  static metrics::Counter misses("PersistentCacheMiss");
  static metrics::Metric load("PersistentCacheLoad", metrics::Unit::kTime);
  if (key.empty()) {
    return nullptr;
  }
  int64_t start = metrics::now_ns();
  std::shared_ptr<Executable> executable;
  if (std::optional<std::string> stored = files_.find(key)) {
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

void ProgramStore::put(const std::string& key, const std::string& stored) {
  static metrics::Counter not_stored("PersistentCacheNotStored");
  if (key.empty()) {
    return;
  }
  if (stored.empty()) {
    not_stored.add();
    return;
  }
  files_.put(key, stored);
}

} // namespace torch_xla
