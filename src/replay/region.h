// Region: a part of a program that is recorded once and appended to the trace as a whole by each call, as the graphs of torch.compile are.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "recording/capture.h"

namespace torch_xla {

// Immutable once it is taken. The tensors of its body that come from outside keep their values of that time.
struct Region {
  // What a result is: a new tensor, one of the arguments, an earlier result, or a view of a new storage that other results may share.
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
  Body body; // its graph gives the new results, in their order, the contents of the storages, and those of the arguments that it writes
  std::vector<Result> results;
  std::vector<size_t> written; // arguments
  bool is_told_at_call = false; // an error of its operations: record_region() waits for them
};

// What gives `results` from `arguments`, and writes the arguments as it was done since the capture began. Throws as Capture::take().
Region take_region(Capture& capture, const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results);
// Appends the region to its device's trace, with new random numbers, and returns its results. Throws UserError for arguments of another
// number, device, dtype or shape than those it was taken with, and for what linear algebra within has no result for.
std::vector<at::Tensor> record_region(const Region& region, const std::vector<at::Tensor>& arguments);

} // namespace torch_xla
