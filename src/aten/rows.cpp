// Finds each row's overloads by the dispatcher's schemas and registers a kernel for each.
#include "aten/rows.h"

#include <torch/library.h>

#include <mutex>
#include <unordered_map>

#include "aten/missing_operators.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

using Overloads = std::unordered_map<std::string, std::vector<c10::OperatorHandle>>;

// All ATen overloads by name without the overload part.
Overloads list_overloads() {
  Overloads result;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (auto handle = dispatcher.findSchema(name)) {
      result[name.name].push_back(*handle);
    }
  }
  return result;
}

bool same_arguments(const c10::FunctionSchema& a, const c10::FunctionSchema& b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (a.arguments()[i].name() != b.arguments()[i].name() || *a.arguments()[i].type() != *b.arguments()[i].type()) {
      return false;
    }
  }
  return true;
}

size_t count_outs(const c10::FunctionSchema& schema) {
  size_t outs = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    outs += argument.is_out();
  }
  return outs;
}

bool is_out_form(const c10::FunctionSchema& functional, const c10::FunctionSchema& candidate) {
  size_t n = functional.arguments().size();
  size_t outs = count_outs(candidate);
  return outs > 0 && candidate.arguments().size() == n + outs && same_arguments(functional, candidate, n);
}

bool is_inplace_form(const c10::FunctionSchema& functional, const c10::FunctionSchema& candidate) {
  size_t n = functional.arguments().size();
  bool same_overload =
      functional.overload_name().empty() || candidate.overload_name() == functional.overload_name(); // floor_divide_.Tensor
  return candidate.arguments().size() == n && same_overload && same_arguments(functional, candidate, n);
}

// add_ of add, __ilshift__ of __lshift__.
std::string inplace_name(const std::string& name) {
  const size_t operator_name = name.find("::__");
  return operator_name == std::string::npos ? name + "_" : name.substr(0, operator_name) + "::__i" + name.substr(operator_name + 4);
}

// "all_reduce" as "AllReduce", the original's name for counting collectives.
std::string in_pascal_case(const std::string& name) {
  std::string result;
  bool starts_word = true;
  for (char c : name) {
    if (c != '_') {
      result += starts_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    }
    starts_word = c == '_';
  }
  return result;
}

// `name`: with its namespace, without the overload.
metrics::Counter* counter_of(const Op& op, const std::string& name) {
  std::string own = name.substr(name.find("::") + 2);
  return &metrics::find_or_create_counter("xla::" + (op.traits & kCollective ? in_pascal_case(own) : own));
}

std::vector<ServedOverload>& all_served() {
  static auto* all = new std::vector<ServedOverload>;
  return *all;
}

void note_overload(const Op& op, const c10::OperatorHandle& handle) {
  bool fused = op.kind != OpKind::kLibrary;
  bool has_form = fused || has_stablehlo_form(op) || op.expand;
  all_served().push_back(
      {c10::toString(handle.operator_name()), op.name, fused, (op.traits & kComplex) || (op.dtypes & kComplexes), has_form});
}

// The overload counts as served.
RowOverload serve_overload(const Op& op, Convention convention, const c10::OperatorHandle& handle) {
  note_overload(op, handle);
  return {&op, convention, handle, counter_of(op, handle.schema().name())};
}

void register_overload(const RowLibraries& libraries, const Op& op, Convention convention, const c10::OperatorHandle& handle) {
  RowOverload overload = serve_overload(op, convention, handle);
  const bool is_typed = op.kind == OpKind::kPointwise && !op.takes && register_typed(libraries, overload);
  if (!is_typed && !register_unboxed(libraries, overload)) {
    register_boxed(libraries.kernels, overload);
  }
}

void register_row(const RowLibraries& libraries, const Op& op, const Overloads& overloads) {
  c10::OperatorHandle handle = get_operator(op.name);
  const c10::OperatorName& name = handle.operator_name();
  const c10::FunctionSchema& schema = handle.schema();
  bool inplace = schema.is_mutable();
  register_overload(libraries, op, inplace ? Convention::kInplace : Convention::kFunctional, handle);
  if (inplace) {
    return;
  }
  for (const c10::OperatorHandle& candidate : overloads.at(name.name)) {
    if (is_out_form(schema, candidate.schema())) {
      register_overload(libraries, op, Convention::kOut, candidate);
    }
  }
  auto mutating = overloads.find(inplace_name(name.name));
  for (const c10::OperatorHandle& candidate : mutating == overloads.end() ? std::vector<c10::OperatorHandle>() : mutating->second) {
    if (is_inplace_form(schema, candidate.schema())) {
      register_overload(libraries, op, Convention::kInplace, candidate);
    }
  }
}

} // namespace

const std::vector<ServedOverload>& served_overloads() {
  return all_served();
}

static const std::unordered_map<c10::OperatorName, const Op*>& rows_by_overload() {
  static const auto* rows = [] {
    auto* map = new std::unordered_map<c10::OperatorName, const Op*>;
    for (const ServedOverload& served : all_served()) {
      map->emplace(torch::jit::parseName(served.name), find_op(served.row));
    }
    return map;
  }();
  return *rows;
}

const Op* find_row(const c10::OperatorHandle& overload) {
  auto found = rows_by_overload().find(overload.operator_name());
  return found == rows_by_overload().end() ? nullptr : found->second;
}

c10::OperatorHandle overload_of_tensors(const Op& op, const c10::OperatorHandle& overload) {
  const Op& form = get_op(op.of_tensors);
  const c10::FunctionSchema& schema = overload.schema();
  for (const auto& [name, row] : rows_by_overload()) {
    if (row != &form) {
      continue;
    }
    c10::OperatorHandle other = *c10::Dispatcher::singleton().findSchema(name);
    if (other.schema().is_mutable() == schema.is_mutable() && other.schema().arguments().size() == schema.arguments().size()) {
      return other;
    }
  }
  return overload;
}

void register_rows(const RowLibraries& libraries) {
  Overloads overloads = list_overloads();
  for (std::span<const Op> table : op_tables()) {
    for (const Op& op : table) {
      if (op.traits & (kOwnKernel | kOtherLibrary)) {
        continue;
      }
      try {
        register_row(libraries, op, overloads);
      } catch (const MissingOperator&) { // noted
      }
    }
  }
}

c10::BoxedKernel serve(const Op& op, Convention convention, const char* overload) {
  std::string name = torch::jit::parseName(op.name).name;
  return make_boxed_kernel(serve_overload(op, convention, get_operator(*overload ? name + "." + overload : name)));
}

const c10::BoxedKernel* find_kernel_of_library(const c10::OperatorHandle& op) {
  static auto* kernels = new std::unordered_map<c10::OperatorName, c10::BoxedKernel>; // invalid: there is no such row
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  auto [kernel, is_new] = kernels->try_emplace(op.operator_name());
  const Op* row = is_new ? find_op(c10::toString(op.operator_name())) : nullptr; // by a text, which takes long to write
  if (row && (row->traits & kOtherLibrary)) {
    kernel->second = make_boxed_kernel({row, Convention::kFunctional, op, counter_of(*row, row->name)});
  }
  return kernel->second.isValid() ? &kernel->second : nullptr;
}

} // namespace torch_xla
