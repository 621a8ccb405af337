// What PyTorch's tutorial on PrivateUse1 has a backend register, registered by a program for the device that is there: a kernel in the
// place of the device's own, kernels for its autograd and autocast keys, a fallback, and the functions that store metadata of its tensors.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/CPUFallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/library.h>
#include <torch/serialize.h>
#include <torch_xla/torch_xla.h>

#include <cmath>
#include <string>
#include <unordered_map>

#include "check.h"

namespace {

constexpr double kScale = 1.0507009873554804934193349852946;
constexpr double kAlpha = 1.6732632423543772848170429916717;

int num_additions = 0;

// ---- Kernels: operations of the device, recorded like a program's own ----
at::Tensor wrapper_Custom_Tensor_add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  ++num_additions;
  return at::sub(self, other, -alpha.toDouble());
}

void custom_cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

class CustomSeluFunction : public torch::autograd::Function<CustomSeluFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& self) {
    const at::AutoDispatchBelowAutograd below;
    context->save_for_backward({self});
    return kScale * at::where(self > 0, self, kAlpha * at::expm1(self));
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context, const torch::autograd::tensor_list& gradients) {
    const at::Tensor self = context->get_saved_variables()[0];
    return {gradients[0] * kScale * at::where(self > 0, at::ones_like(self), kAlpha * at::exp(self))};
  }
};

at::Tensor wrapper_AutogradCustom__selu(const at::Tensor& self) {
  return CustomSeluFunction::apply(self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("add.Tensor", TORCH_FN(wrapper_Custom_Tensor_add));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("selu", TORCH_FN(wrapper_AutogradCustom__selu));
}

// The macro's names are those of ATen's namespace.
using namespace at::autocast; // NOLINT(google-build-using-namespace)
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(abs, lower_precision_fp)
}

// ---- Metadata ----
struct CustomBackendMetadata : c10::BackendMeta {
  explicit CustomBackendMetadata(std::string layout_arg) : layout(std::move(layout_arg)) {}

  std::string layout;
};

void for_serialization(const at::Tensor& t, std::unordered_map<std::string, bool>& m) {
  if (const auto* meta = dynamic_cast<CustomBackendMetadata*>(t.unsafeGetTensorImpl()->get_backend_meta())) {
    m[meta->layout] = true;
  }
}

void for_deserialization(const at::Tensor& t, std::unordered_map<std::string, bool>& m) {
  for (const auto& [layout, is_set] : m) {
    t.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<CustomBackendMetadata>(layout));
  }
}

// ---- Checks ----
at::Tensor numbers() {
  return at::linspace(-2, 2, 8);
}

at::Tensor on_device() {
  return numbers().to(torch_xla::device());
}

// A pointwise operation that nobody wants a gradient of is recorded at the autograd key, above such a kernel (docs/custom_operators.md).
void test_a_kernel() {
  const at::Tensor x = on_device().requires_grad_();
  const at::Tensor sum = at::add(x, on_device(), 2);
  EXPECT(num_additions == 1);
  EXPECT(at::allclose(sum.detach().cpu(), 3 * numbers()));
  sum.sum().backward();
  EXPECT(at::equal(x.grad().cpu(), at::ones({8})));
  EXPECT(at::allclose(at::add(on_device(), on_device(), 2).cpu(), 3 * numbers()));
  EXPECT(at::equal(numbers() + 1, at::add(numbers(), 1))); // the CPU's is not replaced
  EXPECT(num_additions == 1);
}

void test_an_autograd_kernel() {
  at::Tensor x = on_device().requires_grad_(), reference = numbers().requires_grad_();
  const at::Tensor y = at::selu(x), expected = at::selu(reference);
  EXPECT(y.grad_fn()->name().find("CustomSeluFunction") != std::string::npos);
  EXPECT(at::allclose(y.detach().cpu(), expected.detach()));
  y.sum().backward();
  expected.sum().backward();
  EXPECT(at::allclose(x.grad().cpu(), reference.grad()));
}

void test_an_autocast_kernel() {
  EXPECT(at::abs(on_device()).scalar_type() == at::kFloat);
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, true);
  EXPECT(at::abs(on_device()).scalar_type() == at::kBFloat16);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, false);
}

// The device has one, which counts what it runs: another is refused.
void test_a_fallback() {
  torch::Library library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  std::string text;
  try {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&custom_cpu_fallback>());
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  }
  EXPECT(text.find("multiple backend fallbacks for the same dispatch key PrivateUse1") != std::string::npos);
  EXPECT(on_device().nonzero().size(0) == 8);
  EXPECT(torch_xla::counter_value("aten::nonzero") == 1);
}

void test_metadata() {
  torch::jit::TensorBackendMetaRegistry(c10::DeviceType::PrivateUse1, &for_serialization, &for_deserialization);
  const at::Tensor with = on_device(), without = on_device();
  with.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<CustomBackendMetadata>("blocked"));
  const auto loaded = torch::pickle_load(torch::pickle_save(c10::List<at::Tensor>({with, without}))).toTensorVector();
  EXPECT(loaded.size() == 2);
  EXPECT(loaded[0].device() == torch_xla::device() && at::equal(loaded[0].cpu(), numbers()));
  const auto* meta = dynamic_cast<CustomBackendMetadata*>(loaded[0].unsafeGetTensorImpl()->get_backend_meta());
  EXPECT(meta != nullptr && meta->layout == "blocked");
  EXPECT(loaded[1].unsafeGetTensorImpl()->get_backend_meta() == nullptr);
}

} // namespace

int main() {
  test_a_kernel();
  test_an_autograd_kernel();
  test_an_autocast_kernel();
  test_a_fallback();
  test_metadata();
  return failures();
}
