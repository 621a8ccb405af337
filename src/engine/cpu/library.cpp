// Calls of ATen's CPU kernels through the dispatcher, into planned memory or with adoption of what they allocate.
#include "engine/cpu/library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/aminmax.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/errors.h"
#include "engine/cpu/aten_allocator.h"
#include "engine/cpu/library_args.h"
#include "engine/cpu/library_matmul.h"
#include "engine/engine.h"

namespace torch_xla::cpu {
namespace {

// Operations whose out form is the kernel itself; most others' out form is a call and a copy.
constexpr std::array<std::string_view, 18> kRealOutForms = {
    "aten::mm",
    "aten::addmm",
    "aten::_addmm_activation",
    "aten::bmm",
    "aten::baddbmm",
    "aten::addmv",
    "aten::mv",
    "aten::cat",
    "aten::gather",
    "aten::index_select",
    "aten::avg_pool2d",
    "aten::cumsum",
    "aten::max_pool2d_with_indices",
    "aten::topk",
    "aten::avg_pool2d_backward",
    "aten::scatter_add",
    "aten::index_add",
    "aten::max_pool2d_with_indices_backward"};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The error in flight as ours, of the class that it has in Python.
[[noreturn]] void rethrow_as_step_error(const std::string& name, int32_t location) {
  auto fail = [&](ErrorKind kind, const std::string& what) { throw StepError(kind, str(name, ": ", first_line(what)), location); };
  try {
    throw;
  } catch (const UserError& e) { // of the pool
    fail(e.kind(), e.what());
  } catch (const c10::OutOfMemoryError& e) {
    fail(ErrorKind::OutOfMemory, e.what_without_backtrace());
  } catch (const std::bad_alloc& e) {
    fail(ErrorKind::OutOfMemory, e.what());
  } catch (const c10::IndexError& e) {
    fail(ErrorKind::Index, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    fail(ErrorKind::Value, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    fail(ErrorKind::Type, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    fail(ErrorKind::NotImplemented, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    fail(ErrorKind::Runtime, e.what_without_backtrace());
  } catch (const std::exception& e) {
    fail(ErrorKind::Runtime, e.what());
  }
  throw InternalError("unknown exception in " + name);
}

std::optional<c10::OperatorHandle> find_out_form(const std::string& name, const c10::FunctionSchema& functional) {
  if (std::find(kRealOutForms.begin(), kRealOutForms.end(), name) == kRealOutForms.end()) {
    return std::nullopt;
  }
  for (const char* overload : {"out", "grad_input", "values"}) {
    auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
    size_t outs = functional.returns().size();
    if (handle && handle->schema().arguments().size() == functional.arguments().size() + outs) {
      return handle;
    }
  }
  return std::nullopt;
}

// ATen's backward passes over indices out of range, as its forward refuses them; here the forward need not have run.
void check_embedding_indices(const torch::jit::Stack& args) {
  const at::Tensor& indices = args[1].toTensor();
  if (indices.numel() == 0) {
    return;
  }
  auto [low, high] = at::aminmax(indices);
  TORCH_CHECK_INDEX(low.item().toLong() >= 0 && high.item().toLong() < args[2].toInt(), "index out of range in self");
}

} // namespace

struct LibraryCall::Impl {
  struct Result {
    Type type;
    Dims strides;
  };

  std::string name;
  int32_t location = -1;
  std::optional<c10::OperatorHandle> op;
  std::vector<at::Tensor> operands; // parallel to the node's; undefined: None
  std::vector<Result> results;
  std::vector<at::Tensor> outs; // empty: the functional form is called
  torch::jit::Stack stack; // template
  bool mutates = false; // operand 0 is written: it must be a copy
  ProductKernel product = nullptr; // computes outs[0] in ATen's place

  Impl(const LaidOutGraph& laid_out, const Node& node, bool may_write_into);
  void find_op(bool may_write_into);
  void call(torch::jit::Stack& args) const;
  void take_result(const c10::IValue& value, const Result& result, ResultMemory& memory) const;
  bool is_operand_memory(const at::Tensor& t) const;
};

LibraryCall::Impl::Impl(const LaidOutGraph& laid_out, const Node& node, bool may_write_into)
    : name(node.op->name), location(node.location) {
  const Graph& graph = laid_out.graph;
  for (ValueId v : node.operands) {
    if (v == kNoValue) {
      operands.emplace_back();
      continue;
    }
    operands.push_back(make_alias(graph.type(v).dtype, graph.type(v).dims, laid_out.places[v].strides));
  }
  for (int32_t i = 0; i < node.num_results; ++i) {
    ValueId v = node.result(i);
    results.push_back({graph.type(v), laid_out.places[v].strides});
  }
  product = find_product_kernel(graph, node);
  find_op(may_write_into);
  stack = make_stack(op->schema(), node, operands);
  for (const at::Tensor& t : outs) {
    stack.emplace_back(t);
  }
}

void LibraryCall::Impl::find_op(bool may_write_into) {
  size_t dot = name.find('.');
  std::string overload = dot == name.npos ? "" : name.substr(dot + 1);
  op = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
  XLA_ASSERT(op, "ATen has no ", name);
  const auto& arguments = op->schema().arguments();
  mutates = !arguments.empty() && arguments[0].alias_info() && arguments[0].alias_info()->isWrite();
  bool plain = std::all_of(results.begin(), results.end(), [](const Result& r) {
    return r.type.dtype != DType::Undefined && same_strides(r.type.dims, r.strides, contiguous_strides(r.type.dims));
  });
  auto out_form = may_write_into && plain && !mutates ? find_out_form(name, op->schema()) : std::nullopt;
  op = out_form ? out_form : op;
  if (out_form || product) {
    for (const Result& r : results) {
      outs.push_back(make_alias(r.type.dtype, r.type.dims, r.strides));
    }
  }
}

void LibraryCall::Impl::call(torch::jit::Stack& args) const {
  c10::InferenceMode inference;
  PoolRedirect redirect;
  if (product) {
    product(operands, outs[0]);
    return;
  }
  if (name == "aten::embedding_dense_backward") {
    check_embedding_indices(args);
  }
  if (mutates) {
    args[0] = args[0].toTensor().clone();
  }
  op->callBoxed(args);
}

bool LibraryCall::Impl::is_operand_memory(const at::Tensor& t) const {
  return std::any_of(operands.begin(), operands.end(), [&](const at::Tensor& operand) {
    return operand.defined() && operand.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(t.storage());
  });
}

void LibraryCall::Impl::take_result(const c10::IValue& value, const Result& result, ResultMemory& memory) const {
  const at::Tensor& t = value.toTensor();
  const Dims& dims = result.type.dims;
  if (!t.defined() && result.type.numel() == 0) { // a workspace that inference does not need
    memory.block = std::make_shared<Block>(0);
    memory.data = memory.block->data();
    return;
  }
  XLA_ASSERT(t.defined(), name, " returned an undefined tensor");
  XLA_ASSERT(t.sizes() == c10::IntArrayRef(dims.data(), dims.size()), name, " returned the sizes ", t.sizes());
  XLA_ASSERT(t.scalar_type() == static_cast<c10::ScalarType>(result.type.dtype), name, " returned ", t.scalar_type());
  Dims strides(t.strides().data(), t.strides().size());
  if (same_strides(dims, strides, result.strides) && !is_operand_memory(t)) {
    memory.data = t.data_ptr();
    memory.block = std::make_shared<Block>(memory.data, [storage = t.storage()] {});
    return;
  }
  auto bytes = static_cast<size_t>(span_elements(dims, result.strides)) * item_size(result.type.dtype);
  memory.block = std::make_shared<Block>(bytes);
  memory.data = memory.block->data();
  copy_strided(result.type.dtype, dims, memory.data, result.strides, t.data_ptr(), strides);
}

LibraryCall::LibraryCall(const LaidOutGraph& laid_out, const Node& node, bool may_write_into)
    : impl_(std::make_unique<Impl>(laid_out, node, may_write_into)) {}
LibraryCall::~LibraryCall() = default;
LibraryCall::LibraryCall(LibraryCall&&) noexcept = default;

bool LibraryCall::writes_into() const {
  return !impl_->outs.empty();
}

void LibraryCall::run(std::span<void* const> operands, std::span<ResultMemory> results) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (impl_->operands[i].defined()) {
      set_address(impl_->operands[i], operands[i]);
    }
  }
  for (size_t i = 0; i < impl_->outs.size(); ++i) {
    set_address(impl_->outs[i], results[i].data);
  }
  try {
    torch::jit::Stack args = impl_->stack;
    impl_->call(args);
    for (size_t i = 0; i < impl_->results.size() && !writes_into(); ++i) {
      if (impl_->results[i].type.dtype != DType::Undefined) {
        impl_->take_result(args.at(i), impl_->results[i], results[i]);
      }
    }
  } catch (const InternalError&) {
    throw;
  } catch (...) {
    rethrow_as_step_error(impl_->name, impl_->location);
  }
}

void copy_strided(DType dtype, const Dims& dims, void* to, const Dims& to_strides, const void* from, const Dims& from_strides) {
  c10::InferenceMode inference;
  at::Tensor target = make_alias(dtype, dims, to_strides);
  at::Tensor source = make_alias(dtype, dims, from_strides);
  set_address(target, to);
  set_address(source, const_cast<void*>(from));
  target.copy_(source);
}

} // namespace torch_xla::cpu
