// The user's source line of each recorded op, read from the recording thread's own Python frames without the GIL.
//
// A thread's frames do not change while the thread is in C++, and the members of code objects read here never change, so no lock is needed.
// Ids are interned texts ("train.py:12 in forward") and stay valid for ever.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <torch/csrc/utils/pybind.h>

#include "program/pending_graph.h"
#include "python/bindings.h"
#include "python/frames.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

// The owner of code: torch's own frames are skipped; a library's line is taken only without a user's frame below it.
enum class Owner : uint8_t { kUser, kLibrary, kTorch };

struct Prefixes {
  std::vector<std::string> torch; // folders of torch and torch_xla
  std::string stdlib;
};
std::atomic<const Prefixes*> prefixes{nullptr}; // replaced at import only, never freed

void append_utf8(std::string& out, Py_UCS4 c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// PyUnicode_AsUTF8 would write a cache into the object, which needs the GIL.
std::string text_of(PyObject* unicode) {
  std::string out;
  if (unicode == nullptr || !PyUnicode_IS_READY(unicode)) {
    return "?";
  }
  const Py_ssize_t length = PyUnicode_GET_LENGTH(unicode);
  out.reserve(static_cast<size_t>(length));
  for (Py_ssize_t i = 0; i < length; ++i) {
    append_utf8(out, PyUnicode_READ_CHAR(unicode, i));
  }
  return out;
}

Owner owner_of_file(const std::string& file) {
  if (file.starts_with("<frozen") || file.starts_with("<__array_function__")) {
    return Owner::kTorch;
  }
  for (const std::string& folder : prefixes.load()->torch) {
    if (file.starts_with(folder)) {
      return Owner::kTorch;
    }
  }
  const bool installed = file.find("/site-packages/") != std::string::npos || file.find("/dist-packages/") != std::string::npos;
  return installed || file.starts_with(prefixes.load()->stdlib) ? Owner::kLibrary : Owner::kUser;
}

// All texts by id. The mutex guards both members; it is a leaf lock, taken once per new line and thread.
struct Lines {
  std::mutex mutex;
  std::unordered_map<std::string, int64_t> ids;
  std::deque<std::string> texts;
};

Lines& lines() {
  static auto* all = new Lines();
  return *all;
}

int64_t intern(std::string text) {
  Lines& all = lines();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto [it, is_new] = all.ids.try_emplace(text, static_cast<int64_t>(all.texts.size()));
  if (is_new) {
    all.texts.push_back(std::move(text));
  }
  return it->second;
}

// The names of a notebook's cells, by the file names that they are compiled under. The mutex guards `names`; it is a leaf lock, taken once
// per new line and thread.
struct Cells {
  std::mutex mutex;
  std::unordered_map<std::string, std::string> names;
  std::atomic<uint64_t> changes{0}; // a cell that runs again gets another name
};

Cells& cells() {
  static auto* all = new Cells();
  return *all;
}

void name_cell(const std::string& file, const std::string& name) {
  Cells& all = cells();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.names[file] = name;
  all.changes.fetch_add(1, std::memory_order_relaxed);
}

// "train.py:12", or "Cell In[3], line 12" as IPython writes it.
std::string place(PyCodeObject* code, int instruction) {
  std::string file = text_of(code->co_filename);
  const std::string line = std::to_string(frames::line(code, instruction));
  Cells& all = cells();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto cell = all.names.find(file);
  return cell == all.names.end() ? file + ":" + line : "Cell " + cell->second + ", line " + line;
}

int64_t line_id(PyCodeObject* code, int instruction) {
  return intern(place(code, instruction) + " in " + text_of(frames::name(code)));
}

constexpr int kNameOnly = -1; // in the place of an instruction

// The first and the last eight bytes and the length; texts of less than eight bytes give their length only.
uint64_t fingerprint(const char* data, size_t length) {
  uint64_t ends[2] = {0, 0};
  if (length >= sizeof(uint64_t)) {
    std::memcpy(&ends[0], data, sizeof(uint64_t));
    std::memcpy(&ends[1], data + length - sizeof(uint64_t), sizeof(uint64_t));
  }
  return (ends[0] * 0x9E3779B97F4A7C15ULL ^ ends[1]) * 0xC2B2AE3D27D4EB4FULL + length;
}

uint64_t fingerprint(const PyCodeObject* code) {
  const uint64_t lines = fingerprint(PyBytes_AS_STRING(code->co_linetable), static_cast<size_t>(PyBytes_GET_SIZE(code->co_linetable)));
  PyObject* file = code->co_filename;
  const size_t length = static_cast<size_t>(PyUnicode_GET_LENGTH(file)) * PyUnicode_KIND(file);
  return lines ^ (fingerprint(static_cast<const char*>(PyUnicode_DATA(file)), length) << 1);
}

// Identifies a code object. The fingerprint distinguishes a new object from a dead one at the same address (notebooks make many).
struct CodeKey {
  const PyCodeObject* code = nullptr;
  uint64_t print = 0;
  int first_line = 0;

  CodeKey() = default;
  explicit CodeKey(const PyCodeObject* c) : code(c), print(fingerprint(c)), first_line(c->co_firstlineno) {}
  bool operator==(const CodeKey&) const = default;
  size_t hash() const {
    return (reinterpret_cast<uintptr_t>(code) >> 4) * 0x9E3779B97F4A7C15ULL >> 40;
  }
};

// A thread's cache; direct-mapped, so an entry may be evicted and made again.
struct ThreadCache {
  struct CodeSlot {
    CodeKey key;
    Owner owner = Owner::kUser;
  };
  struct LineSlot {
    CodeKey key;
    int instruction = kNameOnly;
    int64_t id = -1;
  };
  uint64_t cell_changes = 0; // that it has seen
  std::array<CodeSlot, 512> codes;
  std::array<LineSlot, 1024> lines;

  Owner owner_of(const CodeKey& key) {
    CodeSlot& slot = codes[key.hash() % codes.size()];
    if (slot.key != key) [[unlikely]] {
      slot = {key, owner_of_file(text_of(key.code->co_filename))};
    }
    return slot.owner;
  }
  int64_t id_of(const CodeKey& key, PyCodeObject* code, int instruction) {
    LineSlot& slot = lines[(key.hash() + static_cast<size_t>(instruction) * 7) % lines.size()];
    if (slot.key != key || slot.instruction != instruction) [[unlikely]] {
      slot = {key, instruction, instruction == kNameOnly ? intern(text_of(frames::name(code))) : line_id(code, instruction)};
    }
    return slot.id;
  }
};

ThreadCache& thread_cache() {
  thread_local std::unique_ptr<ThreadCache> cache;
  if (cache == nullptr) [[unlikely]] {
    cache = std::make_unique<ThreadCache>();
  }
  const uint64_t changes = cells().changes.load(std::memory_order_relaxed);
  if (cache->cell_changes != changes) [[unlikely]] {
    *cache = ThreadCache();
    cache->cell_changes = changes;
  }
  return *cache;
}

int64_t current_line() {
  const PyThreadState* state = PyGILState_GetThisThreadState();
  if (state == nullptr) {
    return -1;
  }
  ThreadCache& cache = thread_cache();
  const frames::Frame* library = nullptr;
  for (const frames::Frame* frame = frames::current(state); frame != nullptr; frame = frames::caller(frame)) {
    PyCodeObject* code = frames::code(frame);
    if (code == nullptr) {
      continue;
    }
    const CodeKey key(code);
    const Owner owner = cache.owner_of(key);
    if (owner == Owner::kUser) [[likely]] {
      return cache.id_of(key, code, frames::instruction_index(frame, code));
    }
    if (owner == Owner::kLibrary && library == nullptr) {
      library = frame;
    }
  }
  if (library == nullptr) {
    return -1;
  }
  PyCodeObject* code = frames::code(library);
  return cache.id_of(CodeKey(code), code, frames::instruction_index(library, code));
}

// The outermost of the frames within PyTorch's code that the user's line has called.
int64_t current_call() {
  const PyThreadState* state = PyGILState_GetThisThreadState();
  PyCodeObject* call = nullptr;
  for (const frames::Frame* frame = state == nullptr ? nullptr : frames::current(state); frame != nullptr; frame = frames::caller(frame)) {
    PyCodeObject* code = frames::code(frame);
    const Owner owner = code == nullptr ? Owner::kLibrary : thread_cache().owner_of(CodeKey(code));
    if (owner == Owner::kUser) {
      break;
    }
    call = owner == Owner::kTorch ? code : call;
  }
  return call == nullptr ? -1 : thread_cache().id_of(CodeKey(call), call, kNameOnly);
}

// "forward (train.py:12)", innermost first; the package's own frames too.
std::vector<std::string> read_frames(size_t most) {
  std::vector<std::string> texts;
  const PyThreadState* state = PyGILState_GetThisThreadState();
  const frames::Frame* frame = state == nullptr ? nullptr : frames::current(state);
  for (; frame != nullptr && texts.size() < most; frame = frames::caller(frame)) {
    if (PyCodeObject* code = frames::code(frame)) {
      texts.push_back(text_of(frames::name(code)) + " (" + place(code, frames::instruction_index(frame, code)) + ")");
    }
  }
  return texts;
}

std::string line_text(int64_t id) {
  Lines& all = lines();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return id < 0 || id >= static_cast<int64_t>(all.texts.size()) ? std::string() : all.texts[static_cast<size_t>(id)];
}

std::string folder_of(const char* module) {
  return py::module_::import("os").attr("path").attr("dirname")(py::module_::import(module).attr("__file__")).cast<std::string>() + "/";
}

void install() {
  auto* made = new Prefixes();
  made->torch = {folder_of("torch")};
  made->stdlib = folder_of("os");
  prefixes = made;
  set_location_hooks(&current_line, &current_call, &line_text);
  set_frame_reader(&read_frames);
}

// The package's own folder; called by torch_xla itself, which is still being imported when this module is loaded.
void add_torch_folder(const std::string& folder) {
  auto* made = new Prefixes(*prefixes.load()); // readers may hold the old one
  made->torch.push_back(folder + "/");
  prefixes = made;
}

// Names the pending operation of the tensor in the texts of its graph, in place of the user's line.
void name_operation(const py::object& object, const std::string& name) {
  const at::Tensor tensor = object.cast<at::Tensor>();
  const py::gil_scoped_release no_gil;
  set_location(tensor, intern(name));
}

// Nanoseconds per look-up, for the benchmark of recording.
double time_source_line(int count) {
  const auto start = std::chrono::steady_clock::now();
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += current_line();
    asm volatile("" : : "g"(&sum) : "memory");
  }
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / count;
}

} // namespace

void init_source_lines(py::module_& m) {
  install();
  m.def("_add_torch_folder", &add_torch_folder, py::arg("folder"));
  m.def("_name_cell", &name_cell, py::arg("file"), py::arg("name"));
  m.def("_name_operation", &name_operation, py::arg("tensor"), py::arg("name"));
  m.def("_source_line", [] { return line_text(current_line()); });
  m.def("_time_source_line", &time_source_line, py::arg("count"));
}

} // namespace torch_xla
