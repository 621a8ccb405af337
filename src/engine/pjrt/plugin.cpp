// Loading a plugin and its checks; its errors as ours.
#include "engine/pjrt/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>

namespace torch_xla::pjrt {
namespace {

struct CodeName {
  c::ErrorCode code;
  ErrorKind kind;
  const char* name;
};
constexpr CodeName kCodes[] = {
    {c::ErrorCode::kCancelled, ErrorKind::Runtime, "CANCELLED"},
    {c::ErrorCode::kUnknown, ErrorKind::Runtime, "UNKNOWN"},
    {c::ErrorCode::kInvalidArgument, ErrorKind::Runtime, "INVALID_ARGUMENT"},
    {c::ErrorCode::kDeadlineExceeded, ErrorKind::Runtime, "DEADLINE_EXCEEDED"},
    {c::ErrorCode::kNotFound, ErrorKind::Runtime, "NOT_FOUND"},
    {c::ErrorCode::kAlreadyExists, ErrorKind::Runtime, "ALREADY_EXISTS"},
    {c::ErrorCode::kPermissionDenied, ErrorKind::Runtime, "PERMISSION_DENIED"},
    {c::ErrorCode::kResourceExhausted, ErrorKind::OutOfMemory, "RESOURCE_EXHAUSTED"},
    {c::ErrorCode::kFailedPrecondition, ErrorKind::Runtime, "FAILED_PRECONDITION"},
    {c::ErrorCode::kAborted, ErrorKind::Runtime, "ABORTED"},
    {c::ErrorCode::kOutOfRange, ErrorKind::Runtime, "OUT_OF_RANGE"},
    {c::ErrorCode::kUnimplemented, ErrorKind::NotImplemented, "UNIMPLEMENTED"},
    {c::ErrorCode::kInternal, ErrorKind::Runtime, "INTERNAL"},
    {c::ErrorCode::kUnavailable, ErrorKind::Runtime, "UNAVAILABLE"},
    {c::ErrorCode::kDataLoss, ErrorKind::Runtime, "DATA_LOSS"},
    {c::ErrorCode::kUnauthenticated, ErrorKind::Runtime, "UNAUTHENTICATED"},
};

const CodeName& describe(c::ErrorCode code) {
  const CodeName* found = std::find_if(std::begin(kCodes), std::end(kCodes), [code](const CodeName& c) { return c.code == code; });
  return found == std::end(kCodes) ? kCodes[1] : *found;
}

NamedValue read_value(const c::NamedValue& value) {
  switch (value.type) {
    case c::NamedValueType::kString:
      return std::string(value.string_value, value.value_size);
    case c::NamedValueType::kInt64:
      return value.int64_value;
    case c::NamedValueType::kFloat:
      return double{value.float_value};
    case c::NamedValueType::kBool:
      return value.bool_value;
    case c::NamedValueType::kInt64List:
      return std::vector<int64_t>(value.int64_array_value, value.int64_array_value + value.value_size);
  }
  return std::string();
}

struct SetValue {
  c::NamedValue& value;

