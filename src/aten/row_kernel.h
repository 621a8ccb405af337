// What the kernels of rows have in common: they record calls that have been taken apart.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>

#include <optional>
#include <vector>

#include "aten/boxed_call.h"
#include "core/errors.h"
#include "trace/torch_errors.h"

namespace torch_xla {

// The boxed kernel of a row. An unboxed one beside it (unboxed.cpp) takes a call apart by itself, without a reference to its tensors.
class RowKernel : public c10::OperatorKernel {
 public:
  // Records a call that needs nothing else, and counts it. Nullopt, and nothing recorded, for other calls: complex ones, those for the CPU,
  // and those that raise. The boxed kernel must take these. The tensors stay the call's.
  virtual std::optional<std::vector<at::Tensor>> try_record(BoxedCall& call) = 0;
  // By argument of the schema.
  const std::vector<ArgumentRole>& roles() const {
    return roles_;
  }

 protected:
  // The results of `record`; nullopt if it finds that the CPU must take the call, before it has recorded anything.
  template <typename Record>
  static std::optional<std::vector<at::Tensor>> try_call(Record record) {
    try {
      return record();
    } catch (const UserError& error) {
      if (error.kind() != ErrorKind::NotImplemented) {
        throw_as_torch_error(error);
      }
      return std::nullopt;
    }
  }

  std::vector<ArgumentRole> roles_;
};

} // namespace torch_xla
