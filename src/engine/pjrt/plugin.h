// Plugin: a loaded and checked shared object with the PJRT C API; all calls of its entries are here.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/process.h"
#include "engine/engine.h"
#include "engine/pjrt/c_api_table.h"

namespace torch_xla::pjrt {

// An entry of the table: its position, its arguments, its name in the API.
template <typename Args>
struct Entry {
  size_t position;
  const char* name;
  bool needed;
};
#define XLA_PJRT_DECLARE(name, position, args, needed) inline constexpr Entry<c::args> k##name{position, "PJRT_" #name, needed};
XLA_PJRT_ENTRIES(XLA_PJRT_DECLARE)
#undef XLA_PJRT_DECLARE

// The oldest minor version of the API whose structs have the fields that this engine needs.
constexpr int kMinApiMinor = 40;

// Immutable after load(); any thread.
class Plugin {
 public:
  // Opens the file and checks its API. Throws UserError that names the file if it is missing, is no shared object of this machine, has no
  // GetPjrtApi, has another version of the API, or lacks a needed entry. Never unloaded: plugins keep threads.
  static std::shared_ptr<const Plugin> load(const std::string& path);

  const std::string& path() const {
    return path_;
  }
  // "0.90"
  std::string version() const;
  // Empty if the plugin has none.
  const NamedValues& attributes() const {
    return attributes_;
  }

  template <typename Args>
  bool has(const Entry<Args>& entry) const {
    return find(entry.position) != nullptr;
  }
  // Calls the entry. Throws UserError, "<doing>: <the plugin's message>", if it returns an error; NotImplemented if the entry is null. A
  // forked child has none of the plugin's threads, so nothing is called there: call() throws, call_quietly() returns.
  template <typename Args>
  void call(const Entry<Args>& entry, Args& args, const char* doing) const {
    if (c::Error* error = call_raw(entry, args)) {
      throw_error(error, doing);
    }
  }
  // For destructors: an error is dropped.
  template <typename Args>
  void call_quietly(const Entry<Args>& entry, Args& args) const noexcept {
    if (!find(entry.position) || process::in_forked_child()) {
      return;
    }
    if (c::Error* error = call_raw(entry, args)) {
      destroy(error);
    }
  }
  void destroy(c::Error* error) const noexcept;
  // The optimized program and its format; empty if the plugin tells none.
  std::pair<std::string, std::string> optimized_program(c::Executable* executable) const;
  // Waits for the event (may be null) and destroys it. Throws the event's error as call() does.
  void await(c::Event* event, const char* doing) const;
  // The same for several; throws the first error once all have come.
  void await_all(const std::vector<c::Event*>& events, const char* doing) const;

 private:
  explicit Plugin(std::string path) : path_(std::move(path)) {}

  c::AnyEntry find(size_t position) const {
    return position < num_entries_ ? api_->entries[position] : nullptr;
  }
  template <typename Args>
  c::Error* call_raw(const Entry<Args>& entry, Args& args) const {
    auto function = reinterpret_cast<c::Error* (*)(Args*)>(find(entry.position));
    process::check();
    XLA_CHECK_KIND(NotImplemented, function, "the PJRT plugin ", path_, " has no ", entry.name);
    return function(&args);
  }
  void open();
  void check_version() const;
  void check_entries() const;
  void initialize();
  void read_attributes();
  [[noreturn]] void throw_error(c::Error* error, const char* doing) const;

  std::string path_;
  const c::Api* api_ = nullptr;
  size_t num_entries_ = 0;
  NamedValues attributes_;
};
// Copies a list of the API; the inverse gives views of a map as such a list.
NamedValues read_values(const c::NamedValue* values, size_t num_values);
std::vector<c::NamedValue> view_values(const NamedValues& values);

using PluginRef = std::shared_ptr<const Plugin>;

} // namespace torch_xla::pjrt
