// New tensors that ATen computes from numbers alone: linspace, logspace, range, eye, permutations, indices of triangles, windows.
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/kaiser_window.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/range.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/triu_indices.h>
#include <torch/library.h>

#include <cmath>

#include "aten/native_call.h"
#include "core/errors.h"
#include "kernels/register.h"
#include "ops/registry.h"
#include "recording/copy.h"
#include "recording/generator.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

Attr to_attr(const at::Scalar& number) {
  if (number.isComplex()) {
    return std::complex<double>(number.toComplexDouble());
  }
  if (number.isBoolean()) {
    return number.toBool();
  }
  return number.isFloatingPoint() ? Attr(number.toDouble()) : Attr(number.toLong());
}

bool is_recordable_out(const at::Tensor& out) {
  return is_xla_tensor(out) && is_recordable(to_dtype(out.scalar_type())) && !overlaps_itself(out) && engine().runs_library_calls();
}

// Whether ATen accepts the number as an end of a range of the tensor's type.
bool can_hold(const at::Tensor& out, const at::Scalar& number) {
  const bool whole = c10::isIntegralType(out.scalar_type(), false);
  return out.scalar_type() != c10::ScalarType::Bool && !(whole && number.isFloatingPoint() && !std::isfinite(number.toDouble()));
}

// Writes the CPU result of `compute`, which also raises ATen's errors.
template <typename Compute>
at::Tensor& write_computed(at::Tensor& out, Compute compute) {
  at::Tensor cpu = at::empty({0}, out.options().device(at::kCPU));
  compute(cpu);
  at::native::resize_output(out, cpu.sizes());
  return out.copy_(cpu);
}

// Writes the call's n numbers.
at::Tensor& write_call(at::Tensor& out, const Op& op, int64_t n, Attrs attrs, InlineVec<ValueId, 4> operands = {}) {
  at::native::resize_output(out, {n});
  if (n > 0) {
    Recording recording(device_number(out));
    recording.write(out, recording.node(op, std::move(operands), std::move(attrs), Type{to_dtype(out.scalar_type()), {n}}));
  }
  return out;
}

Attr dtype_of(const at::Tensor& out) {
  return static_cast<int64_t>(out.scalar_type());
}

at::Tensor& linspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, at::Tensor& out) {
  static const Op& op = get_op("aten::linspace");
  if (steps < 0 || !is_recordable_out(out) || !can_hold(out, start) || !can_hold(out, end)) {
    return write_computed(out, [&](at::Tensor& cpu) { at::linspace_out(cpu, start, end, steps); });
  }
  return write_call(out, op, steps, {to_attr(start), to_attr(end), steps, dtype_of(out)});
}

at::Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out) {
  static const Op& op = get_op("aten::logspace");
  if (steps < 0 || !is_recordable_out(out) || !can_hold(out, start) || !can_hold(out, end)) {
    return write_computed(out, [&](at::Tensor& cpu) { at::logspace_out(cpu, start, end, steps, base); });
  }
  return write_call(out, op, steps, {to_attr(start), to_attr(end), steps, base, dtype_of(out)});
}

at::Tensor& range_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  return write_computed(out, [&](at::Tensor& cpu) { at::range_out(cpu, start, end, step); });
}

at::Tensor& eye_out(int64_t n, int64_t m, at::Tensor& out) {
  static const Op& op = get_op("xla::eye");
  if (n < 0 || m < 0 || !is_xla_tensor(out) || !is_native(to_dtype(out.scalar_type())) || overlaps_itself(out)) {
    return write_computed(out, [&](at::Tensor& cpu) { at::eye_out(cpu, n, m); });
  }
  at::native::resize_output(out, {n, m});
  if (out.numel() > 0) {
    DType dtype = to_dtype(out.scalar_type());
    Recording recording(device_number(out));
    recording.write(out, recording.node(op, {}, {static_cast<int64_t>(dtype), n, m}, Type{dtype, {n, m}}));
  }
  return out;
}

at::Tensor& square_eye_out(int64_t n, at::Tensor& out) {
  return eye_out(n, n, out);
}

at::Tensor& randperm_out(int64_t n, std::optional<at::Generator> generator, at::Tensor& out) {
  static const Op& op = get_op("aten::randperm.generator");
  // ATen's kernel refuses types that cannot count to n.
  bool counts = is_native(to_dtype(out.scalar_type())) && fits(n, to_dtype(out.scalar_type())) && out.scalar_type() != at::kBool;
  if (n < 0 || !counts || !is_recordable_out(out)) {
    HostDraw draw(device_number(out), generator);
    write_computed(out, [&](at::Tensor& cpu) { at::randperm_out(cpu, n, draw.generator()); });
    draw.keep();
    return out;
  }
  at::native::resize_output(out, {n});
  if (n > 0) {
    const int device = device_number(out);
    Recording recording(device);
    InlineVec<ValueId, 4> operands;
    append_draw(recording, device, generator, operands);
    Attrs attrs{n, Attr(), dtype_of(out)};
    recording.write(out, recording.node(op, std::move(operands), std::move(attrs), Type{to_dtype(out.scalar_type()), {n}}));
  }
  return out;
}

// Results of ATen's CPU kernel from the numbers of a call: some have no kernel for other devices, and the sizes of others need a count of
// their elements anyway.
template <typename... Numbers>
struct FromNumbers {
  using Compute = at::Tensor (*)(
      Numbers..., std::optional<c10::ScalarType>, std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>);

  template <Compute compute>
  static at::Tensor on_cpu(
      Numbers... numbers,
      std::optional<c10::ScalarType> dtype,
      std::optional<c10::Layout> layout,
      std::optional<c10::Device> device,
      std::optional<bool> /*pin_memory*/) {
    return upload_adopted(resolve_device(device), compute(numbers..., dtype, layout, c10::Device(at::kCPU), std::nullopt));
  }
};

} // namespace

void register_factories(torch::Library& m) {
  m.impl("linspace.out", TORCH_FN(linspace_out));
  m.impl("logspace.out", TORCH_FN(logspace_out));
  m.impl("range.out", TORCH_FN(range_out));
  m.impl("eye.out", TORCH_FN(square_eye_out));
  m.impl("eye.m_out", TORCH_FN(eye_out));
  m.impl("randperm.generator_out", TORCH_FN(randperm_out));
  m.impl("kaiser_window", TORCH_FN((FromNumbers<int64_t>::on_cpu<at::kaiser_window>)));
  m.impl("kaiser_window.periodic", TORCH_FN((FromNumbers<int64_t, bool>::on_cpu<at::kaiser_window>)));
  m.impl("kaiser_window.beta", TORCH_FN((FromNumbers<int64_t, bool, double>::on_cpu<at::kaiser_window>)));
  m.impl("tril_indices", TORCH_FN((FromNumbers<int64_t, int64_t, int64_t>::on_cpu<at::tril_indices>)));
  m.impl("triu_indices", TORCH_FN((FromNumbers<int64_t, int64_t, int64_t>::on_cpu<at::triu_indices>)));
}

} // namespace torch_xla
