// From a schedule to an executable: kernels compiled, library calls prepared, places turned into memories of the plan.
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "core/env.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/program/cpu_executable.h"
#include "engine/cpu/schedule/pipeline.h"
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

// Compiles on this thread and, where there are many, on one more per processor. The first error ends it.
std::vector<Kernel> compile_all(const std::vector<const KernelSpec*>& specs, const std::function<void()>& poll) {
  std::vector<Kernel> kernels(specs.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error; // guarded by mutex
  auto work = [&](const std::function<void()>& before_each) {
    try {
      for (size_t i = next++; i < specs.size(); i = next++) {
        if (before_each) {
          before_each();
        }
        kernels[i] = compile_kernel(*specs[i]);
      }
    } catch (...) {
      next = specs.size();
      std::lock_guard<std::mutex> lock(mutex);
      error = error ? error : std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    size_t threads = std::min<size_t>(std::thread::hardware_concurrency(), specs.size() / kKernelsPerThread);
    for (size_t i = 1; i < threads; ++i) {
      helpers.emplace_back(work, nullptr);
    }
    work(poll);
  }
  if (error) {
    std::rethrow_exception(error);
  }
  return kernels;
}

} // namespace

struct CpuExecutable::Compiler {
  CpuExecutable& out;
  const Schedule& schedule;
  const LaidOutGraph& laid_out = schedule.laid_out;
  const Graph& graph = laid_out.graph;

  void run(const CompileOptions& options, bool fusion) {
    add_kernels(options.poll);
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      switch (step.kind) {
        case StepKind::kKernel:
          add_step(step.kind, num_kernels++, kernel_name(step), graph.find_producer(step.stores.back())->location);
          break;
        case StepKind::kLibrary:
          add_step(step.kind, out.calls_.size(), graph.nodes[step.node].op->name, graph.nodes[step.node].location);
          out.calls_.push_back(make_call(graph.nodes[step.node], options, fusion));
          break;
        case StepKind::kUpdate:
          add_step(step.kind, out.updates_.size(), kViewUpdateOp.name, graph.nodes[step.node].location);
          out.updates_.push_back(make_update(graph.nodes[step.node]));
          break;
      }
    }
    add_outputs();
  }

  void add_step(StepKind kind, size_t index, std::string name, int32_t location) {
    out.steps_.push_back({kind, static_cast<int32_t>(index), std::move(name), location});
  }

  // For people: the kinds of primitives that it is made of, in their order.
  std::string kernel_name(const Step& step) const {
    std::vector<const char*> prims;
    for (ValueId v : step.body) {
      Prim prim = graph.find_producer(v)->op->prim;
      bool known = std::find(prims.begin(), prims.end(), prim_name(prim)) != prims.end();
      if (!known && prim != Prim::kConstant && prim != Prim::kConvert) {
        prims.push_back(prim_name(prim));
      }
    }
    std::string name;
    for (size_t i = 0; i < prims.size() && i < kNamedPrims; ++i) {
      name += str(i ? "_" : "", prims[i]);
    }
    return prims.empty() ? "copy" : prims.size() > kNamedPrims ? name + "_etc" : name;
  }

  // ---- References to planned memory ----

  int32_t memory_of(ValueId root) const {
    return schedule.plan.memory_of[root];
  }

  MemoryRef reference(ValueId v) const {
    const Place& place = laid_out.places[v];
    return {memory_of(place.root), place.offset * static_cast<int64_t>(item_size(graph.type(v).dtype))};
  }

  // ---- Steps ----

  // All at once, as they are compiled side by side.
  void add_kernels(const std::function<void()>& poll) {
    std::vector<const BuiltKernel*> built;
    std::vector<const KernelSpec*> specs;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      if (schedule.steps[s].kind == StepKind::kKernel) {
        built.push_back(&schedule.kernels[s]);
        specs.push_back(&schedule.kernels[s].spec);
      }
    }
    std::vector<Kernel> compiled = compile_all(specs, poll);
    for (size_t i = 0; i < built.size(); ++i) {
      if (env::debug_level() >= 4) {
        print_listing(*specs[i]);
      }
      out.kernels_.push_back(make_kernel(*built[i], std::move(compiled[i])));
    }
  }

  KernelStep make_kernel(const BuiltKernel& built, Kernel compiled) const {
    KernelStep step;
    step.kernel = std::move(compiled);
    for (const KernelOperand& operand : built.operands) {
      step.buffers.push_back({memory_of(operand.root), operand.byte_offset});
    }
    step.scalars = built.scalars;
    step.units = built.spec.units();
    step.grain = built.grain;
    return step;
  }

  LibraryStep make_call(const Node& node, const CompileOptions& options, bool fusion) const {
    LibraryStep step;
    if (node.op->traits & kLoop) {
      step.loop.emplace(node, options);
    } else {
      step.call.emplace(laid_out, node, fusion);
    }
    for (ValueId v : node.operands) {
      step.operands.push_back(v == kNoValue ? MemoryRef() : reference(v));
    }
    for (int32_t i = 0; i < node.num_results; ++i) {
      step.results.push_back(memory_of(node.result(i)));
    }
    return step;
  }

  UpdateStep make_update(const Node& node) const {
    ViewGeometry view = view_geometry(graph, node);
    const Type& type = graph.type(node.result());
    UpdateStep step;
    step.dtype = type.dtype;
    step.base = reference(node.operands[0]);
    step.result = reference(node.result());
    step.elements = span_elements(type.dims, laid_out.places[node.result()].strides);
    step.update = reference(node.operands[1]);
    step.dims = view.dims;
    step.update_strides = laid_out.places[node.operands[1]].strides;
    step.view_offset = view.offset * static_cast<int64_t>(item_size(type.dtype));
    step.view_strides = view.strides;
    return step;
  }

  void add_outputs() {
    for (ValueId v : graph.outputs) {
      ValueId root = laid_out.places[v].root;
      bool is_input = graph.values[root].kind == ValueKind::kParameter && root == v;
      out.outputs_.push_back({graph.type(v), memory_of(root), is_input});
    }
  }

  size_t num_kernels = 0; // among the steps so far
};

CpuExecutable::CpuExecutable(const Graph& graph, const CompileOptions& options, bool fusion)
    : device_(options.device), pool_(Pool::get(options.device)) {
  Schedule schedule = make_schedule(graph, device_, fusion);
  Compiler{*this, schedule}.run(options, fusion);
  if (options.keep_text) {
    text_ = schedule_text(schedule);
  }
  plan_ = std::move(schedule.plan);
  plan_.memory_of = {};
  base_.resize(plan_.memories.size());
  blocks_.resize(plan_.memories.size());
  saves_.resize(plan_.memories.size());
  donatable_.resize(graph.parameters.size());
}

} // namespace torch_xla::cpu
