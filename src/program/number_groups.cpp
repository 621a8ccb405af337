// Groups of numbers, and the graph with one number of each.
#include "program/number_groups.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "core/errors.h"

namespace torch_xla {

NumberGroups NumberGroups::of_equal(const Graph& graph, const std::vector<uint64_t>& numbers) {
  NumberGroups one;
  one.group_.resize(numbers.size());
  return one.refined(graph, numbers);
}

NumberGroups NumberGroups::refined(const Graph& graph, const std::vector<uint64_t>& numbers) const {
  XLA_ASSERT(numbers.size() == graph.scalars.size(), "numbers of a trace");
  if (group_.empty()) {
    return {};
  }
  NumberGroups finer;
  std::map<std::tuple<size_t, DType, uint64_t>, size_t> known; // in one group so far, and equal here
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto [at, is_new] = known.try_emplace({group_[i], graph.type(graph.scalars[i]).dtype, numbers[i]}, known.size());
    if (is_new) {
      finer.first_.push_back(i);
    }
    finer.group_.push_back(at->second);
  }
  return finer;
}

bool NumberGroups::hold(const std::vector<uint64_t>& numbers) const {
  for (size_t i = 0; i < group_.size(); ++i) {
    if (numbers[i] != numbers[first_[group_[i]]]) {
      return false;
    }
  }
  return true;
}

std::vector<uint64_t> NumberGroups::take(std::vector<uint64_t> numbers) const {
  if (group_.empty()) {
    return numbers;
  }
  std::vector<uint64_t> taken;
  std::transform(first_.begin(), first_.end(), std::back_inserter(taken), [&](size_t i) { return numbers[i]; });
  return taken;
}

void NumberGroups::apply(Graph& graph) const {
  if (group_.empty()) {
    return;
  }
  std::unordered_map<ValueId, ValueId> instead;
  for (size_t i = 0; i < group_.size(); ++i) {
    instead[graph.scalars[i]] = graph.scalars[first_[group_[i]]];
  }
  for (Node& node : graph.nodes) {
    for (ValueId& operand : node.operands) {
      auto found = instead.find(operand);
      operand = found == instead.end() ? operand : found->second;
    }
  }
  std::vector<ValueId> left;
  std::transform(first_.begin(), first_.end(), std::back_inserter(left), [&](size_t i) { return graph.scalars[i]; });
  for (size_t i = 0; i < left.size(); ++i) {
    graph.values[left[i]].index = static_cast<int32_t>(i);
  }
  graph.scalars = std::move(left);
}

} // namespace torch_xla
