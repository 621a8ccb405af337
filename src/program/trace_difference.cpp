// The comparison of two traces, node by node, up to the first difference.
#include "program/trace_difference.h"

#include <algorithm>
#include <string>

#include "core/errors.h"
#include "ir/computation.h"

namespace torch_xla {
namespace {

using Kind = CompileReason::Kind;

std::string value_text(const Graph& graph, ValueId v) {
  if (v == kNoValue) {
    return "None";
  }
  if (graph.values[v].kind != ValueKind::kScalar) {
    return type_text(graph.type(v));
  }
  DType dtype = graph.type(v).dtype;
  return str(dtype == DType::Bool ? "a " : "an ", dtype_name(dtype), " number");
}

// For a loop's body: its size and its identity.
std::string attribute_text(const Attr& attr) {
  const auto* body = std::get_if<ComputationRef>(&attr);
  return body ? str("a body of ", (*body)->graph.nodes.size(), " operations, ", (*body)->hash.hex().substr(0, 8)) : attr_text(attr);
}

// The difference of two nodes with the same operation, searched in `now` and `before`; false: none.
class NodeComparison {
 public:
  NodeComparison(const Graph& now, const Graph& before, size_t node)
      : now_(now), before_(before), a_(now.nodes[node]), b_(before.nodes[node]) {}

  bool find(CompileReason& reason) const {
    if (a_.operands.size() != b_.operands.size()) {
      return tell(reason, Kind::kOperands, "has", std::to_string(a_.operands.size()), std::to_string(b_.operands.size()), " operands");
    }
    for (size_t i = 0; i < a_.operands.size(); ++i) {
      if (find_value(reason, "takes as operand ", static_cast<int64_t>(i), a_.operands[i], b_.operands[i])) {
        return true;
      }
    }
    for (size_t i = 0; i < std::max(a_.attrs.size(), b_.attrs.size()); ++i) {
      if (find_attribute(reason, i)) {
        return true;
      }
    }
    for (int32_t i = 0; i < std::min(a_.num_results, b_.num_results); ++i) {
      if (find_value(reason, "gives", -1, a_.result(i), b_.result(i))) {
        return true;
      }
    }
    bool same = std::equal(a_.operands.begin(), a_.operands.end(), b_.operands.begin());
    return !same && tell(reason, Kind::kOperands, "takes", "other tensors of the same shapes as operands", "", "");
  }

 private:
  std::string attribute_name(size_t i) const {
    bool view = a_.op->kind == OpKind::kView || a_.op->kind == OpKind::kViewUpdate;
    constexpr const char* kViewNames[] = {"has the base strides", "has the strides", "has the offset"};
    return view ? kViewNames[i] : str("has the argument ", i);
  }

  bool find_attribute(CompileReason& reason, size_t i) const {
    const Attr* a = i < a_.attrs.size() ? &a_.attrs[i] : nullptr;
    const Attr* b = i < b_.attrs.size() ? &b_.attrs[i] : nullptr;
    if (a && b && *a == *b) {
      return false;
    }
    std::string is = a ? attribute_text(*a) : "none";
    std::string was = b ? attribute_text(*b) : "none";
    return is != was && tell(reason, Kind::kConstant, attribute_name(i), is, was, "");
  }

  // Both tensors or both numbers.
  bool are_alike(ValueId a, ValueId b) const {
    auto is_number = [](const Graph& graph, ValueId v) { return graph.values[v].kind == ValueKind::kScalar; };
    return a != kNoValue && b != kNoValue && is_number(now_, a) == is_number(before_, b);
  }

  // `does`: the verb, followed by the operand's number unless that is -1.
  bool find_value(CompileReason& reason, const char* does, int64_t number, ValueId a, ValueId b) const {
    if (are_alike(a, b) && now_.type(a) == before_.type(b)) {
      return false;
    }
    std::string is = value_text(now_, a);
    std::string was = value_text(before_, b);
    if (is == was) {
      return false;
    }
    std::string verb = number < 0 ? does : str(does, number);
    bool input = a != kNoValue && now_.values[a].kind == ValueKind::kParameter;
    Kind kind = !are_alike(a, b) ? Kind::kOperands : now_.type(a).dtype != before_.type(b).dtype ? Kind::kDtype : Kind::kShape;
    return tell(reason, kind, input ? verb + " an input" : verb, is, was, "");
  }

