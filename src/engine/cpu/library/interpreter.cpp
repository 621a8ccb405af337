// Finds once for each row how to compute it, and runs nodes.
#include "engine/cpu/library/interpreter.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/library/args.h"
#include "engine/cpu/library/half_products.h"
#include "engine/cpu/library/node_program.h"
#include "engine/cpu/library/own_rows.h"
#include "engine/cpu/library/step_error.h"
#include "engine/cpu/library/substitutes.h"
#include "engine/cpu/threads/team.h"
#include "ir/strides.h"
#include "ops/registry.h"

namespace torch_xla::cpu {

struct NodeForm {
  std::optional<c10::OperatorHandle> op; // ATen's
  OwnKernel own = nullptr; // for a row without a kernel of ATen's
  CallKernel (*choose)(const CallSpec& call) = nullptr; // as Substitute's
  void (*prepare)(torch::jit::Stack& arguments) = nullptr; // as Substitute's
  bool dense = false; // operands must be row-major
  bool mutates = false; // operand 0 is written: it must be a copy
  bool takes_numbers = false; // the numbers among the arguments are operands
};

namespace {

using Values = std::vector<c10::IValue>;

// Not draws: the device's numbers differ from the CPU generator's. Of rows recorded by kernels of their own only library calls have
// arguments in the order of ATen's schema.
bool is_call_of_aten(const Op& row) {
  const bool is_row = row.kind == OpKind::kPointwise || row.kind == OpKind::kComposite || row.kind == OpKind::kLibrary;
  const bool has_order = !(row.traits & kOwnKernel) || row.kind == OpKind::kLibrary;
  return is_row && has_order && !(row.traits & (kRandom | kCollective | kOtherLibrary));
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType;
  });
}

NodeForm find_form(const Op& row) {
  NodeForm form;
  form.own = find_own_kernel(row);
  if (form.own || !is_call_of_aten(row)) {
    return form;
  }
  const char* name = row.of_tensors ? row.of_tensors : row.name; // numbers become tensors, as in ATen's kernel for them
  const Substitute substitute = find_substitute(name);
  if (substitute.trains || (substitute.choose && !substitute.is_faster_only)) {
    return form;
  }
  auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
  if (!op || !op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) || !returns_tensors(op->schema())) {
    return form;
  }
  const auto& arguments = op->schema().arguments();
  form.op = op;
  form.choose = substitute.suits || substitute.prepare ? nullptr : substitute.choose; // calls that check values first go to ATen's kernel
  form.prepare = substitute.prepare;
  form.takes_numbers = row.kind == OpKind::kPointwise;
  form.dense =
      row.kind == OpKind::kComposite || row.reads == kDenseOperands || row.reads == kDenseRows; // group norms take all for row-major
  form.mutates = !arguments.empty() && arguments[0].alias_info() && arguments[0].alias_info()->isWrite();
  return form;
}

const NodeForm& form_of(const Op& row) {
  static auto* mutex = new std::mutex;
  static auto* forms = new std::unordered_map<const Op*, NodeForm>; // never destroyed, as programs may run until the process ends
  std::lock_guard<std::mutex> lock(*mutex);
  auto found = forms->find(&row);
  return found != forms->end() ? found->second : forms->emplace(&row, find_form(row)).first->second;
}

c10::IValue number(DType dtype, uint64_t bits) {
  if (dtype == DType::F64) {
    return std::bit_cast<double>(bits);
  }
  return dtype == DType::Bool ? c10::IValue(bits != 0) : c10::IValue(static_cast<int64_t>(bits));
}

template <typename Visit>
void for_each_value(const Node& node, Visit visit) {
  for (ValueId v : node.operands) {
    if (v != kNoValue) {
      visit(v);
    }
  }
  for (int32_t i = 0; i < node.num_results; ++i) {
    visit(node.result(i));
  }
}

// Whether nothing is computed but where a value lies.
bool is_in_memory(const Node& node) {
  return node.op->kind == OpKind::kView || node.op->kind == OpKind::kViewUpdate;
}

} // namespace

bool can_interpret(const Graph& trace) {
  return std::all_of(trace.nodes.begin(), trace.nodes.end(), [](const Node& node) { return is_in_memory(node) || has_program(node); });
}

