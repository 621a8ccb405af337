// Operations of one's own on the device `xla`: written in PyTorch's operations, they are recorded and fused like these
// (docs/custom_operators.md).
//
//     ./custom_operator
#include <ATen/autocast_mode.h>
#include <torch/library.h>
#include <torch/torch.h>
#include <torch_xla/torch_xla.h>

#include <cstdlib>
#include <iostream>

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

namespace {

// On the device: what it is made of. Nothing is computed here.
at::Tensor quick_gelu(const at::Tensor& x, double scale) {
  return x * at::sigmoid(1.702 * x) * scale;
}

at::Tensor call_quick_gelu(const at::Tensor& x, double scale) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("examples::quick_gelu", "").typed<decltype(quick_gelu)>();
  return op.call(x, scale);
}

// Its gradient, for each device.
struct QuickGelu : torch::autograd::Function<QuickGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double scale) {
    const at::AutoDispatchBelowAutograd below;
    context->save_for_backward({x});
    context->saved_data["scale"] = scale;
    return call_quick_gelu(x, scale);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor s = at::sigmoid(1.702 * x);
    return {gradients[0] * context->saved_data["scale"].toDouble() * s * (1 + 1.702 * x * (1 - s)), {}};
  }
};

at::Tensor quick_gelu_with_gradient(const at::Tensor& x, double scale) {
  return QuickGelu::apply(x, scale);
}

// Within autocast: in float32.
at::Tensor quick_gelu_in_float(const at::Tensor& x, double scale) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  return call_quick_gelu(at::autocast::cached_cast(at::kFloat, x, c10::kPrivateUse1), scale);
}

// Only for the CPU: the device runs it there, and counts it.
at::Tensor on_the_cpu(const at::Tensor& x) {
  const at::Tensor result = x.contiguous().clone();
  auto* elements = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) {
    elements[i] = elements[i] > 0 ? elements[i] : -1;
  }
  return result;
}

TORCH_LIBRARY(examples, m) {
  m.def("quick_gelu(Tensor x, float scale) -> Tensor");
  m.def("on_the_cpu(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(examples, CPU, m) {
  m.impl("quick_gelu", quick_gelu);
  m.impl("on_the_cpu", on_the_cpu);
}
TORCH_LIBRARY_IMPL(examples, PrivateUse1, m) {
  m.impl("quick_gelu", quick_gelu);
}
TORCH_LIBRARY_IMPL(examples, AutogradPrivateUse1, m) {
  m.impl("quick_gelu", quick_gelu_with_gradient);
}
TORCH_LIBRARY_IMPL(examples, AutocastPrivateUse1, m) {
  m.impl("quick_gelu", quick_gelu_in_float);
}

int failures = 0;

void check(bool good, const char* what) {
  std::cout << what << ": " << (good ? "good" : "NOT good") << std::endl;
  failures += !good;
}

int64_t count(const char* counter) {
  return torch_xla::counter_value(counter).value_or(0);
}

} // namespace

int main() {
  const at::Tensor x = torch::linspace(-3, 3, 64).view({4, 16});
  const at::Tensor on_device = x.to(torch_xla::device()).requires_grad_();

  const at::Tensor y = call_quick_gelu(on_device, 2.0) + 1;
  y.sum().backward();
  torch_xla::sync(/*wait=*/true);
  check(at::allclose(y.detach().cpu(), quick_gelu(x, 2.0) + 1), "values");
  const at::Tensor reference = x.clone().requires_grad_();
  quick_gelu(reference, 2.0).sum().backward();
  check(at::allclose(on_device.grad().cpu(), reference.grad(), 1e-4, 1e-5), "gradient");
  check(count("xla::sigmoid") == 2 && count("examples::quick_gelu") == 0, "recorded as its parts");

  at::autocast::set_autocast_enabled(c10::kPrivateUse1, true);
  check(call_quick_gelu(on_device.detach().to(at::kBFloat16), 1.0).scalar_type() == at::kFloat, "autocast");
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, false);

  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("examples::on_the_cpu", "").typed<decltype(on_the_cpu)>();
  check(at::equal(op.call(on_device.detach()).cpu(), on_the_cpu(x)), "a kernel of the CPU");
  check(count("examples::on_the_cpu") == 1, "counted as a fallback");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