  void operator()(const std::string& text) const {
    value.type = c::NamedValueType::kString;
    value.string_value = text.data();
    value.value_size = text.size();
  }
  void operator()(bool v) const {
    value.type = c::NamedValueType::kBool;
    value.bool_value = v;
    value.value_size = 1;
  }
  void operator()(int64_t v) const {
    value.type = c::NamedValueType::kInt64;
    value.int64_value = v;
    value.value_size = 1;
  }
  void operator()(double v) const {
    value.type = c::NamedValueType::kFloat;
    value.float_value = static_cast<float>(v);
    value.value_size = 1;
  }
  void operator()(const std::vector<int64_t>& list) const {
    value.type = c::NamedValueType::kInt64List;
    value.int64_array_value = list.data();
    value.value_size = list.size();
  }
};

} // namespace

PluginRef Plugin::load(const std::string& path) {
  process::note_use();
  std::shared_ptr<Plugin> plugin(new Plugin(path));
  plugin->open();
  plugin->check_version();
  plugin->check_entries();
  plugin->initialize();
  plugin->read_attributes();
  return plugin;
}

void Plugin::open() {
  void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  XLA_CHECK(library, "the PJRT plugin ", path_, " cannot be loaded: ", dlerror());
  auto get_api = reinterpret_cast<const c::Api* (*)()>(dlsym(library, "GetPjrtApi"));
  XLA_CHECK(get_api, path_, " is no PJRT plugin: it has no function GetPjrtApi");
  api_ = get_api();
  XLA_CHECK(api_, "the PJRT plugin ", path_, " gave no table: GetPjrtApi returned null");
  constexpr size_t kHead = offsetof(c::Api, entries);
  XLA_CHECK(
      api_->head.struct_size > kHead,
      "the PJRT plugin ",
      path_,
      " gave a table of ",
      api_->head.struct_size,
      " bytes, which has no entries");
  num_entries_ = std::min((api_->head.struct_size - kHead) / sizeof(c::AnyEntry), c::kNumPositions);
}

std::string Plugin::version() const {
  return str(api_->version.major, ".", api_->version.minor);
}

void Plugin::check_version() const {
  XLA_CHECK(
      api_->version.major == 0 && api_->version.minor >= kMinApiMinor,
      "the PJRT plugin ",
      path_,
      " has version ",
      version(),
      " of the PJRT C API; needed is 0.",
      kMinApiMinor,
      " or a later 0.x: install a newer plugin");
}

void Plugin::check_entries() const {
  std::string missing;
  auto check = [&](size_t position, const char* name) {
    if (!find(position)) {
      missing += (missing.empty() ? "" : ", ") + std::string(name);
    }
  };
  check(c::kErrorDestroyPosition, "PJRT_Error_Destroy");
  check(c::kErrorMessagePosition, "PJRT_Error_Message");
#define XLA_PJRT_CHECK(entry, position, args, needed) \
  if (needed) {                                       \
    check(position, k##entry.name);                   \
  }
  XLA_PJRT_ENTRIES(XLA_PJRT_CHECK)
#undef XLA_PJRT_CHECK
  XLA_CHECK(missing.empty(), "the PJRT plugin ", path_, " (API version ", version(), ") has no ", missing);
}

void Plugin::initialize() {
  if (has(kPlugin_Initialize)) {
    auto args = c::make<c::PluginInitialize>();
    call(kPlugin_Initialize, args, "initializing the PJRT plugin");
  }
}

void Plugin::read_attributes() {
  if (!has(kPlugin_Attributes)) {
    return;
  }
  auto args = c::make<c::PluginAttributes>();
  call(kPlugin_Attributes, args, "reading the PJRT plugin's attributes");
  attributes_ = read_values(args.attributes, args.num_attributes);
}

void Plugin::await(c::Event* event, const char* doing) const {
  if (!event) {
    return;
  }
  auto args = c::make<c::EventArgs>();
  args.event = event;
  c::Error* error = call_raw(kEvent_Await, args);
  call_quietly(kEvent_Destroy, args);
  if (error) {
    throw_error(error, doing);
  }
}

void Plugin::await_all(const std::vector<c::Event*>& events, const char* doing) const {
  std::exception_ptr first;
  for (c::Event* event : events) {
    try {
      await(event, doing);
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

std::pair<std::string, std::string> Plugin::optimized_program(c::Executable* executable) const {
  auto program = c::make<c::Program>();
  auto args = c::make<c::ExecutableOptimizedProgram>();
  args.executable = executable;
  args.program = &program;
  constexpr const char* kAsking = "asking for the optimized program";
  try {
    call(kExecutable_OptimizedProgram, args, kAsking);
    std::string bytes(program.code_size, 0);
    program.code = bytes.data();
    call(kExecutable_OptimizedProgram, args, kAsking);
    return {std::move(bytes), {program.format, program.format_size}};
  } catch (const UserError&) {
    return {};
  }
}

void Plugin::throw_error(c::Error* error, const char* doing) const {
  auto code = c::make<c::ErrorGetCode>();
  code.error = error;
  call_quietly(kError_GetCode, code);
  auto message = c::make<c::ErrorMessage>();
  message.error = error;
  reinterpret_cast<void (*)(c::ErrorMessage*)>(find(c::kErrorMessagePosition))(&message);
  const CodeName& known = describe(code.code);
  std::string text = str(doing, ": ", known.name, ": ", std::string(message.message, message.message_size));
  destroy(error);
  throw UserError(known.kind, text);
}

void Plugin::destroy(c::Error* error) const noexcept {
  auto args = c::make<c::ErrorDestroy>();
  args.error = error;
  reinterpret_cast<void (*)(c::ErrorDestroy*)>(find(c::kErrorDestroyPosition))(&args);
}

NamedValues read_values(const c::NamedValue* values, size_t num_values) {
  NamedValues map;
  for (const c::NamedValue& value : std::span(values, num_values)) {
    map[std::string(value.name, value.name_size)] = read_value(value);
  }
  return map;
}

std::vector<c::NamedValue> view_values(const NamedValues& values) {
  std::vector<c::NamedValue> list;
  for (const auto& [name, value] : values) {
    auto named = c::make<c::NamedValue>();
    named.name = name.data();
    named.name_size = name.size();
    std::visit(SetValue{named}, value);
    list.push_back(named);
  }
  return list;
}

} // namespace torch_xla::pjrt
