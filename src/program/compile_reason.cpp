// Why a program was compiled: the nearest trace compiled before it, and the difference.
#include "program/compile_reason.h"

#include <algorithm>
#include <tuple>

#include "core/errors.h"
#include "core/metrics.h"
#include "program/trace_difference.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

using Kind = CompileReason::Kind;

// Limits of the remembered traces: enough for a training loop's programs and its evaluation, at about 250 bytes a node.
constexpr size_t kMaxTraces = 16;
constexpr size_t kMaxNodes = 16384;
constexpr size_t kMaxReasons = 256;

// The whole trace is known: the reason names its last operation.
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

// The first alive value that the entry's last program does not output. `lines_before`: of the trace at its compile, empty if forgotten.
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

std::string number_text(const Graph& graph, size_t number, uint64_t bits) {
  const Attr value = number_attr(graph.type(graph.scalars[number]).dtype, bits);
  const auto* real = std::get_if<double>(&value);
  return real ? str(*real) : str(std::get<int64_t>(value));
}

// The first number that is not as in the program's other runs, at the node that takes it.
void explain_number(const Trace& trace, const NumberGroups& groups, CompileReason& reason) {
  const Graph& graph = trace.graph();
  const std::vector<uint64_t>& bits = trace.scalar_bits();
  const size_t number = groups.find_misfit(bits).value_or(0);
  auto takes_it = [&](const Node& node) {
    return std::find(node.operands.begin(), node.operands.end(), graph.scalars[number]) != node.operands.end();
  };
  const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(), takes_it) - graph.nodes.begin();
  const auto at = std::min(static_cast<size_t>(node), graph.nodes.size() - 1);
  reason.kind = Kind::kNumbers;
  reason.operation = graph.nodes[at].op->name;
  reason.now = number_text(graph, number, bits[number]);
  reason.before = number_text(graph, number, groups.wanted(number, bits));
  reason.what =
      str("the trace is known, but a number that was a constant, or equal to others, in all of its runs differs: ",
          reason.operation,
          " takes ",
          reason.now,
          ", before ",
          reason.before);
  reason.line = trace.locations()[at];
}

} // namespace

const char* kind_text(Kind kind) {
  constexpr const char* kTexts[] = {
      "first",
      "unlike",
      "alive values",
      "numbers",
      "operation",
      "shape",
      "dtype",
      "constant",
      "operands",
      "memory order",
      "new device",
      "settings"};
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
  if (!entry.programs.empty() && has_outputs(entry.programs.back(), alive)) {
    explain_number(trace, entry.programs.back().groups, reason);
  } else if (!entry.programs.empty()) {
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

// The trace with the most common operations; ties go to the most equal nodes, then the same trace, then the same device, then the latest.
// The caller holds the lock.
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
  if (reason.kind != Kind::kAliveValues && reason.kind != Kind::kNumbers) {
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
