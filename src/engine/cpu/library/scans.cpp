// A block of columns at a time keeps its running results, in ATen's accumulation type. Threads share the blocks.
#include "engine/cpu/library/scans.h"

#include <ATen/AccumulateType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <functional>

#include "engine/cpu/cost.h"
#include "engine/cpu/threads/team.h"
#include "ir/strides.h"

namespace torch_xla::cpu {
namespace {

constexpr int64_t kBlockColumns = 64;
constexpr int64_t kFewestColumns = 8; // below, ATen's chain of sums in one row is as fast
constexpr size_t kMaxDim = 3;

// Scans one block: `rows` rows of `columns` numbers, `stride` apart.
template <typename T, typename Operation>
void scan_block(T* __restrict to, const T* __restrict from, int64_t rows, int64_t columns, int64_t stride) {
  using Kept = at::acc_type<T, /*is_cuda=*/false>;
  std::array<Kept, kBlockColumns> kept;
  kept.fill(std::is_same_v<Operation, std::multiplies<>> ? Kept(1) : Kept(0));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      kept[static_cast<size_t>(c)] = Operation()(kept[static_cast<size_t>(c)], static_cast<Kept>(from[row * stride + c]));
      to[row * stride + c] = static_cast<T>(kept[static_cast<size_t>(c)]);
    }
  }
}

template <typename T, typename Operation>
void scan_as(const at::Tensor& self, const at::Tensor& out, int64_t dim) {
  const int64_t rows = self.size(dim);
  const int64_t columns = self.stride(dim);
  const int64_t blocks = (columns + kBlockColumns - 1) / kBlockColumns; // of one outer index
  const int64_t units = self.numel() / (rows * columns) * blocks;
  const int64_t grain = std::max<int64_t>(1, kMovedPerThread / (rows * std::min(columns, kBlockColumns)));
  const T* from = self.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  share_out(units, grain, self.numel() / kMovedPerThread, [=](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit % blocks * kBlockColumns;
      const int64_t at = unit / blocks * rows * columns + column;
      scan_block<T, Operation>(to + at, from + at, rows, std::min(kBlockColumns, columns - column), columns);
    }
  });
}

template <typename Operation, int64_t kDim>
void scan(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  switch (operands[0].scalar_type()) {
    case at::kFloat:
      return scan_as<float, Operation>(operands[0], outs[0], kDim);
    case at::kDouble:
      return scan_as<double, Operation>(operands[0], outs[0], kDim);
    case at::kBFloat16:
      return scan_as<c10::BFloat16, Operation>(operands[0], outs[0], kDim);
    case at::kHalf:
      return scan_as<c10::Half, Operation>(operands[0], outs[0], kDim);
    default:
      return scan_as<int64_t, Operation>(operands[0], outs[0], kDim);
  }
}

template <typename Operation>
constexpr std::array<CallKernel, kMaxDim> kScans = {scan<Operation, 0>, scan<Operation, 1>, scan<Operation, 2>};

template <typename Operation>
CallKernel choose(const CallSpec& call) {
  const Type& self = call.operands[0].type;
  const DType dtype = self.dtype;
  const bool is_known = dtype == DType::F32 || dtype == DType::F64 || dtype == DType::BF16 || dtype == DType::F16 || dtype == DType::I64;
  const int64_t given = std::get<int64_t>(call.attrs[0]);
  const auto rank = static_cast<int64_t>(self.dims.size());
  const auto dim = static_cast<size_t>(given < 0 ? given + rank : given);
  if (!is_known || call.results[0].type.dtype != dtype || !is_row_major(call.operands[0]) || !is_row_major(call.results[0]) ||
      self.numel() == 0 || dim >= std::min(kMaxDim, self.dims.size()) || contiguous_strides(self.dims)[dim] < kFewestColumns) {
    return nullptr;
  }
  return kScans<Operation>[dim];
}

} // namespace

CallKernel choose_running_sum(const CallSpec& call) {
  return choose<std::plus<>>(call);
}

CallKernel choose_running_product(const CallSpec& call) {
  return choose<std::multiplies<>>(call);
}

Work work_of_scan(CallKernel, const CallSpec& call) {
  return call.operands[0].type.numel() / kMovedPerThread;
}

} // namespace torch_xla::cpu
