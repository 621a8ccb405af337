// Widening of a pattern by differing offsets, and the pattern's graph.
#include "program/offset_pattern.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/errors.h"

namespace torch_xla {

OffsetPattern OffsetPattern::widened(const std::vector<int64_t>& offsets) const {
  XLA_ASSERT(offsets.size() == fixed_.size(), "views of traces with one key");
  OffsetPattern wider(offsets);
  std::map<std::tuple<int32_t, int64_t, int64_t>, int32_t> shared; // equal before and now
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (number_[i] >= 0 || offsets[i] != fixed_[i]) {
      auto [at, is_new] = shared.try_emplace({number_[i], fixed_[i], offsets[i]}, wider.num_numbers_);
      wider.num_numbers_ += is_new;
      wider.number_[i] = at->second;
    }
  }
  return wider;
}

bool OffsetPattern::matches(const std::vector<int64_t>& offsets) const {
  const std::vector<uint64_t> numbers = this->numbers(offsets);
  for (size_t i = 0; i < offsets.size(); ++i) {
    int64_t wanted = number_[i] < 0 ? fixed_[i] : static_cast<int64_t>(numbers[static_cast<size_t>(number_[i])]);
    if (offsets[i] != wanted) {
      return false;
    }
  }
  return true;
}

std::vector<uint64_t> OffsetPattern::numbers(const std::vector<int64_t>& offsets) const {
  std::vector<uint64_t> numbers(static_cast<size_t>(num_numbers_));
  for (size_t i = 0; i < number_.size(); ++i) {
    if (number_[i] >= 0) {
      numbers[static_cast<size_t>(number_[i])] = static_cast<uint64_t>(offsets[i]);
    }
  }
  return numbers;
}

void OffsetPattern::apply(Graph& graph) const {
  if (num_numbers_ == 0) {
    return;
  }
  std::vector<ValueId> values;
  for (int32_t n = 0; n < num_numbers_; ++n) {
    values.push_back(graph.add_scalar(DType::I64));
  }
  size_t next = 0;
  for (Node& node : graph.nodes) {
    if (node.op->kind != OpKind::kView && node.op->kind != OpKind::kViewUpdate) {
      continue;
    }
    int32_t number = number_[next++];
    if (number >= 0) {
      node.attrs[kViewOffset] = int64_t{0};
      node.operands.push_back(values[static_cast<size_t>(number)]);
    }
  }
}

} // namespace torch_xla
