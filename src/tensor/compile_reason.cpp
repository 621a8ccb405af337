// The comparison of two traces: the nearest earlier one by its operations, then the first node that differs.
#include "tensor/compile_reason.h"

#include <algorithm>
#include <tuple>

#include "core/errors.h"
#include "core/metrics.h"
#include "ir/computation.h"
#include "tensor/api.h"
#include "tensor/source_line.h"

namespace torch_xla {
namespace {

using Kind = CompileReason::Kind;

// What is remembered for comparison: enough for the programs of a training loop and its evaluation, at about 250 bytes a node.
constexpr size_t kMaxTraces = 16;
constexpr size_t kMaxNodes = 16384;
constexpr size_t kMaxReasons = 256;

// How many nodes from the front, and behind them from the back, have the same operation.
struct Overlap {
  size_t front = 0;
  size_t back = 0;
};

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

// Of the nodes that have the same operation, those that are equal in their arguments, and in the types of what they take and give.
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

// Of the body of a loop its size and what tells it from others.
std::string attribute_text(const Attr& attr) {
  const auto* body = std::get_if<ComputationRef>(&attr);
  return body ? str("a body of ", (*body)->graph.nodes.size(), " operations, ", (*body)->hash.hex().substr(0, 8)) : attr_text(attr);
}

// The difference of two nodes of one operation, found in `now` and `before`; false where there is none.
class NodeComparison {
 public:
  NodeComparison(const Graph& now, const Graph& before, size_t node)
      : now_(now), before_(before), a_(now.nodes[node]), b_(before.nodes[node]) {}

