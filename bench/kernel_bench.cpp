// Time of typical kernels on one thread, in microseconds: of compiling (first call) and of running.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "../tests/cpp/spec_builder.h"

namespace torch_xla::cpu {

namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<float> numbers(int64_t n) {
  std::vector<float> v(n);
  uint32_t state = 1;
  for (float& x : v) {
    state = state * 1664525 + 1013904223;
    x = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  return v;
}

// The buffers are inputs first; the last one is the output.
void measure(const char* name, const SpecBuilder& b, std::vector<std::vector<float>> memory) {
  std::vector<void*> buffers;
  for (auto& m : memory) {
    buffers.push_back(m.data());
  }
  double start = now_us();
  Kernel fn = compile_kernel(b.spec);
  double compile = now_us() - start;
  double best = 1e30;
  for (int i = 0; i < 40; ++i) {
    start = now_us();
    fn(buffers.data(), nullptr, 0, b.spec.units());
    best = std::min(best, now_us() - start);
  }
  std::printf("%-28s compile %8.0f us   run %8.0f us\n", name, compile, best);
}

void elementwise(int64_t n) {
  SpecBuilder b(KernelForm::kPointwise, {}, {}, n);
  int x = b.load(DType::F32, b.dense());
  int two = b.constant(DType::F32, 2);
  int one = b.constant(DType::F32, 1);
  int t = b.op(Prim::kTanh, {b.op(Prim::kAdd, {b.op(Prim::kMul, {x, two}), one})});
  int product = b.op(Prim::kMul, {t, b.op(Prim::kLogistic, {x})});
  b.store(b.op(Prim::kSub, {product, b.op(Prim::kMul, {x, x})}), DType::F32, b.dense());
  measure("tanh(2x+1)*sigmoid(x)-x*x", b, {numbers(n), std::vector<float>(n)});
}

void softmax(int64_t rows, int64_t n) {
  SpecBuilder b(KernelForm::kRow, {rows}, {}, n);
  int x = b.load(DType::F32, b.dense());
  int e = b.op(Prim::kExp, {b.op(Prim::kSub, {x, b.op(Prim::kReduceMax, {x})})});
  b.store(b.op(Prim::kDiv, {e, b.op(Prim::kReduceSum, {e})}), DType::F32, b.dense());
  measure("softmax", b, {numbers(rows * n), std::vector<float>(rows * n)});
}

void layer_norm(int64_t rows, int64_t n) {
  SpecBuilder b(KernelForm::kRow, {rows}, {}, n);
  int x = b.load(DType::F32, b.dense());
  int scale = b.constant(DType::F32, 1.0 / n);
  int mean = b.op(Prim::kMul, {b.op(Prim::kReduceSum, {x}), scale});
  int centered = b.op(Prim::kSub, {x, mean});
  int sum = b.op(Prim::kReduceSum, {b.op(Prim::kMul, {centered, centered})});
  int variance = b.op(Prim::kAdd, {b.op(Prim::kMul, {sum, scale}), b.constant(DType::F32, 1e-5)});
  int y = b.op(Prim::kMul, {b.op(Prim::kMul, {centered, b.op(Prim::kRsqrt, {variance})}), b.load(DType::F32, b.per_inner())});
  b.store(b.op(Prim::kAdd, {y, b.load(DType::F32, b.per_inner())}), DType::F32, b.dense());
  measure("layer_norm", b, {numbers(rows * n), numbers(n), numbers(n), std::vector<float>(rows * n)});
}

void column_sum(int64_t rows, int64_t n) {
  SpecBuilder b(KernelForm::kColumn, {}, {rows}, n);
  int x = b.load(DType::F32, b.dense());
  b.store(b.op(Prim::kReduceSum, {x}), DType::F32, b.per_column());
  measure("column sum", b, {numbers(rows * n), std::vector<float>(n)});
}

// A chain of dependent operations and a reduction: what matters is the time of compiling.
void long_chain(int length) {
  SpecBuilder b(KernelForm::kRow, {}, {}, 16);
  int x = b.load(DType::F32, b.dense());
  int y = x;
  for (int i = 0; i < length; ++i) {
    y = b.op(i % 2 ? Prim::kAdd : Prim::kMul, {y, b.constant(DType::F32, i)});
  }
  b.store(b.op(Prim::kSub, {y, b.op(Prim::kReduceSum, {y})}), DType::F32, b.dense());
  measure("chain", b, {numbers(16), std::vector<float>(16)});
}

} // namespace

} // namespace torch_xla::cpu

int main() {
  using namespace torch_xla::cpu;
  elementwise(1 << 10);
  elementwise(1 << 22);
  softmax(65536, 128);
  layer_norm(65536, 128);
  softmax(2048, 4096);
  layer_norm(2048, 4096);
  column_sum(65536, 64);
  column_sum(4096, 1024);
  long_chain(1000);
  return 0;
}