Interpreter::Interpreter(const Graph& trace, const std::vector<bool>& live, int device)
    : trace_(trace), device_(device), programs_(trace.nodes.size()), last_uses_(trace.values.size(), -1) {
  forms_.reserve(trace.nodes.size());
  widened_.reserve(trace.nodes.size());
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    forms_.push_back(&form_of(*node.op));
    widened_.push_back(widens_products(trace, node));
    if (live[i] && !is_in_memory(node) && !forms_[i]->op && !forms_[i]->own) {
      programs_[i] = find_or_compile_node(trace, node, device);
    }
    if (live[i]) {
      checks_values_ = checks_values_ || (node.op->traits & kChecksValues) || (programs_[i] && programs_[i]->checks_values());
      for_each_value(node, [&](ValueId v) { last_uses_[v] = static_cast<int32_t>(i); });
    }
  }
  for (const std::vector<ValueId>* kept : {&trace.parameters, &trace.outputs}) {
    for (ValueId v : *kept) {
      last_uses_[v] = -1;
    }
  }
}

InterpreterRun::InterpreterRun(const Interpreter& interpreter, std::span<const uint64_t> numbers, Pool& pool, int threads)
    : interpreter_(interpreter), trace_(interpreter.trace_), threads_(threads), values_(trace_.values.size()), redirect_(&pool) {
  for (size_t i = 0; i < trace_.scalars.size(); ++i) {
    values_[trace_.scalars[i]] = number(trace_.type(trace_.scalars[i]).dtype, numbers[i]);
  }
}

void InterpreterRun::set_parameter(size_t i, void* data) {
  const ValueId v = trace_.parameters[i];
  const Type& type = trace_.type(v);
  const Dims& strides = trace_.parameter_strides[i];
  at::Tensor t = make_alias(type.dtype, type.dims, strides.empty() ? contiguous_strides(type.dims) : strides);
  set_address(t, data);
  values_[v] = std::move(t);
}

at::Tensor InterpreterRun::tensor(ValueId v) const {
  return tensor_of(values_[v]);
}

// The value in memory with the view's base strides.
at::Tensor InterpreterRun::laid_out(ValueId v, const Attrs& attrs) const {
  at::Tensor t = tensor(v);
  const Dims& base = std::get<Dims>(attrs[kViewBaseStrides]);
  const Dims& dims = trace_.type(v).dims;
  if (t.storage_offset() == 0 && same_strides(dims, Dims(t.strides().data(), t.strides().size()), base)) {
    return t;
  }
  at::Tensor copy = at::empty_strided(ref(dims), ref(base), t.options());
  copy.copy_(t);
  return copy;
}

// As as_strided(), without a dispatch.
at::Tensor InterpreterRun::view(const Node& node, const at::Tensor& base, const Dims& dims, size_t moved_by) const {
  const int64_t moved = node.operands.size() > moved_by ? values_[node.operands[moved_by]].toInt() : 0;
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(base.storage()), base.key_set(), base.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(
      ref(dims), ref(readable_strides(dims, std::get<Dims>(node.attrs[kViewStrides]))), std::get<int64_t>(node.attrs[kViewOffset]) + moved);
  return result;
}

void InterpreterRun::update_view(const Node& node) {
  at::Tensor base = laid_out(node.operands[0], node.attrs).clone();
  view(node, base, trace_.type(node.operands[1]).dims, 2).copy_(tensor(node.operands[1]));
  values_[node.first_result] = std::move(base);
}

void InterpreterRun::set_result(const Node& node, int32_t i, at::Tensor result) {
  const ValueId v = node.result(i);
  const Type& type = trace_.type(v);
  if (type.dtype == DType::Undefined || !result.defined()) {
    return;
  }
  if (result.is_conj() || result.is_neg()) {
    result = result.resolve_conj().resolve_neg();
  }
  if (result.scalar_type() != scalar_type(type.dtype)) {
    result = result.to(scalar_type(type.dtype));
  }
  const bool fits = result.sizes() == ref(type.dims);
  XLA_ASSERT(fits, node.op->name, " returned the sizes ", result.sizes());
  values_[v] = std::move(result);
}

int64_t InterpreterRun::num_elements_of(const Node& node) const {
  int64_t elements = trace_.type(node.first_result).numel();
  for (ValueId v : node.operands) {
    elements += v == kNoValue ? 0 : trace_.type(v).numel();
  }
  return elements;
}

// Calls the kernel that is faster than ATen's for these operands, if there is one.
bool InterpreterRun::call_chosen(const Node& node, const NodeForm& form, const Values& operands, bool is_widened) {
  CallSpec spec;
  spec.attrs = node.attrs;
  std::vector<at::Tensor> tensors, results;
  for (const c10::IValue& operand : operands) {
    tensors.push_back(tensor_of(operand));
    spec.operands.push_back(as_spec(tensors.back()));
  }
  for (int32_t i = 0; i < node.num_results; ++i) {
    const Type& type = trace_.type(node.result(i));
    results.push_back(at::empty(ref(type.dims), scalar_type(is_widened ? compute_type(type.dtype) : type.dtype)));
    spec.results.push_back(as_spec(results.back()));
  }
  const CallKernel kernel = form.choose(spec);
  if (kernel) {
    kernel(tensors, results, node.attrs);
  }
  for (int32_t i = 0; kernel && i < node.num_results; ++i) {
    set_result(node, i, std::move(results[static_cast<size_t>(i)]));
  }
  return static_cast<bool>(kernel);
}

