// The rules of kernels: loops cover the domain, accesses are the values of the step and stay inside their memory.
#include <algorithm>

#include "engine/cpu/schedule/rules.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

// Elements that the dims with a stride walk over.
int64_t count_walked(const Dims& extents, const Dims& strides) {
  int64_t count = 1;
  for (size_t d = 0; d < extents.size(); ++d) {
    count *= strides[d] ? extents[d] : 1;
  }
  return count;
}

class KernelVerifier : private Rules {
 public:
  explicit KernelVerifier(const Schedule& schedule) : Rules("kernel building", schedule) {}

  void run() {
    check(s_.kernels.size() == s_.steps.size(), s_.kernels.size(), " kernels for ", s_.steps.size(), " steps");
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      enter("step ", i);
      if (s_.steps[i].kind == StepKind::kKernel) {
        check_kernel(s_.steps[i], s_.kernels[i]);
      }
    }
  }

 private:
  void check_kernel(const Step& step, const BuiltKernel& kernel) {
    const KernelSpec& spec = kernel.spec;
    check(spec.form == step.form, "the kernel has another form");
    check(kernel.operands.size() == spec.buffers.size(), kernel.operands.size(), " operands for ", spec.buffers.size(), " buffers");
    check_loops(step, spec);
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      check_operand(kernel.operands[i], spec.buffers[i]);
    }
    check_stores(step, kernel);
    check_body(kernel);
    check_scalars(kernel);
    check_in_place(kernel);
  }

  void check_loops(const Step& step, const KernelSpec& spec) {
    loops_ = spec.outer;
    for (int64_t extent : spec.mid) {
      loops_.push_back(extent);
    }
    loops_.push_back(spec.inner);
    is_empty_ = num_elements(step.domain) == 0;
    check(
        num_elements(loops_) == num_elements(step.domain),
        "loops over ",
        num_elements(loops_),
        " of ",
        num_elements(step.domain),
        " elements");
    int64_t rows = num_elements(row_dims(step.domain, step.reduced));
    int64_t row = num_elements(spec.mid) * (spec.form == KernelForm::kRow ? spec.inner : 1);
    check(is_empty_ || row * rows == num_elements(step.domain), "reduces ", row, " elements where there are ", rows, " results");
  }

  // Loops are split, merged and sorted dims: the number of elements and the distance from the first to the last are what is left of a
  // value.
  void check_operand(const KernelOperand& operand, const KernelBuffer& buffer) const {
    ValueId v = operand.value;
    const Type& type = graph_.type(v);
    const Dims& strides = buffer.access.strides;
    auto item = static_cast<int64_t>(item_size(type.dtype));
    check(operand.root == root(v), "%", v, " is addressed in %", operand.root, ", which is not its root");
    check(buffer.dtype == type.dtype && buffer.access.offset == 0, "%", v, " is accessed as another type or at an offset of its own");
    check(strides.size() == loops_.size(), strides.size(), " strides of %", v, " for ", loops_.size(), " loops");
    int64_t end = operand.byte_offset + span_elements(loops_, strides) * item;
    bool inside = is_empty_ || (operand.byte_offset >= 0 && end <= bytes(operand.root));
    check(inside, "accesses %", v, " up to byte ", end, " of %", operand.root, ", which has ", bytes(operand.root));
    bool whole = count_walked(loops_, strides) == count_walked(type.dims, places_[v].strides) && span_elements(loops_, strides) == span(v);
    check(is_empty_ || whole, "does not walk over %", v, " as it lies in memory");
    check(operand.byte_offset == places_[v].offset * item, "%", v, " does not begin at byte ", operand.byte_offset);
  }

  void check_stores(const Step& step, const BuiltKernel& kernel) const {
    std::vector<ValueId> written;
    for (const KernelOperand& operand : kernel.operands) {
      if (operand.written) {
        written.push_back(operand.root);
      } else {
        bool own = std::binary_search(step.stores.begin(), step.stores.end(), operand.root);
        check(!own, "loads %", operand.value, ", which it stores itself");
      }
    }
    std::sort(written.begin(), written.end());
    check(
        written == step.stores,
        "the kernel writes ",
        written.size(),
        " of ",
        step.stores.size(),
        " values, or others than the step stores");
  }

  void check_body(const BuiltKernel& kernel) const {
    std::vector<int> uses(kernel.operands.size());
    for (const Instr& instr : kernel.spec.body) {
      if (instr.prim == Prim::kLoad || instr.prim == Prim::kStore) {
        const KernelOperand& operand = kernel.operands[static_cast<size_t>(instr.index)];
        check(operand.written == (instr.prim == Prim::kStore), "%", operand.value, " is both loaded and stored");
        ++uses[static_cast<size_t>(instr.index)];
      }
    }
    for (size_t i = 0; i < uses.size(); ++i) {
      check(uses[i] == 1, "%", kernel.operands[i].value, " is accessed by ", uses[i], " instructions");
    }
  }

  void check_scalars(const BuiltKernel& kernel) const {
    check(kernel.scalars.size() == kernel.spec.scalars.size(), kernel.scalars.size(), " scalars for ", kernel.spec.scalars.size());
    for (size_t i = 0; i < kernel.scalars.size(); ++i) {
      int32_t position = kernel.scalars[i];
      bool exists = position >= 0 && static_cast<size_t>(position) < graph_.scalars.size();
      check(
          exists && graph_.type(graph_.scalars[position]).dtype == kernel.spec.scalars[i],
          "scalar ",
          position,
          " is none of the program's");
    }
  }

  void check_in_place(const BuiltKernel& kernel) const {
    std::vector<bool> last = find_last_stores(kernel.spec);
    for (auto [loaded, stored] : kernel.in_place) {
      const KernelOperand& from = kernel.operands[static_cast<size_t>(loaded)];
      const KernelOperand& to = kernel.operands[static_cast<size_t>(stored)];
      check(!from.written && to.written, "an in-place pair is not a load and a store");
      const KernelBuffer& load = kernel.spec.buffers[static_cast<size_t>(loaded)];
      const KernelBuffer& store = kernel.spec.buffers[static_cast<size_t>(stored)];
      bool same = load.access.strides == store.access.strides && from.byte_offset == to.byte_offset &&
          item_size(load.dtype) == item_size(store.dtype);
      check(same, "%", to.value, " is in place of %", from.value, " at other addresses");
      check(last[static_cast<size_t>(stored)], "%", to.value, " is in place of %", from.value, ", which a later sweep may read");
    }
  }

  // By buffer: it is stored when nothing is loaded any more.
  static std::vector<bool> find_last_stores(const KernelSpec& spec) {
    std::vector<int> sweeps = find_sweeps(spec.body);
    int end = sweeps.empty() ? 0 : *std::max_element(sweeps.begin(), sweeps.end());
    std::vector<bool> last(spec.buffers.size());
    for (size_t i = 0; i < spec.body.size(); ++i) {
      if (spec.body[i].prim == Prim::kStore) {
        last[static_cast<size_t>(spec.body[i].index)] = spec.form != KernelForm::kRow || sweeps[i] == end;
      }
    }
    return last;
  }

  Dims loops_; // of the kernel under test: outer, mid, inner
  bool is_empty_ = false; // it has no element
};

} // namespace

void verify_kernels(const Schedule& schedule) {
  KernelVerifier(schedule).run();
}

} // namespace torch_xla::cpu
