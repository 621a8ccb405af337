// A program that only names the device: linking the library has registered it, as `import torch_xla` does.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <dlfcn.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "check.h"

namespace {

void test_names() {
  EXPECT(c10::Device("xla:0") == c10::Device(c10::kPrivateUse1, 0));
  EXPECT(at::getAccelerator() == c10::kPrivateUse1);
  EXPECT(dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr);
}

void test_values() {
  at::Tensor x = at::arange(6, c10::Device("xla")).to(at::kFloat).view({2, 3});
  EXPECT(x.device() == c10::Device("xla:0"));
  EXPECT(at::equal((x.mm(x.t()) + 1).cpu(), at::tensor({6.0F, 15.0F, 15.0F, 51.0F}).view({2, 2})));
}

void test_seeds() {
  at::manual_seed(7);
  at::Tensor first = at::randn({4}, c10::Device("xla"));
  at::manual_seed(7);
  EXPECT(at::equal(first, at::randn({4}, c10::Device("xla"))));
  EXPECT(!at::equal(first, at::randn({4}, c10::Device("xla"))));
}

void test_autocast() {
  EXPECT(at::autocast::get_autocast_dtype(c10::kPrivateUse1) == at::kBFloat16);
  at::Tensor x = at::ones({2, 2}, c10::Device("xla"));
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, true);
  EXPECT(x.mm(x).scalar_type() == at::kBFloat16);
  EXPECT(x.mm(x).exp().scalar_type() == at::kFloat);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(c10::kPrivateUse1, false);
  EXPECT(x.mm(x).scalar_type() == at::kFloat);
}

// x' = 2 x of sum(x * x), recorded and run by several threads at once.
void train(float number) {
  for (int step = 0; step < 20; ++step) {
    at::Tensor x = at::full({8}, number, c10::Device("xla")).requires_grad_();
    (x * x).sum().backward();
    EXPECT(at::equal(x.grad().cpu(), at::full({8}, 2 * number)));
  }
}

void test_threads() {
  std::vector<std::thread> threads;
  for (int number = 1; number <= 4; ++number) {
    threads.emplace_back(train, static_cast<float>(number));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

} // namespace

int main() {
  test_names();
  test_values();
  test_seeds();
  test_autocast();
  test_threads();
  return failures();
}
