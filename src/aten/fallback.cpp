// The CPU fallback: an operation without a row runs ATen's CPU kernel on the same memory; counted by name, with its reason at XLA_DEBUG=1.
#include "aten/fallback.h"

#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/boxed_call.h"
#include "aten/native_call.h"
#include "aten/rows.h"
#include "core/env.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "engine/engine.h"
#include "ir/strides.h"
#include "ops/registry.h"
#include "recording/copy.h"
#include "recording/generator.h"
#include "recording/recording.h"
#include "trace/source_line.h"
#include "trace/torch_errors.h"

namespace torch_xla {

namespace {

// One device tensor of a call and its stand-in on the CPU.
struct Exchange {
  at::Tensor device;
  at::Tensor cpu;
  bool written = false;
};

// One element of each place that elements share (stride 0).
at::Tensor one_of_each(at::Tensor t) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0 && t.size(d) > 1) {
      t = t.narrow(d, 0, 1);
    }
  }
  return t;
}

// Whether the tensor has a storage of elements: not sparse, not made of other tensors.
bool is_plain(const at::Tensor& t) {
  return t.layout() == c10::kStrided && !t.is_nested();
}

class FallbackCall {
 public:
  // The results go to `device`.
  FallbackCall(const c10::OperatorHandle& op, torch::jit::Stack* stack, int device) : op_(op), stack_(stack), device_(device) {
    base_ = stack->size() - op.schema().arguments().size();
  }

  void run(c10::DispatchKey key) {
    replace_arguments(/*written=*/true); // first: a tensor that is also read needs separate memory
    replace_arguments(/*written=*/false);
    TORCH_CHECK(
        !view_op(),
        "the XLA device has no kernel for the view operation ",
        op_.schema().operator_name(),
        ", which cannot run on the CPU because its result shares memory with its input");
    draw_on_cpu();
    prepare().redispatchBoxed(c10::DispatchKeySet(key), stack_);
    if (draw_) {
      draw_->keep();
    }
    for (Exchange& exchange : exchanges_) {
      if (exchange.written) {
        write_back(exchange);
      }
    }
    for (size_t i = stack_->size() - op_.schema().returns().size(); i < stack_->size(); ++i) {
      restore((*stack_)[i]);
    }
  }

 private:
  bool view_op() const {
    for (const c10::Argument& result : op_.schema().returns()) {
      if (result.alias_info() && !result.alias_info()->isWrite()) {
        return true;
      }
    }
    return false;
  }

  void replace_arguments(bool written) {
    for (size_t i = 0; i < op_.schema().arguments().size(); ++i) {
      const c10::AliasInfo* alias = op_.schema().arguments()[i].alias_info();
      if ((alias && alias->isWrite()) == written) {
        replace((*stack_)[base_ + i], written);
      }
    }
  }

