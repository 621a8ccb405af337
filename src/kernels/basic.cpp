// Kernels that make tensors or change only the view of their storage: empty, views, resize_, set_, fill_.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/rsub_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "aten/promotion.h"
#include "core/torch_release.h"
#include "kernels/register.h"
#include "ops/registry.h"
#include "recording/copy.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// torch.use_deterministic_algorithms and torch.utils.deterministic.fill_uninitialized_memory: new memory holds NaN or the largest number.
bool fills_new_memory() {
  return at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory();
}

at::Tensor filled_if_deterministic(at::Tensor t) {
  return fills_new_memory() ? at::native::fill_empty_deterministic_(t) : t;
}

at::Tensor empty_memory_format(
    c10::SymIntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "the XLA device has strided tensors only");
  const c10::OptionalDeviceGuard guard(device);
  return filled_if_deterministic(at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), c10::GetAllocator(c10::DeviceType::PrivateUse1), kKeys, c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> /*layout*/,
    std::optional<c10::Device> device,
    std::optional<bool> /*pin_memory*/) {
  const c10::OptionalDeviceGuard guard(device);
  return filled_if_deterministic(at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size),
      C10_AS_INTARRAYREF_SLOW(stride),
      c10::GetAllocator(c10::DeviceType::PrivateUse1),
      kKeys,
      c10::dtype_or_default(dtype)));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> at_offset = offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), at_offset);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

void grow_storage(const at::Tensor& self) {
  auto needed =
      at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.dtype().itemsize(), static_cast<size_t>(self.storage_offset()));
  if (self.numel() > 0 && self.storage().nbytes() < needed) {
    resize_storage_bytes(self.storage(), needed);
  }
}

// A copy of the whole storage, with self's view of it; writes to one do not reach the other.
at::Tensor lazy_clone(const at::Tensor& self) {
  auto items = static_cast<int64_t>(self.storage().nbytes() / self.dtype().itemsize());
  return self.as_strided({items}, {1}, 0).clone().as_strided(self.sizes(), self.strides(), self.storage_offset());
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<c10::MemoryFormat> format) {
  size_t nbytes = self.storage().nbytes();
  if (self.sizes() != C10_AS_INTARRAYREF_SLOW(size)) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
    grow_storage(self);
  }
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return fills_new_memory() ? at::native::fill_resize_deterministic_(self, static_cast<int64_t>(nbytes)) : self;
}

at::Tensor& set_storage_offset(
    at::Tensor& self, c10::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  c10::IntArrayRef strides = C10_AS_INTARRAYREF_SLOW(stride);
  bool strided = strides.data() && strides.size() == sizes.size();
  if (strided) { // refuses negative strides before any change
    at::detail::computeStorageNbytes(sizes, strides, self.dtype().itemsize(), 0);
  }
  if (!source.unsafeGetStorageImpl()->resizable()) {
    at::native::checkInBoundsForStorage(sizes, strides, offset.expect_int(), self.dtype(), source);
  }
  at::native::checkSetStorage(self, source, offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset.expect_int());
  if (strided) {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  grow_storage(self);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  auto items = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, c10::SymInt(items), {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() != source.unsafeGetTensorImpl()) {
    return set_storage_offset(self, source.storage(), source.storage_offset(), source.sym_sizes(), source.sym_strides());
  }
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(c10::DeviceType::PrivateUse1), true);
  set_storage(self, std::move(storage));
  return self;
}

void record_stream(at::Tensor& /*self*/, c10::Stream /*stream*/) {} // all streams run in one order

// One of the elements that share memory, as in expanded dims: a number may be written there.
at::Tensor one_of_each(const at::Tensor& self) {
  at::Tensor part = self;
  for (int64_t d = 0; d < self.dim(); ++d) {
    part = self.stride(d) == 0 && self.size(d) > 1 ? part.narrow(d, 0, 1) : part;
  }
  return part;
}

at::Tensor& fill_number(at::Tensor& self, const at::Scalar& value) {
  if (!fits(value, to_dtype(self.scalar_type()))) {
    // Raises ATen's error; a tensor of one element takes numbers that are infinite in a 16-bit float.
    at::empty({self.numel() == 1 ? 1 : 2}, self.options().device(at::kCPU)).fill_(value);
  }
  if (self.numel() == 0) {
    return self;
  }
  if (is_recordable(to_dtype(self.scalar_type())) && (value.isComplex() || self.is_complex())) {
    const at::Tensor part = one_of_each(self);
    part.copy_(at::scalar_tensor(value, self.options()).expand(part.sizes()));
    return self;
  }
  if (!is_native(to_dtype(value.type())) || !is_native(to_dtype(self.scalar_type()))) {
    const at::Tensor part = one_of_each(self);
    part.copy_(read_on_cpu(part).clone().fill_(value));
    return self;
  }
  Recording recording(device_number(self));
  recording.write(self, recording.full(to_dtype(self.scalar_type()), to_dims(self.sizes()), recording.scalar(value)));
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(), " dimensions.");
  if (!is_xla_tensor(value)) {
    return fill_number(self, value.item());
  }
  return self.copy_(value.expand(self.sizes()));
}