  bool tell(
      CompileReason& reason, Kind kind, const std::string& verb, const std::string& is, const std::string& was, const std::string& noun)
      const {
    reason.kind = kind;
    reason.what = str(a_.op->name, " ", verb, " ", is, noun, was.empty() ? "" : ", before ", was);
    reason.operation = a_.op->name;
    reason.now = is;
    reason.before = was;
    return true;
  }

  const Graph& now_;
  const Graph& before_;
  const Node& a_;
  const Node& b_;
};

bool find_memory_order(const Graph& now, const Graph& before, CompileReason& reason) {
  for (size_t i = 0; i < std::min(now.parameters.size(), before.parameters.size()); ++i) {
    if (now.parameter_strides[i] != before.parameter_strides[i]) {
      reason.kind = Kind::kMemoryOrder;
      reason.what = str("an input ", type_text(now.type(now.parameters[i])), " lies in memory in another order than before");
      return true;
    }
    if (!same_sharding(now.parameter_shardings[i], before.parameter_shardings[i])) {
      reason.kind = Kind::kMemoryOrder;
      reason.what =
          str("an input ",
              type_text(now.type(now.parameters[i])),
              " is sharded as ",
              sharding_text(now.parameter_shardings[i]),
              ", before ",
              sharding_text(before.parameter_shardings[i]));
      return true;
    }
  }
  return false;
}

std::string count_text(size_t now, size_t before) {
  if (now == before) {
    return "";
  }
  return now > before ? str(" (", now - before, " operations more)") : str(" (", before - now, " operations less)");
}

int64_t find_line_of_operand(const Graph& graph, const std::vector<int64_t>& lines, size_t node) {
  int64_t line = -1;
  for (ValueId v : graph.nodes[node].operands) {
    if (v != kNoValue && graph.values[v].kind == ValueKind::kResult) {
      line = lines[static_cast<size_t>(graph.values[v].index)];
    }
  }
  return line;
}

} // namespace

Overlap compare_operations(const std::vector<Node>& a, const std::vector<Node>& b) {
  size_t most = std::min(a.size(), b.size());
  Overlap overlap;
  while (overlap.front < most && a[overlap.front].op == b[overlap.front].op) {
    ++overlap.front;
  }
  while (overlap.back < most - overlap.front && a[a.size() - 1 - overlap.back].op == b[b.size() - 1 - overlap.back].op) {
    ++overlap.back;
  }
  return overlap;
}

size_t count_equal_nodes(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b, const Overlap& overlap) {
  size_t equal = 0;
  for (size_t i = 0; i < overlap.front; ++i) {
    equal += a[i] == b[i];
  }
  for (size_t i = 1; i <= overlap.back; ++i) {
    equal += a[a.size() - i] == b[b.size() - i];
  }
  return equal;
}

void find_difference(
    const Graph& now,
    const std::vector<int64_t>& lines,
    const Graph& before,
    const std::vector<int64_t>& lines_before,
    CompileReason& reason) {
  auto line = [](const std::vector<int64_t>& list, size_t i) { return i < list.size() ? list[i] : -1; };
  auto name = [](const Graph& graph, size_t i) { return i < graph.nodes.size() ? graph.nodes[i].op->name : "the end of the trace"; };
  size_t same = compare_operations(now.nodes, before.nodes).front;
  size_t at = 0;
  while (at < same && !NodeComparison(now, before, at).find(reason)) {
    ++at;
  }
  reason.line = line(lines, at);
  reason.line_before = line(lines_before, at);
  if (at < same) {
    reason.what += count_text(now.nodes.size(), before.nodes.size());
    reason.line_of_operand = find_line_of_operand(now, lines, at);
    return;
  }
  if (same < std::max(now.nodes.size(), before.nodes.size())) {
    reason.kind = Kind::kOperation;
    reason.what = str(name(now, at), " comes, before ", name(before, at), count_text(now.nodes.size(), before.nodes.size()));
    reason.operation = reason.now = name(now, at);
    reason.before = name(before, at);
    return;
  }
  if (!find_memory_order(now, before, reason)) {
    reason.kind = Kind::kOperands;
    reason.what = "the trace has other inputs than before, which no operation shows";
  }
}

} // namespace torch_xla
