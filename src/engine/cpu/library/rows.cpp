// A row is copied by memcpy, or added by a loop over its numbers. Threads share the rows to take. To write, each thread has its own
// columns, or its own rows of the result if columns are few: so only one thread writes a number, in the order of the index.
#include "engine/cpu/library/rows.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/cpu/cost.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

// Columns from which on threads have columns of their own: two cache lines of float32.
constexpr int64_t kColumnsToShare = 32;

bool is_index(const CallSpec::Tensor& t) {
  return t.type.dtype == DType::I64 || t.type.dtype == DType::I32;
}

bool has_rows(const CallSpec::Tensor& t) {
  return t.type.numel() > 0 && is_row_major(t);
}

// The first operand after self that is not None.
template <typename IsNone, typename Operands>
size_t find_index(const Operands& operands, IsNone is_none) {
  size_t at = 1;
  while (at < operands.size() && is_none(operands[at])) {
    ++at;
  }
  return at;
}

size_t find_index(const std::vector<at::Tensor>& operands) {
  return find_index(operands, [](const at::Tensor& t) { return !t.defined(); });
}

bool names_rows(const CallSpec& call, size_t num_written) {
  const auto& operands = call.operands;
  const size_t at = find_index(operands, [](const CallSpec::Tensor& t) { return t.type.dtype == DType::Undefined; });
  return at + 1 + num_written == operands.size() && is_index(operands[at]) && has_rows(operands[at]) && has_rows(operands[0]) &&
      at <= operands[0].type.dims.size() && has_rows(call.results[0]);
}

bool are_within(const at::Tensor& index, int64_t least, int64_t n) {
  auto check = [&]<typename T>(const T* i) { return std::all_of(i, i + index.numel(), [&](T row) { return row >= least && row < n; }); };
  return index.scalar_type() == at::kLong ? check(index.const_data_ptr<int64_t>()) : check(index.const_data_ptr<int32_t>());
}

// The index before its expansion.
at::Tensor row_index(at::Tensor expanded) {
  while (expanded.dim() > 1) {
    expanded = expanded.select(1, 0);
  }
  return expanded;
}

// Self as `outer` times `rows` rows; `index` names `num_named` of them.
struct Rows {
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t columns = 1;
  int64_t num_named = 0;
  at::Tensor index; // of int64
  const int64_t* named = nullptr;

  Rows(const at::Tensor& self, int64_t dim, const at::Tensor& indices)
      : rows(self.size(dim)), num_named(indices.numel()), index(indices.to(at::kLong)), named(index.const_data_ptr<int64_t>()) {
    for (int64_t d = 0; d < self.dim(); ++d) {
      (d < dim ? outer : columns) *= d == dim ? 1 : self.size(d);
    }
  }

  int64_t row(int64_t at) const {
    return named[at] < 0 ? named[at] + rows : named[at];
  }
};

Rows rows_of(const std::vector<at::Tensor>& operands) {
  const size_t at = find_index(operands);
  return Rows(operands[0], static_cast<int64_t>(at) - 1, operands[at]);
}

// Calls write(place in the result, place in the source, number of columns) for each named row or a part of it; places count numbers.
template <typename Write>
void for_each_named(const Rows& rows, const Write& write) {
  const bool shares_columns = rows.columns >= kColumnsToShare;
  const int64_t shared = shares_columns ? rows.columns : rows.rows;
  const int64_t numbers = rows.outer * rows.num_named * rows.columns;
  const int64_t worth = numbers / kMovedPerThread;
  const int64_t grain = std::max(shares_columns ? kColumnsToShare / 2 : int64_t{1}, worth ? shared / worth : shared);
  share_out(shared, grain, worth, [&](int64_t begin, int64_t end) {
    const int64_t first = shares_columns ? begin : 0;
    const int64_t columns = shares_columns ? end - begin : rows.columns;
    for (int64_t o = 0; o < rows.outer; ++o) {
      for (int64_t at = 0; at < rows.num_named; ++at) {
        const int64_t row = rows.row(at);
        if (shares_columns || (row >= begin && row < end)) {
          write((o * rows.rows + row) * rows.columns + first, (o * rows.num_named + at) * rows.columns + first, columns);
        }
      }
    }
  });
}

template <typename T>
void add_row(T* __restrict to, const T* __restrict from, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    to[c] += from[c];
  }
}

template <typename T>
void add_as(const Rows& rows, const at::Tensor& out, const at::Tensor& added) {
  T* to = out.mutable_data_ptr<T>();
  const T* from = added.const_data_ptr<T>();
  for_each_named(rows, [=](int64_t at, int64_t added_at, int64_t columns) { add_row(to + at, from + added_at, columns); });
}

