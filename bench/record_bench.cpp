// What recording costs: `add` of two device tensors against eager's `add` of one-element CPU tensors, and a sync that hits the program
// cache.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "program/sync.h"

namespace {

using Clock = std::chrono::steady_clock;

double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// Nanoseconds of one add, median of 200 batches of 500; a device batch is synced outside the time.
double time_add(const at::Tensor& a, const at::Tensor& b, bool device) {
  std::vector<double> batches;
  for (int batch = 0; batch < 200; ++batch) {
    Clock::time_point start = Clock::now();
    for (int i = 0; i < 500; ++i) {
      at::Tensor c = at::add(a, b);
    }
    batches.push_back(nanoseconds_since(start) / 500);
    if (device) {
      torch_xla::sync(0, true);
    }
  }
  std::nth_element(batches.begin(), batches.begin() + 100, batches.end());
  return batches[100];
}

// Nanoseconds of a sync that finds its program, for a chain of n adds; median of 100.
double time_sync(const at::Tensor& a, int n) {
  std::vector<double> times;
  for (int turn = 0; turn < 110; ++turn) {
    at::Tensor x = a;
    for (int i = 0; i < n; ++i) {
      x = at::add(x, a);
    }
    torch_xla::wait_device_ops(0);
    Clock::time_point start = Clock::now();
    torch_xla::sync(0);
    times.push_back(nanoseconds_since(start));
    torch_xla::wait_device_ops(0);
  }
  times.erase(times.begin(), times.begin() + 10);
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  return times[50];
}

} // namespace

int main() {
  auto options = at::TensorOptions().dtype(at::kFloat);
  at::Tensor cpu = at::ones({1}, options);
  at::Tensor xla = at::ones({1}, options.device(at::Device(at::DeviceType::PrivateUse1, 0)));
  for (int round = 0; round < 3; ++round) {
    double eager = time_add(cpu, cpu, false);
    double recorded = time_add(xla, xla, true);
    std::printf("add: eager %.0f ns, recorded %.0f ns, ratio %.2f\n", eager, recorded, recorded / eager);
  }
  for (int n : {1, 100, 1000}) {
    double t = time_sync(xla, n);
    std::printf("sync with %d nodes: %.1f us (limit %.1f us)\n", n, t / 1e3, 20 + 0.1 * n);
  }
  return 0;
}