  bool find(CompileReason& reason) const {
    if (a_.operands.size() != b_.operands.size()) {
      return tell(reason, Kind::kOperands, "has", std::to_string(a_.operands.size()), std::to_string(b_.operands.size()), " operands");
    }
    for (size_t i = 0; i < a_.operands.size(); ++i) {
      if (find_value(reason, str("takes as operand ", i), a_.operands[i], b_.operands[i])) {
        return true;
      }
    }
    for (size_t i = 0; i < std::max(a_.attrs.size(), b_.attrs.size()); ++i) {
      std::string is = i < a_.attrs.size() ? attribute_text(a_.attrs[i]) : "none";
      std::string was = i < b_.attrs.size() ? attribute_text(b_.attrs[i]) : "none";
      if (is != was) {
        return tell(reason, Kind::kConstant, attribute_name(i), is, was, "");
      }
    }
    for (int32_t i = 0; i < std::min(a_.num_results, b_.num_results); ++i) {
      if (find_value(reason, "gives", a_.result(i), b_.result(i))) {
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

  // Two tensors or two numbers.
  bool are_alike(ValueId a, ValueId b) const {
    auto is_number = [](const Graph& graph, ValueId v) { return graph.values[v].kind == ValueKind::kScalar; };
    return a != kNoValue && b != kNoValue && is_number(now_, a) == is_number(before_, b);
  }

  bool find_value(CompileReason& reason, const std::string& verb, ValueId a, ValueId b) const {
    std::string is = value_text(now_, a);
    std::string was = value_text(before_, b);
    if (is == was) {
      return false;
    }
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

// The first difference of the trace and an earlier one.
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

// The trace as a whole is known: its last operation stands for it.
void explain_known(const Trace& trace, const std::vector<int64_t>& lines_before, int device_before, CompileReason& reason) {
  if (device_before != reason.device) {
    reason.kind = Kind::kNewDevice;
    reason.what = str("the trace is known, but of xla:", device_before, "; each device has programs of its own");
  } else {
    reason.kind = Kind::kSettings;
    reason.what =
        "the trace is known; a switch is set otherwise (precision of products, XLA_FUSION), or the cache of programs has dropped it";
  }
  reason.line = trace.locations().back();
  reason.line_before = lines_before.back();
}

// The first value that lives now and is no output of the entry's last program. `lines_before` are those of the trace when it was compiled,
// empty where they are forgotten.
void find_alive_value(
    const Trace& trace,
    const ProgramEntry& entry,
    const ValueBits& alive,
    const std::vector<int64_t>& lines_before,
    CompileReason& reason) {
  reason.kind = Kind::kAliveValues;
  reason.what = "the trace is known, but other tensors are alive at its end";
  const ValueBits& outputs = entry.programs.back().output_bits;
  for (ValueId v : list_values(alive)) {
    const Node* node = trace.graph().find_producer(v);
    if (node && !has_value(outputs, v)) {
      reason.what += str(": the ", type_text(trace.graph().type(v)), " that ", node->op->name, " gave");
      auto number = static_cast<size_t>(trace.graph().values[v].index);
      reason.line = trace.locations()[number];
      reason.line_before = number < lines_before.size() ? lines_before[number] : -1;
      return;
    }
  }
}

} // namespace

const char* kind_text(Kind kind) {
  constexpr const char* kTexts[] = {
      "first", "unlike", "alive values", "operation", "shape", "dtype", "constant", "operands", "memory order", "new device", "settings"};
  return kTexts[static_cast<size_t>(kind)];
}

std::string reason_text(const CompileReason& reason) {
  std::string text = reason.what;
  std::string now = location_text(reason.line);
  std::string before = location_text(reason.line_before);
  if (!now.empty()) {
    text += "\n  at " + now;
  }
  if (!before.empty() && before != now) {
    text += "\n  before at " + before;
  }
  return str(text, "\n  cause of the sync: ", reason.cause, ", device: xla:", reason.device);
}

CompileHistory& CompileHistory::get() {
  static auto* history = new CompileHistory;
  return *history;
}

CompileReason CompileHistory::find(
    int device, const Trace& trace, const ProgramEntry& entry, const ValueBits& alive, const char* cause) const {
  CompileReason reason;
  reason.device = device;
  reason.nodes = trace.graph().nodes.size();
  reason.cause = cause;
  reason.time_ns = metrics::now_ns();
  std::lock_guard<std::mutex> lock(mutex_);
  const Remembered* nearest = find_nearest(device, trace);
  bool known = nearest && nearest->key == trace.key();
  reason.nodes_before = nearest ? nearest->graph.nodes.size() : 0;
  if (!entry.programs.empty()) {
    find_alive_value(trace, entry, alive, known ? nearest->lines : std::vector<int64_t>(), reason);
  } else if (known) {
    explain_known(trace, nearest->lines, nearest->device, reason);
  } else if (nearest) {
    find_difference(trace.graph(), trace.locations(), nearest->graph, nearest->lines, reason);
  } else {
    reason.kind = reasons_.empty() ? Kind::kFirst : Kind::kUnlike;
    reason.what = reasons_.empty() ? "the first program" : "a trace that has no operation in common with the last ones";
  }
  return reason;
}

// The one with the most operations in common; of several that with the most equal nodes, then the trace itself, then one of the device,
// then the latest. The caller holds the lock.
const CompileHistory::Remembered* CompileHistory::find_nearest(int device, const Trace& trace) const {
  const Remembered* nearest = nullptr;
  std::tuple<size_t, size_t, bool, bool> most;
  for (const Remembered& other : traces_) {
    Overlap overlap = compare_operations(trace.graph().nodes, other.graph.nodes);
    if (overlap.front + overlap.back == 0) {
      continue;
    }
    size_t equal = count_equal_nodes(trace.node_hashes(), other.node_hashes, overlap);
    std::tuple likeness(overlap.front + overlap.back, equal, other.key == trace.key(), other.device == device);
    if (!nearest || likeness > most) {
      most = likeness;
      nearest = &other;
    }
  }
  return nearest;
}

void CompileHistory::add(const Trace& trace, const CompileReason& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reason.kind != Kind::kAliveValues) {
    remember(reason.device, trace);
  }
  reasons_.push_back(reason);
  if (reasons_.size() > kMaxReasons) {
    reasons_.pop_front();
  }
}

void CompileHistory::add_restored(int device, const Trace& trace) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto is_it = [&](const Remembered& other) { return other.device == device && other.key == trace.key(); };
  if (std::none_of(traces_.begin(), traces_.end(), is_it)) {
    remember(device, trace);
  }
}

// The caller holds the lock.
void CompileHistory::remember(int device, const Trace& trace) {
  if (trace.graph().nodes.size() > kMaxNodes) {
    return;
  }
  traces_.push_front({device, trace.graph(), trace.locations(), trace.node_hashes(), trace.key()});
  num_nodes_ += trace.graph().nodes.size();
  while (traces_.size() > kMaxTraces || num_nodes_ > kMaxNodes) {
    num_nodes_ -= traces_.back().graph.nodes.size();
    traces_.pop_back();
  }
}

std::vector<CompileReason> CompileHistory::reasons() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {reasons_.begin(), reasons_.end()};
}

} // namespace torch_xla
