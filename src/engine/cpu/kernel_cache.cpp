// compile_kernel(): the kernels that are alive, in front of the object cache, in front of the compiler.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/codegen_sources.h"
#include "core/hash.h"
#include "core/observer.h"
#include "engine/cpu/copy_kernel.h"
#include "engine/cpu/host_key.h"
#include "engine/cpu/kernel_compiler.h"
#include "engine/object_cache.h"

namespace torch_xla::cpu {

namespace {

// A kernel that is compiled or being compiled; threads that want the same one wait at its mutex.
struct Entry {
  explicit Entry(const Hash128& kernel) : hash(kernel) {}
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  const Hash128 hash;
  std::mutex mutex;
  std::optional<LinkedKernel> code; // guarded by mutex until the first Kernel is returned, immutable from then on
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<Hash128, std::weak_ptr<Entry>> entries; // guarded by mutex
  ObjectCache objects;
  std::atomic<int64_t> compiled{0};
  std::atomic<int64_t> disk_hits{0};
  std::atomic<int64_t> memory_hits{0};
};

// Never destroyed, as programs may be.
Cache& cache() {
  static Cache* c = new Cache();
  return *c;
}

std::string name_of(const Hash128& hash) {
  return "kernel_" + hash.hex();
}

std::string get_object(const KernelSpec& spec, const std::string& key, const std::string& name, bool& is_new) {
  Cache& c = cache();
  if (auto object = c.objects.find(key)) {
    ++c.disk_hits;
    return *object;
  }
  is_new = true;
  observer::Span span(observer::Phase::kPass, observer::kNoDevice, "kernel");
  std::string object = kernel_compiler().compile(spec, name);
  ++c.compiled;
  c.objects.put(key, object);
  return object;
}

std::shared_ptr<Entry> find_or_add_entry(const Hash128& hash) {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  std::weak_ptr<Entry>& slot = c.entries[hash];
  std::shared_ptr<Entry> entry = slot.lock();
  if (!entry) {
    entry = std::make_shared<Entry>(hash);
    slot = entry;
  }
  return entry;
}

// Another thread may have put a new entry in its place by now.
Entry::~Entry() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  auto found = c.entries.find(hash);
  if (found != c.entries.end() && found->second.expired()) {
    c.entries.erase(found);
  }
}

std::string key_of(const KernelSpec& spec) {
  return kernel_host() + "\n" + spec.text();
}

} // namespace

Kernel find_live_kernel(const KernelSpec& spec) {
  Cache& c = cache();
  const Hash128 hash = ObjectCache::hash_of(key_of(spec));
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(c.mutex);
    auto found = c.entries.find(hash);
    entry = found == c.entries.end() ? nullptr : found->second.lock();
  }
  if (!entry) {
    return {};
  }
  std::lock_guard lock(entry->mutex);
  if (!entry->code) { // it could not be compiled
    return {};
  }
  ++c.memory_hits;
  return {hash, entry->code->fn, entry, entry->code->bytes, /*is_new=*/false};
}

bool has_kernel(const KernelSpec& spec) {
  return find_live_kernel(spec).fn() || cache().objects.find(key_of(spec)).has_value();
}

Kernel compile_kernel(const KernelSpec& spec) {
  std::string key = key_of(spec);
  std::shared_ptr<Entry> entry = find_or_add_entry(ObjectCache::hash_of(key));
  std::lock_guard lock(entry->mutex);
  bool is_new = false;
  if (entry->code) {
    ++cache().memory_hits;
  } else {
    std::string name = name_of(entry->hash);
    entry->code = kernel_compiler().link(get_object(spec, key, name, is_new), name);
  }
  return {entry->hash, entry->code->fn, entry, entry->code->bytes, is_new};
}

Kernel find_kernel(const Hash128& hash) {
  if (Kernel copy = find_copy_kernel(hash); copy.fn()) {
    return copy;
  }
  Cache& c = cache();
  std::shared_ptr<Entry> entry = find_or_add_entry(hash);
  std::lock_guard lock(entry->mutex);
  if (entry->code) {
    ++c.memory_hits;
  } else if (auto object = c.objects.find(hash)) {
    ++c.disk_hits;
    entry->code = kernel_compiler().link(*object, name_of(hash));
  } else {
    return {};
  }
  return {hash, entry->code->fn, entry, entry->code->bytes, /*is_new=*/false};
}

KernelListing list_kernel(const KernelSpec& spec) {
  return kernel_compiler().list(spec);
}

void set_kernel_cache_dir(const std::string& path, bool read_only) {
  cache().objects.set_directory(path, {}, read_only);
}

const std::string& kernel_host() {
  static const auto* hash = new std::string(ObjectCache::hash_of(host_key() + kCodegenSources).hex());
  return *hash;
}

KernelStats kernel_stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  return {c.compiled, c.disk_hits, c.memory_hits, static_cast<int64_t>(c.entries.size())};
}

} // namespace torch_xla::cpu
