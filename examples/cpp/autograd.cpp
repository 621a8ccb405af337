// The programs of PyTorch's tutorial "Autograd in C++ Frontend" on the device `xla`. What they print is the device's; then each is run on
// the CPU, and the values are compared. Nothing here but the name of the device is of torch_xla.
//
//     ./autograd
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <vector>

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

// The same numbers on every device.
torch::Tensor randn(at::IntArrayRef sizes, torch::Device device) {
  return torch::randn(sizes).to(device);
}

tensor_list basic_operations(torch::Device device, std::ostream& out) {
  auto x = torch::ones({2, 2}, torch::TensorOptions().device(device).requires_grad(true));
  out << x << std::endl;
  auto y = x + 2;
  out << y << std::endl;
  out << y.grad_fn()->name() << std::endl;

  auto z = y * y * 3;
  auto mean = z.mean();
  out << z << std::endl;
  out << z.grad_fn()->name() << std::endl;
  out << mean << std::endl;
  out << mean.grad_fn()->name() << std::endl;

  auto a = randn({2, 2}, device);
  a = ((a * 3) / (a - 1));
  out << a.requires_grad() << std::endl;
  a.requires_grad_(true);
  out << a.requires_grad() << std::endl;
  auto b = (a * a).sum();
  out << b.grad_fn()->name() << std::endl;

  mean.backward();
  out << x.grad() << std::endl;
  return {y, z, mean, b, x.grad()};
}

tensor_list vector_jacobian_product(torch::Device device, std::ostream& out) {
  auto x = randn({3}, device).requires_grad_(true);
  auto y = x * 2;
  while (y.norm().item<double>() < 1000) {
    y = y * 2;
  }
  out << y << std::endl;
  out << y.grad_fn()->name() << std::endl;

  auto v = torch::tensor({0.1, 1.0, 0.0001}, torch::TensorOptions().dtype(torch::kFloat).device(device));
  y.backward(v);
  out << x.grad() << std::endl;
  return {y, x.grad()};
}

tensor_list without_history(torch::Device device, std::ostream& out) {
  auto x = randn({3}, device).requires_grad_(true);
  out << x.requires_grad() << std::endl;
  out << x.pow(2).requires_grad() << std::endl;
  {
    torch::NoGradGuard no_grad;
    out << x.pow(2).requires_grad() << std::endl;
    TORCH_CHECK(!x.pow(2).requires_grad());
  }

  out << x.requires_grad() << std::endl;
  auto y = x.detach();
  out << y.requires_grad() << std::endl;
  out << x.eq(y).all().item<bool>() << std::endl;
  TORCH_CHECK(x.requires_grad() && !y.requires_grad() && x.eq(y).all().item<bool>());
  return {y};
}

tensor_list gradient_penalty(torch::Device device, std::ostream& out) {
  auto model = torch::nn::Linear(4, 3);
  model->to(device);
  auto input = randn({3, 4}, device).requires_grad_(true);
  auto output = model(input);
  auto target = randn({3, 3}, device);
  auto loss = torch::nn::MSELoss()(output, target);

  // The tutorial leaves out retain_graph, in whose place its create_graph then stands.
  auto grad_output = torch::ones_like(output);
  auto gradient = torch::autograd::grad({output}, {input}, /*grad_outputs=*/{grad_output}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  auto gradient_penalty = torch::pow((gradient.norm(2, /*dim=*/1) - 1), 2).mean();

  auto combined_loss = loss + gradient_penalty;
  combined_loss.backward();
  out << input.grad() << std::endl;
  return {combined_loss, input.grad(), model->weight.grad(), model->bias.grad()};
}

class LinearFunction : public Function<LinearFunction> {
 public:
  // The bias is an optional argument.
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor input, torch::Tensor weight, torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({input, weight, bias});
    auto output = input.mm(weight.t());
    if (bias.defined()) {
      output += bias.unsqueeze(0).expand_as(output);
    }
    return output;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto input = saved[0];
    auto weight = saved[1];
    auto bias = saved[2];
    auto grad_output = grad_outputs[0];
    auto grad_input = grad_output.mm(weight);
    auto grad_weight = grad_output.t().mm(input);
    auto grad_bias = torch::Tensor();
    if (bias.defined()) {
      grad_bias = grad_output.sum(0);
    }
    return {grad_input, grad_weight, grad_bias};
  }
};

tensor_list linear_function(torch::Device device, std::ostream& out) {
  auto x = randn({2, 3}, device).requires_grad_();
  auto weight = randn({4, 3}, device).requires_grad_();
  auto y = LinearFunction::apply(x, weight);
  y.sum().backward();
  out << x.grad() << std::endl;
  out << weight.grad() << std::endl;

  auto bias = randn({4}, device).requires_grad_();
  auto with_bias = LinearFunction::apply(x, weight, bias);
  with_bias.sum().backward();
  out << bias.grad() << std::endl;
  return {y, with_bias, x.grad(), weight.grad(), bias.grad()};
}

class MulConstant : public Function<MulConstant> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor tensor, double constant) {
    ctx->saved_data["constant"] = constant;
    return tensor * constant;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    // A gradient for each argument; that of one which is no tensor is undefined.
    return {grad_outputs[0] * ctx->saved_data["constant"].toDouble(), torch::Tensor()};
  }
};

tensor_list mul_constant(torch::Device device, std::ostream& out) {
  auto x = randn({2}, device).requires_grad_();
  auto y = MulConstant::apply(x, 5.5);
  y.sum().backward();
  out << x.grad() << std::endl;
  return {y, x.grad()};
}

tensor_list run(tensor_list (*program)(torch::Device, std::ostream&), torch::Device device, std::ostream& out) {
  torch::manual_seed(0);
  out << std::boolalpha;
  return program(device, out);
}

bool is_equal(const tensor_list& found, const tensor_list& expected) {
  bool same = found.size() == expected.size();
  for (size_t i = 0; same && i < expected.size(); ++i) {
    same = found[i].device() == torch::Device("xla:0") && torch::allclose(found[i].cpu(), expected[i], /*rtol=*/1e-5, /*atol=*/1e-6);
  }
  return same;
}

int main() {
  bool all_equal = true;
  for (auto program : {basic_operations, vector_jacobian_product, without_history, gradient_penalty, linear_function, mul_constant}) {
    std::ostream nowhere(nullptr);
    bool equal = is_equal(run(program, torch::Device("xla"), std::cout), run(program, torch::kCPU, nowhere));
    std::cout << (equal ? "-- as on the CPU" : "-- NOT as on the CPU") << std::endl;
    all_equal = all_equal && equal;
  }
  return all_equal ? EXIT_SUCCESS : EXIT_FAILURE;
}
