// Chooses the outputs that take parameters' memory.
#include <algorithm>

#include "engine/pjrt/executable.h"

namespace torch_xla::pjrt {
namespace {

// Values looked at for one output: an update of a weight is a short chain.
constexpr size_t kReach = 64;

class Aliases {
 public:
  Aliases(const Graph& graph, const std::vector<bool>& donated, WantedShardings& wanted)
      : graph_(graph), donated_(donated), wanted_(wanted), chosen_(graph.parameters.size(), -1), taken_(graph.values.size()) {}

  std::vector<int32_t> run() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      choose(static_cast<int32_t>(i), graph_.outputs[i]);
    }
    return std::move(chosen_);
  }

 private:
  bool is_free(ValueId v, const Type& type, const std::optional<ShardingRef>& wanted) const {
    const Value& value = graph_.values[v];
    auto index = static_cast<size_t>(value.index);
    bool is_donated = value.kind == ValueKind::kParameter && index < donated_.size() && donated_[index];
    if (!is_donated || chosen_[index] >= 0 || graph_.type(v) != type) {
      return false;
    }
    const ShardingRef& sharding = graph_.parameter_shardings[index];
    return wanted ? same_sharding(*wanted, sharding) : sharding != nullptr;
  }

  // Breadth first from the output through operands of its dims: updates of 16-bit weights are computed in float32.
  void choose(int32_t position, ValueId output) {
    if (taken_[output] || graph_.values[output].kind != ValueKind::kResult) {
      return; // listed twice, or no memory of its own
    }
    taken_[output] = true;
    std::vector<ValueId> reached{output};
    for (size_t at = 0; at < reached.size() && at < kReach; ++at) {
      ValueId v = reached[at];
      std::optional<ShardingRef>& wanted = wanted_[static_cast<size_t>(position)];
      if (is_free(v, graph_.type(output), wanted)) {
        const auto index = static_cast<size_t>(graph_.values[v].index);
        chosen_[index] = position;
        wanted = graph_.parameter_shardings[index];
        return;
      }
      add_operands(v, graph_.type(output).dims, reached);
    }
  }

  void add_operands(ValueId v, const Dims& dims, std::vector<ValueId>& reached) const {
    const Node* node = graph_.find_producer(v);
    if (!node) {
      return;
    }
    for (ValueId operand : node->operands) {
      bool fits = operand != kNoValue && graph_.type(operand).dims == dims;
      if (fits && std::find(reached.begin(), reached.end(), operand) == reached.end()) {
        reached.push_back(operand);
      }
    }
  }

  const Graph& graph_;
  const std::vector<bool>& donated_;
  WantedShardings& wanted_;
  std::vector<int32_t> chosen_; // by parameter
  std::vector<bool> taken_; // by value: an output that was looked at
};

} // namespace

std::vector<int32_t> choose_aliases(const Graph& graph, const std::vector<bool>& donated, WantedShardings& wanted) {
  return Aliases(graph, donated, wanted).run();
}

} // namespace torch_xla::pjrt
