// Constants and groups of numbers, and the graph with one number of each group.
#include "program/number_groups.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "core/errors.h"

namespace torch_xla {

NumberGroups NumberGroups::of_first_run(const Graph& graph, const std::vector<uint64_t>& numbers, const std::vector<bool>& changing) {
  NumberGroups before; // one group of all that change
  before.first_.push_back(0);
  for (size_t i = 0; i < numbers.size(); ++i) {
    before.group_.push_back(changing[i] ? 0 : kConstant);
    before.value_.push_back(changing[i] ? 0 : numbers[i]);
  }
  return before.refined(graph, numbers);
}

NumberGroups NumberGroups::refined(const Graph& graph, const std::vector<uint64_t>& numbers) const {
  XLA_ASSERT(numbers.size() == graph.scalars.size(), "numbers of a trace");
  if (group_.empty()) {
    return {};
  }
  NumberGroups finer;
  std::map<std::tuple<uint64_t, uint64_t, DType, uint64_t>, size_t> known; // equal so far, and equal here
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool is_constant = group_[i] == kConstant && value_[i] == numbers[i];
    finer.value_.push_back(is_constant ? numbers[i] : 0);
    if (is_constant) {
      finer.group_.push_back(kConstant);
      continue;
    }
    auto [at, is_new] = known.try_emplace({group_[i], value_[i], graph.type(graph.scalars[i]).dtype, numbers[i]}, known.size());
    if (is_new) {
      finer.first_.push_back(i);
    }
    finer.group_.push_back(at->second);
  }
  return finer;
}

uint64_t NumberGroups::wanted(size_t number, const std::vector<uint64_t>& numbers) const {
  return group_[number] == kConstant ? value_[number] : numbers[first_[group_[number]]];
}

std::optional<size_t> NumberGroups::find_misfit(const std::vector<uint64_t>& numbers) const {
  for (size_t i = 0; i < group_.size(); ++i) {
    if (numbers[i] != wanted(i, numbers)) {
      return i;
    }
  }
  return std::nullopt;
}

void NumberGroups::take(const std::vector<uint64_t>& numbers, std::vector<uint64_t>& taken) const {
  if (group_.empty()) {
    taken.insert(taken.end(), numbers.begin(), numbers.end());
    return;
  }
  std::transform(first_.begin(), first_.end(), std::back_inserter(taken), [&](size_t i) { return numbers[i]; });
}

void NumberGroups::apply(Graph& graph) const {
  if (group_.empty()) {
    return;
  }
  std::unordered_map<ValueId, ValueId> instead;
  std::vector<ValueId> constants;
  std::vector<std::optional<uint64_t>> fixed(first_.size());
  for (size_t i = 0; i < group_.size(); ++i) {
    if (group_[i] == kConstant) {
      constants.push_back(graph.scalars[i]);
      fixed.emplace_back(value_[i]);
    } else {
      instead[graph.scalars[i]] = graph.scalars[first_[group_[i]]];
    }
  }
  for (Node& node : graph.nodes) {
    for (ValueId& operand : node.operands) {
      auto found = instead.find(operand);
      operand = found == instead.end() ? operand : found->second;
    }
  }
  std::vector<ValueId> left;
  std::transform(first_.begin(), first_.end(), std::back_inserter(left), [&](size_t i) { return graph.scalars[i]; });
  left.insert(left.end(), constants.begin(), constants.end());
  for (size_t i = 0; i < left.size(); ++i) {
    graph.values[left[i]].index = static_cast<int32_t>(i);
  }
  graph.scalars = std::move(left);
  graph.fixed_scalars = std::move(fixed);
}

} // namespace torch_xla
