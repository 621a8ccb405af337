// Functions that generated code calls: Sleef's vector functions if PyTorch is in the process, else libm lane by lane.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/codegen/vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// Names and addresses of everything that call_external() may name; found once, when the first kernel is linked.
std::vector<std::pair<std::string, void*>> external_symbols();

// Operands are float or double.
Value* call_external(const Vec& v, Prim prim, DType dtype, llvm::ArrayRef<Value*> args);

} // namespace torch_xla::cpu
