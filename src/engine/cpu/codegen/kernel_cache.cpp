// compile_kernel(): the in-memory cache in front of the object cache in front of LLVM.
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <llvm/Config/llvm-config.h>

#include "core/hash.h"
#include "engine/cpu/codegen/jit.h"
#include "engine/cpu/codegen/target.h"
#include "engine/object_cache.h"

namespace torch_xla::cpu {

namespace {

// To be raised when the same text gives other code.
constexpr uint64_t kCodeVersion = 5;

// A kernel that is compiled or being compiled; threads that want the same one wait at its mutex.
struct Entry {
  std::mutex mutex;
  KernelFn fn = nullptr; // guarded by mutex
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<Hash128, std::shared_ptr<Entry>> entries; // guarded by mutex
  ObjectCache objects;
  std::atomic<int64_t> compiled{0};
  std::atomic<int64_t> disk_hits{0};
  std::atomic<int64_t> memory_hits{0};
};

// Never destroyed: see Jit.
Cache& cache() {
  static Cache* c = new Cache();
  return *c;
}

void add_text(Hash128& hash, const std::string& text) {
  hash.add_bytes(text.data(), text.size());
}

Hash128 hash_of(const std::string& text) {
  Hash128 hash;
  add_text(hash, text);
  return hash;
}

// Of the code: the kernel, the CPU and the versions.
Hash128 object_key(const std::string& text) {
  Hash128 key = hash_of(text);
  add_text(key, host().cpu);
  add_text(key, host().features);
  add_text(key, LLVM_VERSION_STRING);
  key.add(host().isa.sleef);
  key.add(kCodeVersion);
  return key;
}

std::string get_object(const KernelSpec& spec, const std::string& text, const std::string& name) {
  Cache& c = cache();
  Hash128 key = object_key(text);
  if (auto object = c.objects.find(key)) {
    ++c.disk_hits;
    return *object;
  }
  std::string object = compile_object(spec, name);
  ++c.compiled;
  c.objects.put(key, object);
  return object;
}

} // namespace

KernelFn compile_kernel(const KernelSpec& spec) {
  Cache& c = cache();
  std::string text = spec.text();
  Hash128 hash = hash_of(text);
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(c.mutex);
    auto& slot = c.entries[hash];
    slot = slot ? slot : std::make_shared<Entry>();
    entry = slot;
  }
  std::lock_guard lock(entry->mutex);
  if (entry->fn) {
    ++c.memory_hits;
  } else {
    std::string name = "kernel_" + hash.hex();
    entry->fn = Jit::get().link(get_object(spec, text, name), name);
  }
  return entry->fn;
}

void set_kernel_cache_dir(const std::string& path) {
  cache().objects.set_directory(path);
}

KernelStats kernel_stats() {
  Cache& c = cache();
  return {c.compiled, c.disk_hits, c.memory_hits};
}

} // namespace torch_xla::cpu
