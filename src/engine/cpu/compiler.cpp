// From a lowered graph to an executable: layout, fusion, kernels, library calls, memory plan.
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "core/env.h"
#include "core/errors.h"
#include "engine/cpu/cpu_executable.h"

namespace torch_xla::cpu {
namespace {

constexpr int64_t kWorkPerThread = 131072;
constexpr size_t kKernelsPerThread = 2; // a thread's start costs as much as a small kernel

void print_listing(const KernelSpec& spec) {
  KernelListing listing = list_kernel(spec);
  env::debug_print("kernel", listing.llvm_ir);
  if (env::debug_level() >= 5) {
    env::debug_print("assembly", listing.assembly);
  }
}

// Compiles on this thread and, where there are many, on one more per processor. The first error ends it.
std::vector<Kernel> compile_all(const std::vector<BuiltKernel>& built, const std::function<void()>& poll) {
  std::vector<Kernel> kernels(built.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error; // guarded by mutex
  auto work = [&](const std::function<void()>& before_each) {
    try {
      for (size_t i = next++; i < built.size(); i = next++) {
        if (before_each) {
          before_each();
        }
        kernels[i] = compile_kernel(built[i].spec);
      }
    } catch (...) {
      next = built.size();
      std::lock_guard<std::mutex> lock(mutex);
      error = error ? error : std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    size_t threads = std::min<size_t>(std::thread::hardware_concurrency(), built.size() / kKernelsPerThread);
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

void add_once(std::vector<ValueId>& list, ValueId v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) {
    list.push_back(v);
  }
}

// In-place choices of a kernel: every load of the value must be at the addresses of the store.
void add_in_place(const BuiltKernel& kernel, StepAccess& access) {
  std::unordered_map<ValueId, int> loads;
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

} // namespace

struct CpuExecutable::Compiler {
  CpuExecutable& out;
  const LaidOutGraph& laid_out;
  const Graph& graph;
  const CompileOptions& options;
  bool fusion;
  std::vector<BuiltKernel> built;
  std::vector<const Node*> call_nodes;
  std::vector<const Node*> update_nodes;
  std::vector<StepAccess> accesses;

  Compiler(CpuExecutable& executable, const LaidOutGraph& lowered, const CompileOptions& compile_options, bool fusion_on)
      : out(executable), laid_out(lowered), graph(lowered.graph), options(compile_options), fusion(fusion_on) {}

  void run() {
    for (const Step& step : fuse(laid_out, fusion)) {
      switch (step.kind) {
        case Step::Kind::kKernel:
          add_kernel(step);
          break;
        case Step::Kind::kLibrary:
          add_call(graph.nodes[step.node]);
          break;
        case Step::Kind::kUpdate:
          add_update(graph.nodes[step.node]);
          break;
      }
    }
    out.plan_ = plan_memory(laid_out, accesses);
    finish_kernels();
    finish_calls();
    finish_updates();
    finish_outputs();
    out.plan_.memory_of = {};
  }

  ValueId root(ValueId v) const {
    return laid_out.places[v].root;
  }

  void add_step(Step::Kind kind, size_t index, StepAccess access, const std::string& line) {
    out.steps_.push_back({kind, static_cast<int32_t>(index)});
    if (options.keep_text) {
      out.lines_.push_back(line);
    }
    accesses.push_back(std::move(access));
  }

  void add_kernel(const Step& step) {
    BuiltKernel kernel = build_kernel(laid_out, step);
    StepAccess access;
    for (const KernelOperand& operand : kernel.operands) {
      add_once(operand.written ? access.writes : access.reads, operand.root);
    }
    add_in_place(kernel, access);
    built.push_back(std::move(kernel));
    add_step(Step::Kind::kKernel, built.size() - 1, std::move(access), options.keep_text ? built.back().spec.text() : std::string());
  }

  void add_call(const Node& node) {
    LibraryStep step{LibraryCall(laid_out, node, fusion), {}, {}};
    StepAccess access;
    for (ValueId v : node.operands) {
      if (v != kNoValue) {
        add_once(access.reads, root(v));
      }
    }
    for (int32_t i = 0; i < node.num_results; ++i) {
      if (graph.type(node.result(i)).dtype != DType::Undefined) {
        access.writes.push_back(node.result(i));
      }
    }
    access.adopts = !step.call.writes_into();
    access.can_fail = access.adopts || (node.op->traits & kChecksValues);
    out.calls_.push_back(std::move(step));
    call_nodes.push_back(&node);
    add_step(Step::Kind::kLibrary, out.calls_.size() - 1, std::move(access), node.op->name);
  }

  void add_update(const Node& node) {
    ValueId base = root(node.operands[0]);
    ValueId update = root(node.operands[1]);
    StepAccess access;
    access.reads = {base};
    access.writes = {node.result()};
    access.is_update = true;
    add_once(access.reads, update);
    if (base != update) {
      access.in_place.push_back({base, node.result()});
    }
    update_nodes.push_back(&node);
    add_step(Step::Kind::kUpdate, update_nodes.size() - 1, std::move(access), "view_update");
  }

  // ---- After the memory plan ----

  MemoryRef reference(ValueId v) const {
    const Place& place = laid_out.places[v];
    return {out.plan_.memory_of[place.root], place.offset * static_cast<int64_t>(item_size(graph.type(v).dtype))};
  }

  void finish_kernels() {
    std::vector<Kernel> kernels = compile_all(built, options.poll);
    for (size_t i = 0; i < built.size() && env::debug_level() >= 4; ++i) {
      print_listing(built[i].spec);
    }
    for (size_t i = 0; i < built.size(); ++i) {
      BuiltKernel& kernel = built[i];
      KernelStep step;
      step.kernel = std::move(kernels[i]);
      for (const KernelOperand& operand : kernel.operands) {
        step.buffers.push_back({out.plan_.memory_of[operand.root], operand.byte_offset});
      }
      step.scalars = std::move(kernel.scalars);
      step.units = kernel.spec.units();
      step.grain = std::max<int64_t>(1, kWorkPerThread * step.units / std::max<int64_t>(kernel.work, 1));
      out.kernels_.push_back(std::move(step));
    }
  }

  void finish_calls() {
    for (size_t i = 0; i < out.calls_.size(); ++i) {
      const Node& node = *call_nodes[i];
      for (ValueId v : node.operands) {
        out.calls_[i].operands.push_back(v == kNoValue ? MemoryRef() : reference(v));
      }
      for (int32_t r = 0; r < node.num_results; ++r) {
        out.calls_[i].results.push_back(out.plan_.memory_of[node.result(r)]);
      }
    }
  }

  void finish_updates() {
    for (const Node* node : update_nodes) {
      ValueId result = node->result();
      ValueId update = node->operands[1];
      auto item = static_cast<int64_t>(item_size(graph.type(result).dtype));
      UpdateStep step;
      step.dtype = graph.type(result).dtype;
      step.base = reference(node->operands[0]);
      step.result = reference(result);
      step.elements = span_elements(graph.type(result).dims, laid_out.places[result].strides);
      step.update = reference(update);
      step.dims = graph.type(update).dims;
      step.update_strides = laid_out.places[update].strides;
      step.view_offset = std::get<int64_t>(node->attrs[kViewOffset]) * item;
      step.view_strides = Dims(std::get<std::vector<int64_t>>(node->attrs[kViewStrides]));
      out.updates_.push_back(std::move(step));
    }
  }

  void finish_outputs() {
    for (ValueId v : graph.outputs) {
      int32_t memory = out.plan_.memory_of[root(v)];
      bool is_input = out.plan_.memories[memory].home == Memory::Home::kParameter && root(v) == v;
      out.outputs_.push_back({graph.type(v), memory, is_input});
    }
  }
};

CpuExecutable::CpuExecutable(const Graph& graph, const CompileOptions& options, bool fusion) {
  Compiler(*this, lay_out(graph), options, fusion).run();
  base_.resize(plan_.memories.size());
  blocks_.resize(plan_.memories.size());
  saves_.resize(plan_.memories.size());
  donatable_.resize(graph.parameters.size());
}

} // namespace torch_xla::cpu
