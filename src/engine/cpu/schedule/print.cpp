// The text of a schedule: each memory with the values that it holds one after the other, then the steps.
#include <sstream>

#include "engine/cpu/schedule/pipeline.h"

namespace torch_xla::cpu {
namespace {

class Printer {
 public:
  explicit Printer(const Schedule& schedule) : s_(schedule), graph_(schedule.laid_out.graph) {}

  std::string run() {
    out_ << "arena of " << s_.plan.arena_bytes << " bytes\n";
    find_held();
    for (size_t m = 0; m < s_.plan.memories.size(); ++m) {
      print_memory(m);
    }
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      out_ << "step " << i << ": ";
      print_step(s_.steps[i], s_.kernels[i]);
    }
    return out_.str();
  }

 private:
  void find_held() {
    held_.resize(s_.plan.memories.size());
    for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
      if (s_.plan.memory_of[v] >= 0) {
        held_[s_.plan.memory_of[v]].push_back(v);
      }
    }
  }

  void print_memory(size_t m) {
    const Memory& memory = s_.plan.memories[m];
    out_ << "memory " << m << ": ";
    print_home(memory);
    out_ << ", " << memory.bytes << " bytes, ";
    print_lifetime(memory);
    for (ValueId v : held_[m]) {
      out_ << " %" << v;
    }
    for (int32_t donor : memory.donors) {
      out_ << ", in place of memory " << donor << " where that is donated";
    }
    out_ << '\n';
  }

  void print_lifetime(const Memory& memory) {
    if (memory.is_output) {
      out_ << "from step " << memory.first << " on:";
    } else if (memory.last < 0) {
      out_ << "not read:";
    } else {
      out_ << "steps " << memory.first << " to " << memory.last << ':';
    }
  }

  void print_home(const Memory& memory) {
    switch (memory.home) {
      case Memory::Home::kParameter:
        out_ << "parameter " << memory.parameter;
        break;
      case Memory::Home::kArena:
        out_ << "arena at " << memory.offset;
        break;
      case Memory::Home::kBlock:
        out_ << "a block";
        break;
      case Memory::Home::kAdopted:
        out_ << "adopted";
        break;
    }
  }

  void print_step(const Step& step, const BuiltKernel& kernel) {
    if (step.kind == StepKind::kKernel) {
      print_kernel(kernel);
      return;
    }
    out_ << (step.kind == StepKind::kStart ? "start " : step.kind == StepKind::kWait ? "wait for " : "");
    out_ << (step.beside > 0 ? "beside the next, " : "");
    print_node(graph_.nodes[step.node]);
  }

  // Stored values, then the kernel with its buffers in the order of their names.
  void print_kernel(const BuiltKernel& kernel) {
    out_ << "kernel of";
    for (const KernelOperand& operand : kernel.operands) {
      out_ << (operand.written ? " -> %" : " %") << operand.value;
    }
    out_ << '\n' << kernel.spec.text();
  }

  void print_node(const Node& node) {
    out_ << node.op->name << " of";
    for (ValueId v : node.operands) {
      v == kNoValue ? out_ << " none" : out_ << " %" << v;
    }
    for (int32_t i = 0; i < node.num_results; ++i) {
      out_ << " -> %" << node.result(i);
    }
    out_ << '\n';
  }

  const Schedule& s_;
  const Graph& graph_;
  std::ostringstream out_;
  std::vector<std::vector<ValueId>> held_; // by memory: its values in their order
};

} // namespace

std::string schedule_text(const Schedule& schedule) {
  return Printer(schedule).run();
}

} // namespace torch_xla::cpu
