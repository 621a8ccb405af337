// From a schedule to a plan: kernels compiled, places turned into memories.
#include "engine/cpu/program/plan.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "core/env.h"
#include "core/errors.h"
#include "core/threads.h"
#include "engine/cpu/copy_kernel.h"
#include "ir/computation.h"
#include "ir/view.h"

namespace torch_xla::cpu {
namespace {

constexpr size_t kNamedPrims = 6; // in a kernel's name

void print_listing(const KernelSpec& spec) {
  KernelListing listing = list_kernel(spec);
  env::debug_print("kernel", listing.llvm_ir);
  if (env::debug_level() >= 5) {
    env::debug_print("assembly", listing.assembly);
  }
}

class Planner {
 public:
  Planner(const Schedule& schedule, const std::vector<CompiledKernel>& kernels)
      : schedule_(schedule), laid_out_(schedule.laid_out), graph_(laid_out_.graph), kernels_(kernels) {}

  Plan run() {
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      switch (step.kind) {
        case StepKind::kKernel:
          add_step(step.kind, plan_.kernels.size(), kernel_name(step), graph_.find_producer(step.stores.back())->location);
          plan_.kernels.push_back(make_kernel(schedule_.kernels[s]));
          break;
        case StepKind::kStart:
          started_.push_back(plan_.calls.size());
          [[fallthrough]];
        case StepKind::kLibrary:
          add_step(step.kind, plan_.calls.size(), graph_.nodes[step.node].op->name, graph_.nodes[step.node].location);
          plan_.calls.push_back(make_call(graph_.nodes[step.node]));
          plan_.steps.back().beside = step.beside;
          break;
        case StepKind::kWait:
          add_step(step.kind, started_[num_waits_++], str("wait for ", graph_.nodes[step.node].op->name), graph_.nodes[step.node].location);
          break;
        case StepKind::kUpdate:
          add_step(step.kind, plan_.updates.size(), kViewUpdateOp.name, graph_.nodes[step.node].location);
          plan_.updates.push_back(make_update(graph_.nodes[step.node]));
          break;
      }
    }
    add_outputs();
    plan_.memory = schedule_.plan;
    plan_.memory.memory_of = {};
    plan_.num_parameters = graph_.parameters.size();
    return std::move(plan_);
  }

 private:
  void add_step(StepKind kind, size_t index, std::string name, int32_t location) {
    plan_.steps.push_back({kind, static_cast<int32_t>(index), std::move(name), location});
  }

  // For people: the kernel's kinds of primitives, in order.
  std::string kernel_name(const Step& step) const {
    std::vector<const char*> prims;
    for (ValueId v : step.body) {
      Prim prim = graph_.find_producer(v)->op->prim;
      bool known = std::find(prims.begin(), prims.end(), prim_name(prim)) != prims.end();
      if (!known && prim != Prim::kConstant && prim != Prim::kConvert) {
        prims.push_back(prim_name(prim));
      }
    }
    std::string name;
    for (size_t i = 0; i < prims.size() && i < kNamedPrims; ++i) {
      (name += i ? "_" : "") += prims[i];
    }
    return prims.empty() ? "copy" : prims.size() > kNamedPrims ? name + "_etc" : name;
  }

  // ---- References to planned memory ----

  int32_t memory_of(ValueId root) const {
    return schedule_.plan.memory_of[root];
  }

  MemoryRef reference(ValueId v) const {
    const Place& place = laid_out_.places[v];
    const auto item = static_cast<int32_t>(item_size(graph_.type(v).dtype));
    return {memory_of(place.root), place.offset * item, place.moved_by, item};
  }

  // ---- Steps ----

  KernelStep make_kernel(const BuiltKernel& built) const {
    KernelStep step;
    const CompiledKernel& kernel = kernels_[plan_.kernels.size()];
    step.code = kernel.code.hash();
    step.numbers = kernel.chosen.numbers;
    step.arguments = kernel.chosen.arguments;
    for (const KernelOperand& operand : built.operands) {
      step.buffers.push_back(reference(operand.value));
      step.keeps = step.keeps || (operand.written && schedule_.plan.memories[step.buffers.back().memory].kept);
    }
    step.scalars = built.scalars;
    step.units = built.spec.units();
    step.grain = built.grain;
    return step;
  }

