// Stands for MLIR's header, which the wheel does not have: XLA's headers only pass this type on, and the plugin calls none that does.
#pragma once

namespace mlir {
class ModuleOp {
  void* operation = nullptr;
};
} // namespace mlir