void InterpreterRun::call(size_t index) {
  const Node& node = trace_.nodes[index];
  const NodeForm& form = *interpreter_.forms_[index];
  const bool is_widened = interpreter_.widened_[index];
  Values operands;
  operands.reserve(node.operands.size());
  for (ValueId v : node.operands) {
    operands.push_back(v == kNoValue ? c10::IValue() : values_[v]);
    if (form.dense && operands.back().isTensor()) {
      operands.back() = operands.back().toTensor().contiguous();
    }
    if (is_widened && v != kNoValue && is_reduced_float(trace_.type(v).dtype)) {
      operands.back() = operands.back().toTensor().to(at::kFloat);
    }
  }
  if (form.own) {
    set_result(node, 0, form.own(node.attrs, operands));
    return;
  }
  if (form.mutates) {
    operands[0] = operands[0].toTensor().clone();
  }
  const bool is_small = num_elements_of(node) <= kOneThreadElements; // by ATen's kernels, whose values are eager's to the bit
  if (!is_small && form.choose && call_chosen(node, form, operands, is_widened)) {
    return;
  }
  const OneThread one_thread(is_small);
  torch::jit::Stack stack = make_stack(form.op->schema(), node.attrs, operands, form.takes_numbers);
  if (form.prepare) {
    form.prepare(stack);
  }
  form.op->callBoxed(stack);
  for (int32_t i = 0; i < node.num_results; ++i) {
    set_result(node, i, std::move(stack.at(static_cast<size_t>(i))).toTensor());
  }
}

void InterpreterRun::run_program(size_t i, Executable& program) {
  const Node& node = trace_.nodes[i];
  Values operands;
  for (ValueId v : node.operands) {
    operands.push_back(v == kNoValue ? c10::IValue() : values_[v]);
  }
  std::vector<at::Tensor> results = run_node(program, trace_, node, operands, interpreter_.device_, threads_);
  for (int32_t r = 0; r < node.num_results; ++r) {
    set_result(node, r, std::move(results[static_cast<size_t>(r)]));
  }
}

// ATen's CPU kernels do not take all types that the device does.
void InterpreterRun::call_or_compile(size_t i) {
  try {
    call(i);
  } catch (const c10::NotImplementedError&) {
    run_program(i, *find_or_compile_node(trace_, trace_.nodes[i], interpreter_.device_));
  }
}

// What no later node takes. Its views keep its memory.
void InterpreterRun::release(size_t i) {
  for_each_value(trace_.nodes[i], [&](ValueId v) {
    if (interpreter_.last_uses_[v] == static_cast<int32_t>(i)) {
      values_[v] = {};
    }
  });
}

void InterpreterRun::compute(size_t i) {
  const Node& node = trace_.nodes[i];
  try {
    switch (node.op->kind) {
      case OpKind::kView:
        values_[node.first_result] = view(node, laid_out(node.operands[0], node.attrs), trace_.type(node.first_result).dims, 1);
        break;
      case OpKind::kViewUpdate:
        update_view(node);
        break;
      default:
        interpreter_.programs_[i] ? run_program(i, *interpreter_.programs_[i]) : call_or_compile(i);
    }
  } catch (...) {
    rethrow_as_step_error(node.op->name, node.location);
  }
  release(i);
}

std::vector<ResultMemory> InterpreterRun::take_outputs() {
  std::vector<ResultMemory> outputs;
  for (size_t i = 0; i < trace_.outputs.size(); ++i) {
    ValueId v = trace_.outputs[i];
    outputs.push_back(trace_.find_producer(v) ? take(std::move(values_[v]).toTensor(), trace_.strides_of_output(i)) : ResultMemory());
  }
  return outputs;
}

// Takes the memory as it is, if no other value lies in it.
ResultMemory InterpreterRun::take(at::Tensor t, const Dims& strides) {
  const bool is_alone = t.use_count() == 1 && t.storage().use_count() == 1;
  const bool ordered = strides.empty() ? t.is_contiguous() : t.strides() == ref(strides);
  if (!is_alone || t.storage_offset() != 0 || !ordered) {
    t = strides.empty() ? t.clone(c10::MemoryFormat::Contiguous) : at::empty_strided(t.sizes(), ref(strides), t.options()).copy_(t);
  }
  ResultMemory memory;
  memory.data = t.data_ptr();
  memory.block = std::make_shared<Block>(memory.data, [storage = t.storage()] {});
  return memory;
}

} // namespace torch_xla::cpu
