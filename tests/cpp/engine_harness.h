// Runs a graph on the CPU engine over ATen tensors, with fusion on and off, for the engine's tests.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "core/env.h"
#include "engine/engine.h"
#include "ir/builder.h"
#include "ops/registry.h"

namespace torch_xla::testing {

inline Dims dims_of(at::IntArrayRef sizes) {
  return {sizes.data(), sizes.size()};
}

inline Type type_of(const at::Tensor& t) {
  return {static_cast<DType>(t.scalar_type()), dims_of(t.sizes())};
}

inline EngineBufferRef upload(const at::Tensor& t) {
  return cpu_engine().upload(0, type_of(t), dims_of(t.strides()), t.const_data_ptr());
}

inline at::Tensor download(const EngineBufferRef& buffer) {
  const Dims& dims = buffer->type().dims;
  const Dims& strides = buffer->strides();
  auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(buffer->type().dtype));
  if (buffer->type().numel() == 0) {
    return at::empty({dims.data(), dims.size()}, options);
  }
  return at::from_blob(buffer->host_pointer(), {dims.data(), dims.size()}, {strides.data(), strides.size()}, options).clone();
}

// A graph under construction with its example inputs.
class Program {
 public:
  Ex input(const at::Tensor& t) {
    tensors_.push_back(t);
    Dims strides = t.is_contiguous() ? Dims() : dims_of(t.strides());
    return {&builder_, graph_.add_parameter(type_of(t), strides)};
  }
  Ex scalar(double v) {
    scalars_.push_back(std::bit_cast<uint64_t>(v));
    return {&builder_, graph_.add_scalar(DType::F64)};
  }
  Ex library(const char* name, std::vector<Ex> operands, Attrs attrs, std::vector<Type> results) {
    const Op* op = find_op(name);
    XLA_ASSERT(op, "no row ", name);
    std::vector<ValueId> ids;
    for (const Ex& e : operands) {
      ids.push_back(e.id());
    }
    return {&builder_, builder_.library(*op, ids, std::move(attrs), results)};
  }
  Builder& b() {
    return builder_;
  }
  Graph& graph() {
    return graph_;
  }

  std::shared_ptr<Executable> compile(const std::vector<Ex>& outputs, bool fusion = true, std::string* stored = nullptr) {
    graph_.outputs.clear();
    for (const Ex& e : outputs) {
      graph_.outputs.push_back(e.id());
    }
    env::set_fusion(fusion);
    CompileOptions options;
    options.keep_text = true;
    options.stored = stored;
    auto executable = cpu_engine().compile(graph_, options);
    env::set_fusion(true);
    return executable;
  }
  RunArgs args(bool donate = false) {
    RunArgs args;
    for (const at::Tensor& t : tensors_) {
      args.inputs.push_back(upload(t));
    }
    args.donated.assign(tensors_.size(), donate);
    args.scalars = scalars_;
    return args;
  }
  std::vector<at::Tensor> run(const std::vector<Ex>& outputs, bool fusion = true, bool donate = false) {
    return run(*compile(outputs, fusion), donate);
  }
  std::vector<at::Tensor> run(Executable& executable, bool donate = false) {
    std::vector<at::Tensor> results;
    for (int repeat = 0; repeat < 2; ++repeat) {
      RunArgs a = args(donate);
      executable.run(a);
      results.clear();
      for (const EngineBufferRef& buffer : a.outputs) {
        results.push_back(download(buffer));
      }
    }
    return results;
  }
  // Same results in all modes.
  void check(const std::vector<Ex>& outputs, const std::vector<at::Tensor>& expected, double tolerance = 1e-5) {
    for (int mode = 0; mode < 3; ++mode) {
      std::vector<at::Tensor> got = run(outputs, mode != 1, mode == 2);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(got[i].sizes(), expected[i].sizes());
        ASSERT_EQ(got[i].scalar_type(), expected[i].scalar_type());
        EXPECT_TRUE(at::allclose(got[i], expected[i], tolerance, tolerance, /*equal_nan=*/true))
            << "mode " << mode << " output " << i << " " << (got[i].to(at::kDouble) - expected[i].to(at::kDouble)).abs().max() << "\n"
            << compile(outputs, mode != 1)->text();
      }
    }
    check_restored(outputs);
  }
  // A program that is made of its file computes the same to the last bit.
  void check_restored(const std::vector<Ex>& outputs) {
    std::string stored;
    auto executable = compile(outputs, true, &stored);
    auto restored = cpu_engine().restore(stored, {});
    ASSERT_TRUE(restored);
    std::vector<at::Tensor> expected = run(*executable);
    std::vector<at::Tensor> got = run(*restored);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(got[i].nbytes(), expected[i].nbytes());
      EXPECT_TRUE(got[i].nbytes() == 0 || std::memcmp(got[i].const_data_ptr(), expected[i].const_data_ptr(), got[i].nbytes()) == 0);
    }
  }

 private:
  Graph graph_;
  Builder builder_{graph_};
  std::vector<at::Tensor> tensors_;
  std::vector<uint64_t> scalars_;
};

inline size_t count_steps(const Executable& executable) {
  std::string text = executable.text();
  size_t count = 0;
  for (size_t at = text.find("\nstep "); at != std::string::npos; at = text.find("\nstep ", at + 1)) {
    ++count;
  }
  return count;
}

} // namespace torch_xla::testing