bool has_adder(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::BF16 || dtype == DType::F16 || dtype == DType::I64 ||
      dtype == DType::I32;
}

void add(const Rows& rows, const at::Tensor& out, const at::Tensor& added) {
  switch (out.scalar_type()) {
    case at::kFloat:
      return add_as<float>(rows, out, added);
    case at::kDouble:
      return add_as<double>(rows, out, added);
    case at::kBFloat16:
      return add_as<c10::BFloat16>(rows, out, added);
    case at::kHalf:
      return add_as<c10::Half>(rows, out, added);
    case at::kLong:
      return add_as<int64_t>(rows, out, added);
    default:
      return add_as<int32_t>(rows, out, added);
  }
}

} // namespace

bool takes_rows(const CallSpec& call) {
  return names_rows(call, 0);
}

bool writes_rows(const CallSpec& call) {
  const Type& self = call.operands[0].type;
  const CallSpec::Tensor& written = call.operands.back();
  return names_rows(call, 1) && written.type.dtype == self.dtype && has_rows(written) &&
      written.type.numel() * self.dims[call.operands.size() - 3] == self.numel() * call.operands[call.operands.size() - 2].type.numel();
}

bool adds_rows(const CallSpec& call) {
  return writes_rows(call) && has_adder(call.results[0].type.dtype);
}

bool adds_expanded_rows(const CallSpec& call) {
  const CallSpec::Tensor& self = call.operands[0];
  const CallSpec::Tensor& index = call.operands[1];
  const CallSpec::Tensor& added = call.operands[2];
  const Dims& dims = index.type.dims;
  if (dims.size() < 2 || added.type.dims != dims || !is_index(index) || !has_adder(self.type.dtype)) {
    return false;
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if ((dims[d] > 1 && index.strides[d] != (d == 0)) || (d > 0 && self.type.dims[d] != dims[d])) {
      return false;
    }
  }
  return has_rows(self) && has_rows(added) && has_rows(call.results[0]);
}

bool adds_embedding_rows(const CallSpec& call) {
  return is_index(call.operands[1]) && has_rows(call.operands[0]) && has_rows(call.operands[1]) && has_rows(call.results[0]) &&
      has_adder(call.results[0].type.dtype);
}

bool are_rows(const std::vector<at::Tensor>& operands) {
  const size_t at = find_index(operands);
  return are_within(operands[at], 0, operands[0].size(static_cast<int64_t>(at) - 1));
}

bool are_rows_from_both_ends(const std::vector<at::Tensor>& operands) {
  const size_t at = find_index(operands);
  const int64_t n = operands[0].size(static_cast<int64_t>(at) - 1);
  return are_within(operands[at], -n, n);
}

bool are_expanded_rows(const std::vector<at::Tensor>& operands) {
  return are_within(row_index(operands[1]), 0, operands[0].size(0));
}

void take_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const Rows rows = rows_of(operands);
  const auto bytes = static_cast<size_t>(rows.columns) * operands[0].element_size();
  const auto* from = static_cast<const char*>(operands[0].const_data_ptr());
  auto* to = static_cast<char*>(outs[0].mutable_data_ptr());
  auto copy = [&](int64_t begin, int64_t end, auto size) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / rows.num_named * rows.rows + rows.row(i % rows.num_named);
      std::memcpy(to + static_cast<size_t>(i) * size, from + static_cast<size_t>(row) * size, size);
    }
  };
  const int64_t taken = rows.outer * rows.num_named;
  const int64_t grain = std::max<int64_t>(1, kMovedPerThread / rows.columns);
  share_out(taken, grain, taken * rows.columns / kMovedPerThread, [&](int64_t begin, int64_t end) {
    switch (bytes) { // a constant size is one move
      case sizeof(float):
        return copy(begin, end, std::integral_constant<size_t, sizeof(float)>());
      case sizeof(double):
        return copy(begin, end, std::integral_constant<size_t, sizeof(double)>());
      default:
        return copy(begin, end, bytes);
    }
  });
}

void write_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  const auto size = static_cast<int64_t>(outs[0].element_size());
  auto* to = static_cast<char*>(outs[0].mutable_data_ptr());
  const auto* from = static_cast<const char*>(operands.back().const_data_ptr());
  for_each_named(rows_of(operands), [=](int64_t at, int64_t written_at, int64_t columns) {
    std::memcpy(to + at * size, from + written_at * size, static_cast<size_t>(columns * size));
  });
}

void add_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  add(rows_of(operands), outs[0], operands.back());
}

void add_expanded_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  add(Rows(outs[0], 0, row_index(operands[1])), outs[0], operands[2]);
}

void add_embedding_rows(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  outs[0].zero_();
  add(Rows(outs[0], 0, operands[1]), outs[0], operands[0]);
}

} // namespace torch_xla::cpu