  void replace(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      value = to_cpu(value.toTensor(), written);
    } else if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
      value = c10::Device(c10::DeviceType::CPU);
    } else if (value.isList()) {
      value = list_on_cpu(value, written);
    }
  }

  // The preparation of every call of an ATen kernel. Returns the overload for the arguments: a number may have become a tensor.
  c10::OperatorHandle prepare() {
    const Op* row = find_row(op_);
    if (!row) {
      return op_;
    }
    torch::jit::Stack arguments(stack_->begin() + static_cast<std::ptrdiff_t>(base_), stack_->end());
    if (!prepare_call(row->of_tensors ? row->of_tensors : row->name, arguments)) {
      return op_;
    }
    bool by_tensors = row->of_tensors && arguments[0].isTensor() && arguments[1].isTensor();
    std::move(arguments.begin(), arguments.end(), stack_->begin() + static_cast<std::ptrdiff_t>(base_));
    return by_tensors ? overload_of_tensors(*row, op_) : op_;
  }

  // Draws of ATen's kernel come from the device's generator.
  void draw_on_cpu() {
    const std::vector<c10::Argument>& arguments = op_.schema().arguments();
    auto is_generator = [](const c10::Argument& argument) { return argument.name() == "generator"; };
    const auto found = std::find_if(arguments.begin(), arguments.end(), is_generator);
    if (found != arguments.end()) {
      c10::IValue& value = (*stack_)[base_ + static_cast<size_t>(found - arguments.begin())];
      draw_.emplace(device_, value.isNone() ? std::nullopt : MaybeGenerator(value.toGenerator()));
      value = draw_->generator();
    }
  }

  // A list of tensors, some maybe None, or of other values. Scripts use other type objects for lists of the same types.
  c10::IValue list_on_cpu(const c10::IValue& value, bool written) {
    c10::ArrayRef<c10::IValue> items = value.toListRef();
    if (std::none_of(items.begin(), items.end(), [](const c10::IValue& item) { return item.isTensor(); })) {
      return value;
    }
    c10::List<c10::IValue> list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      const c10::IValue item = list.get(i);
      if (item.isTensor()) {
        list.set(i, to_cpu(item.toTensor(), written));
      }
    }
    return list;
  }

  at::Tensor to_cpu(const at::Tensor& t, bool written) {
    if (!is_xla_tensor(t)) {
      return t;
    }
    for (Exchange& exchange : exchanges_) {
      if (exchange.device.is_same(t)) {
        return exchange.cpu;
      }
    }
    const std::string why = engine().why_no_values();
    XLA_CHECK(
        why.empty(),
        op_.schema().name(),
        " would run on the CPU, which needs values, but ",
        why,
        "\nat ",
        location_text(current_location()));
    bool plain = is_plain(t);
    at::Tensor cpu = plain ? read_on_cpu(t) : t.to(at::kCPU);
    if (written && plain) {
      at::Tensor own = at::empty_strided(cpu.sizes(), cpu.strides(), cpu.options());
      one_of_each(own).copy_(one_of_each(cpu));
      cpu = own;
    }
    if (!written && t.requires_grad()) {
      cpu.set_requires_grad(true); // some kernels return more if a gradient is wanted
    }
    exchanges_.push_back({t, cpu, written});
    return cpu;
  }

  // Also takes over the strides, which may leave gaps in memory.
  static void resize_as(const at::Tensor& t, const at::Tensor& cpu) {
    if (overlaps_itself(cpu)) {
      t.resize_(cpu.sizes());
      return;
    }
    t.resize_({span_elements(to_dims(cpu.sizes()), to_dims(cpu.strides()))});
    t.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides());
  }

  static void write_back(Exchange& exchange) {
    if (!is_plain(exchange.device)) {
      exchange.device.copy_(exchange.cpu);
      return;
    }
    if (exchange.device.sizes() != exchange.cpu.sizes()) {
      resize_as(exchange.device, exchange.cpu);
    }
    write_from_cpu(exchange.device, exchange.cpu);
  }

  at::Tensor to_device(const at::Tensor& t) const {
    if (!t.defined() || t.device().type() != c10::DeviceType::CPU) {
      return t;
    }
    for (const Exchange& exchange : exchanges_) {
      if (exchange.cpu.is_same(t)) {
        return exchange.device;
      }
    }
    c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device_));
    return is_plain(t) ? upload_in_place(t, device) : t.to(device);
  }

  // With the strides of eager's result, which may leave gaps in memory.
  at::Tensor upload_in_place(const at::Tensor& t, c10::Device device) const {
    if (t.numel() == 0) {
      return at::empty_strided(t.sizes(), t.strides(), t.options().device(device));
    }
    bool dense = t.is_non_overlapping_and_dense();
    if (!dense && !overlaps_itself(t) && !t.is_conj() && !t.is_neg()) {
      at::Tensor part = at::empty_strided(t.sizes(), t.strides(), t.options().device(device));
      write_from_cpu(part, t);
      return part;
    }
    at::Tensor result = upload_adopted(device_, t);
    if (dense && result.strides() != t.strides()) { // of dims with at most one element
      result.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
    }
    return result;
  }

  void restore(c10::IValue& value) {
    if (value.isTensor()) {
      value = to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) {
        list.push_back(to_device(t));
      }
      value = list;
    }
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  const int device_;
  size_t base_ = 0;
  std::vector<Exchange> exchanges_;
  std::optional<HostDraw> draw_;
};

bool takes_from_host(const c10::OperatorHandle& op, size_t argument) {
  const Op* row = find_op(c10::toString(op.operator_name()));
  return row && may_lie_on_host(*row, argument);
}

// Eager's error for a call that mixes the device with another one or with CPU tensors; read-only CPU numbers (0-d) may mix.
void check_devices(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, int device) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    bool in_list = arguments[i].isList();
    for (const c10::IValue& value : in_list ? arguments[i].toListRef() : c10::ArrayRef<c10::IValue>(arguments[i])) {
      if (!value.isTensor() || !value.toTensor().defined()) {
        continue;
      }
      const at::Tensor& t = value.toTensor();
      bool number = t.dim() == 0 && !op.schema().arguments()[i].is_out();
      if (is_xla_tensor(t) ? device_number(t) != device : !in_list && !number && !takes_from_host(op, i)) {
        refuse_device(device, t);
      }
    }
  }
}

} // namespace

void run_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason, c10::DispatchKey key) {
  metrics::find_or_create_counter(op.schema().name()).add();
  if (env::debug_level() >= 1) {
    env::debug_print("fallback", str(c10::toString(op.operator_name()), " runs on the CPU: ", reason));
  }
  try {
    c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, op.schema().arguments().size());
    int device = device_of_call(arguments);
    observer::Span span(observer::Phase::kFallback, device, op.schema().name(), observed_location(observer::Phase::kFallback));
    span.set_detail(reason);
    check_devices(op, arguments, device);
    FallbackCall(op, stack, device).run(key);
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
}

namespace {

void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (const c10::BoxedKernel* kernel = find_kernel_of_library(op)) {
    kernel->callBoxed(op, keys, stack);
  } else {
    run_fallback(op, stack, "there is no row for it");
  }
}

} // namespace

void register_fallback() {
  static auto* library = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

} // namespace torch_xla
