// The one function that libtorch_xla_compiler.so exports, and the compiler that it returns.
#include <memory>
#include <string_view>

#include "core/codegen_sources.h"
#include "engine/cpu/codegen/jit.h"
#include "engine/cpu/kernel_compiler.h"

namespace torch_xla::cpu {
namespace {

class LlvmCompiler final : public KernelCompiler {
 public:
  std::string compile(const KernelSpec& spec, const std::string& name) const override {
    return compile_object(spec, name);
  }
  LinkedKernel link(const std::string& object, const std::string& name) const override {
    auto code = std::make_shared<const LinkedCode>(object, name);
    return {code->fn(), code->bytes(), code};
  }
  KernelListing list(const KernelSpec& spec) const override {
    return list_kernel_code(spec);
  }
};

} // namespace

extern "C" __attribute__((visibility("default"))) const KernelCompiler* torch_xla_kernel_compiler(const char* sources) {
  static const auto* compiler = new LlvmCompiler;
  return std::string_view(sources) == kCodegenSources ? compiler : nullptr;
}

} // namespace torch_xla::cpu