  LibraryStep make_call(const Node& node) {
    LibraryStep step;
    if (find_body(node)) {
      step.loop = num_loops_++;
    } else {
      step.call = make_call_spec(laid_out_, node, schedule_.fusion);
    }
    for (ValueId v : node.operands) {
      step.operands.push_back(v == kNoValue ? MemoryRef() : reference(v));
    }
    plan_.checks_values = plan_.checks_values || (node.op->traits & kChecksValues);
    if (node.op->traits & kCollective) {
      step.meeting_bytes = graph_.type(node.operands[0]).nbytes();
    }
    for (int32_t i = 0; i < node.num_results; ++i) {
      step.results.push_back(memory_of(node.result(i)));
    }
    return step;
  }

  UpdateStep make_update(const Node& node) const {
    ViewGeometry view = view_geometry(graph_, node);
    const Type& type = graph_.type(node.result());
    UpdateStep step;
    step.dtype = type.dtype;
    step.base = reference(node.operands[0]);
    step.result = reference(node.result());
    step.elements = span_elements(type.dims, laid_out_.places[node.result()].strides);
    step.update = reference(node.operands[1]);
    step.dims = view.dims;
    step.update_strides = laid_out_.places[node.operands[1]].strides;
    step.view = step.result;
    step.view.byte_offset = view.offset * step.view.moved_bytes;
    step.view.moved_by = view.moved_by == kNoValue ? -1 : graph_.values[view.moved_by].index;
    step.view_strides = view.strides;
    return step;
  }

  void add_outputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      ValueId v = graph_.outputs[i];
      ValueId root = laid_out_.places[v].root;
      bool is_input = graph_.values[root].kind == ValueKind::kParameter && root == v;
      plan_.outputs.push_back({graph_.type(v), order_of_output(graph_, i), memory_of(root), is_input});
    }
  }

  const Schedule& schedule_;
  const LaidOutGraph& laid_out_;
  const Graph& graph_;
  const std::vector<CompiledKernel>& kernels_;
  Plan plan_;
  std::vector<size_t> started_; // calls by kStart, which are waited for in their order
  size_t num_waits_ = 0; // so far
  int32_t num_loops_ = 0;
};

} // namespace

std::vector<Kernel> make_kernels(size_t count, const std::function<Kernel(size_t)>& make, const std::function<void()>& poll) {
  std::vector<Kernel> kernels(count);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error; // guarded by mutex
  auto work = [&](const std::function<void()>& before_each) {
    try {
      for (size_t i = next++; i < count; i = next++) {
        if (before_each) {
          before_each();
        }
        kernels[i] = make(i);
      }
    } catch (...) {
      next = count;
      std::lock_guard<std::mutex> lock(mutex);
      error = error ? error : std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    static const size_t processors = std::thread::hardware_concurrency(); // hardware_concurrency() asks the system each time
    try {
      for (size_t i = 1; i < std::min(processors, count); ++i) {
        helpers.push_back(start_thread("xla_compiler", [&work] { work(nullptr); }));
      }
    } catch (const UserError&) { // no more threads can be started: the present ones do all
    }
    work(poll);
  }
  if (error) {
    std::rethrow_exception(error);
  }
  return kernels;
}

std::vector<CompiledKernel> compile_kernels(const Schedule& schedule, const std::function<void()>& poll) {
  std::vector<CompiledKernel> kernels;
  std::vector<const KernelSpec*> specs; // specs of kernels to compile
  std::vector<size_t> numbers; // their positions
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind != StepKind::kKernel) {
      continue;
    }
    const KernelSpec& spec = schedule.kernels[s].spec;
    if (is_copy(spec)) {
      kernels.push_back({copy_kernel(spec), {{}, copy_arguments(spec), {}}});
    } else {
      specs.push_back(&spec);
      numbers.push_back(kernels.size());
      kernels.emplace_back();
    }
  }
  std::vector<ChosenKernel> chosen = choose_arguments(specs);
  std::vector<size_t> missing; // only these need threads
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (env::debug_level() >= 4) {
      print_listing(chosen[i].spec);
    }
    CompiledKernel& kernel = kernels[numbers[i]];
    kernel = {find_live_kernel(chosen[i].spec), std::move(chosen[i])};
    if (!kernel.code.fn()) {
      missing.push_back(numbers[i]);
    }
  }
  std::vector<Kernel> made = make_kernels(missing.size(), [&](size_t i) { return compile_kernel(kernels[missing[i]].chosen.spec); }, poll);
  for (size_t i = 0; i < missing.size(); ++i) {
    kernels[missing[i]].code = std::move(made[i]);
  }
  return kernels;
}

Plan make_plan(const Schedule& schedule, const std::vector<CompiledKernel>& kernels) {
  return Planner(schedule, kernels).run();
}

} // namespace torch_xla::cpu
