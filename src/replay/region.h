// Region: a part of a program that is recorded once; each call appends it to the trace as a whole, like a graph of torch.compile.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "recording/capture.h"

namespace torch_xla {

// Immutable. Tensors from outside keep their values at take_region().
struct Region {
  // A result: a new tensor, an argument, an earlier result, or a view of a new storage that other results may share.
  struct Result {
    enum class Kind { kNew, kArgument, kResult, kView } kind = Kind::kNew;
    size_t index = 0; // of the argument, the result or the storage
    Dims strides; // of kNew (empty: row-major) and kView
    Dims sizes = {}; // of kView
    int64_t offset = 0; // of kView
  };

  int device = 0;
  size_t num_arguments = 0;
  size_t num_storages = 0;
  Body body; // outputs: the new results, in their order, then the contents of the storages and of the written arguments
  std::vector<Result> results;
  std::vector<size_t> written; // arguments
  bool is_told_at_call = false; // an operation may raise: record_region() waits for its errors
};

// A region that computes `results` from `arguments`, with the capture's writes to the arguments. Throws as Capture::take().
Region take_region(Capture& capture, const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results);
// Appends the region to its device's trace, with new random numbers, and returns its results. Throws UserError for arguments that differ
// from the region's in number, device, dtype or shape, and if its linear algebra has no result for them.
std::vector<at::Tensor> record_region(const Region& region, const std::vector<at::Tensor>& arguments);

} // namespace torch_xla