at::Tensor& zero_(at::Tensor& self) {
  if (!is_recordable(to_dtype(self.scalar_type()))) {
    const at::Tensor part = one_of_each(self);
    part.copy_(at::zeros(part.sizes(), self.options().device(at::kCPU)));
    return self;
  }
  if (self.numel() == 0 || !is_native(to_dtype(self.scalar_type()))) {
    return fill_number(self, 0);
  }
  Recording recording(device_number(self));
  recording.write(self, recording.zeros(to_dtype(self.scalar_type()), to_dims(self.sizes())));
  return self;
}

// ATen's own writes by a kernel of one device only.
at::Tensor& conj_physical_(at::Tensor& self) {
  return self.is_complex() ? self.copy_(self.conj()) : self;
}

// Whether a kernel's conversion of the number has the value of ATen's on the host.
bool converts_as_eager(const at::Scalar& value, DType type) {
  const bool is_whole = value.type() == at::kLong;
  const bool is_float = type == DType::F32 || type == DType::F64;
  return (is_float && (is_whole || value.type() == at::kDouble) && fits(value, type)) || (type == DType::I64 && is_whole);
}

// The value of x[i] = number and of where(mask, x, number), as in eager: too large for a 16-bit float is infinite, not an error.
at::Tensor scalar_tensor(
    const at::Scalar& value,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> /*layout*/,
    std::optional<c10::Device> device,
    std::optional<bool> /*pin_memory*/) {
  int index = resolve_device(device);
  if (const DType type = to_dtype(c10::dtype_or_default(dtype)); converts_as_eager(value, type)) {
    Recording recording(index);
    return recording.wrap(recording.full(type, {}, recording.scalar(value)));
  }
  at::Tensor cpu = at::detail::scalar_tensor_static(value, c10::dtype_or_default(dtype), at::kCPU);
  if (!is_native(to_dtype(cpu.scalar_type()))) {
    return upload_adopted(index, cpu);
  }
  Recording recording(index);
  return recording.wrap(recording.read_operand(cpu));
}

// Compatible: plain strided tensors of the CPU and this device, so that module.to(device) keeps Parameter objects and tied weights.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  auto plain = [](const at::Tensor& t) {
    return t.layout() == c10::kStrided && (t.device().type() == c10::DeviceType::PrivateUse1 || t.device().type() == c10::DeviceType::CPU);
  };
  return plain(self) && plain(from);
}

// Number of elements; -1 if ATen must raise an error or the type is not ours.
int64_t arange_count(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, c10::ScalarType dtype) {
  bool integral = c10::isIntegralType(dtype, false);
  double by = integral ? static_cast<double>(step.toLong()) : step.toDouble();
  double length = end.toDouble() - start.toDouble();
  bool fits = std::isfinite(by) && std::isfinite(length) && by != 0 && (length == 0 || (length > 0) == (by > 0));
  if (!fits || !is_native(to_dtype(dtype)) || dtype == c10::ScalarType::Bool) {
    return -1;
  }
  const bool is_whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  if (dtype == c10::ScalarType::Long && (is_whole || kRangeRoundsFirst)) {
    int64_t s = step.toLong();
    return (end.toLong() - start.toLong() + s - (s > 0 ? 1 : -1)) / s;
  }
  return static_cast<int64_t>(std::ceil(length / step.toDouble()));
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  static const Op& op = get_op("xla::arange");
  int64_t n = start.isComplex() || end.isComplex() || step.isComplex() ? -1 : arange_count(start, end, step, out.scalar_type());
  if (n < 0) {
    at::Tensor cpu = at::empty({0}, out.options().device(at::kCPU));
    at::arange_out(cpu, start, end, step);
    at::native::resize_output(out, cpu.sizes());
    return out.copy_(cpu);
  }
  at::native::resize_output(out, {n});
  if (n == 0) {
    return out;
  }
  Recording recording(device_number(out));
  DType dtype = to_dtype(out.scalar_type());
  InlineVec<ValueId, 4> operands{recording.scalar(start), recording.scalar(step)};
  recording.write(out, recording.node(op, operands, {static_cast<int64_t>(dtype), n}, Type{dtype, {n}}));
  return out;
}

} // namespace

void register_basic_kernels(torch::Library& m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("_lazy_clone", TORCH_FN(lazy_clone));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("scalar_tensor", TORCH_FN(scalar_tensor));
  m.impl("rsub.Tensor", static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&)>(&at::native::rsub));
  m.impl("fill_.Scalar", TORCH_FN(fill_number));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("conj_physical_", TORCH_FN(conj_physical_));
  m.impl("arange.start_out", TORCH_FN(arange_out));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

} // namespace torch_xla
