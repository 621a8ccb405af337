// Reads and writes of kernels, library calls and updates, and which of them may be in place.
#include "engine/cpu/schedule/access.h"

#include <algorithm>
#include <map>

#include "engine/cpu/library/call.h"
#include "ir/strides.h"

namespace torch_xla::cpu {
namespace {

void add_once(std::vector<ValueId>& list, ValueId v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) {
    list.push_back(v);
  }
}

// Every load of the value must be at the addresses of the store.
void add_in_place(const BuiltKernel& kernel, StepAccess& access) {
  std::map<ValueId, int> loads;
  for (const KernelOperand& operand : kernel.operands) {
    loads[operand.root] += operand.written ? 0 : 1;
  }
  std::map<std::pair<ValueId, int32_t>, int> paired; // loads of a value at the addresses of a store
  for (auto [loaded, stored] : kernel.in_place) {
    ++paired[{kernel.operands[loaded].root, stored}];
  }
  for (const auto& [choice, count] : paired) {
    if (count == loads[choice.first]) {
      access.in_place.push_back({choice.first, kernel.operands[choice.second].root});
    }
  }
}

// Whether it reads parameters only, at fixed places (no number of the run moves them).
bool reads_parameters_only(const Graph& graph, const BuiltKernel& kernel) {
  return std::all_of(kernel.operands.begin(), kernel.operands.end(), [&graph](const KernelOperand& operand) {
    return operand.moved_by < 0 && (operand.written || graph.values[operand.root].kind == ValueKind::kParameter);
  });
}

bool converts_only(const KernelSpec& spec) {
  return std::all_of(spec.body.begin(), spec.body.end(), [](const Instr& instr) {
    return instr.prim == Prim::kLoad || instr.prim == Prim::kConvert || instr.prim == Prim::kStore;
  });
}

bool writes_output(const LaidOutGraph& laid_out, const StepAccess& access) {
  return std::any_of(laid_out.graph.outputs.begin(), laid_out.graph.outputs.end(), [&](ValueId v) {
    return std::find(access.writes.begin(), access.writes.end(), laid_out.places[v].root) != access.writes.end();
  });
}

StepAccess kernel_access(const LaidOutGraph& laid_out, const BuiltKernel& kernel) {
  StepAccess access;
  for (const KernelOperand& operand : kernel.operands) {
    add_once(operand.written ? access.writes : access.reads, operand.root);
  }
  add_in_place(kernel, access);
  access.converts = converts_only(kernel.spec) && reads_parameters_only(laid_out.graph, kernel) && !writes_output(laid_out, access);
  return access;
}

// A barrier leaves operands in place if their order is the result's; a call that writes a part leaves the other elements.
void add_handed_on(const LaidOutGraph& laid_out, const Node& node, StepAccess& access) {
  for (int32_t i = 0; i < (is_part(node.op->written) ? 1 : node.num_results); ++i) {
    ValueId from = node.operands[i], to = node.result(i);
    auto same_memory = [&](ValueId v) { return laid_out.places[v].root == from; };
    bool whole = laid_out.places[from].root == from && laid_out.places[from].strides == laid_out.places[to].strides;
    if (whole && std::count_if(node.operands.begin(), node.operands.end(), same_memory) == 1) {
      access.in_place.push_back({from, to});
    }
  }
}

// Whether its elements lie row by row from the start of its memory.
bool lies_row_major(const LaidOutGraph& laid_out, ValueId v) {
  const Dims& dims = laid_out.graph.type(v).dims;
  const Place& place = laid_out.places[v];
  return place.offset == 0 && place.moved_by < 0 && same_strides(dims, place.strides, contiguous_strides(dims));
}

// A call that writes into planned memory can still fail if it checks its operands' values.
StepAccess call_access(const LaidOutGraph& laid_out, const Node& node, bool fusion) {
  StepAccess access;
  for (ValueId v : node.operands) {
    if (v != kNoValue) {
      add_once(access.reads, laid_out.places[v].root);
    }
  }
  for (int32_t i = 0; i < node.num_results; ++i) {
    if (laid_out.graph.type(node.result(i)).dtype != DType::Undefined) {
      access.writes.push_back(node.result(i));
    }
  }
  access.can_be_undone = is_part(node.op->written);
  if (node.op->written != Written::kAll) {
    add_handed_on(laid_out, node, access);
  }
  access.adopts = !writes_into(laid_out, node, fusion);
  if (!access.adopts && (node.op->traits & kCollective) && lies_row_major(laid_out, node.operands[0])) {
    access.in_place.push_back({laid_out.places[node.operands[0]].root, node.result()});
  }
  access.can_fail = access.adopts || (node.op->traits & kChecksValues);
  return access;
}

// In place, an update whose source lies in the same memory could read what it has written.
StepAccess update_access(const LaidOutGraph& laid_out, const Node& node) {
  ValueId base = laid_out.places[node.operands[0]].root;
  ValueId update = laid_out.places[node.operands[1]].root;
  StepAccess access;
  access.reads = {base};
  access.writes = {node.result()};
  access.is_update = true;
  access.can_be_undone = true;
  if (base != update) {
    access.reads.push_back(update);
    access.in_place.push_back({base, node.result()});
  }
  return access;
}

// By node.
std::map<int32_t, int32_t> find_waits(const std::vector<Step>& steps) {
  std::map<int32_t, int32_t> waits;
  for (size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].kind == StepKind::kWait) {
      waits[steps[s].node] = static_cast<int32_t>(s);
    }
  }
  return waits;
}

} // namespace

std::vector<StepAccess> find_accesses(
    const LaidOutGraph& laid_out, const std::vector<Step>& steps, const std::vector<BuiltKernel>& kernels, bool fusion) {
  std::vector<StepAccess> accesses;
  std::map<int32_t, int32_t> waits = find_waits(steps);
  for (size_t s = 0; s < steps.size(); ++s) {
    switch (steps[s].kind) {
      case StepKind::kKernel:
        accesses.push_back(kernel_access(laid_out, kernels[s]));
        break;
      case StepKind::kLibrary:
      case StepKind::kStart:
        accesses.push_back(call_access(laid_out, laid_out.graph.nodes[steps[s].node], fusion));
        break;
      case StepKind::kUpdate:
        accesses.push_back(update_access(laid_out, laid_out.graph.nodes[steps[s].node]));
        break;
      case StepKind::kWait:
        accesses.emplace_back().can_fail = true;
        break;
    }
    accesses.back().until = steps[s].kind == StepKind::kStart ? waits.at(steps[s].node) : static_cast<int32_t>(s) + steps[s].beside;
  }
  return accesses;
}

} // namespace torch_xla::cpu
