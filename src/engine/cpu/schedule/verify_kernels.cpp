// The rules of kernels: loops cover the domain, buffers are the values of the step and stay inside their memory.
#include <algorithm>
#include <iterator>
#include <span>

#include "engine/cpu/schedule/verifier.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

// The set of addresses (one of each operand) that some loops visit together, in a form that does not depend on the order, merging and
// splitting of the loops. A loop of n iterations with the strides s visits 0, s, ..., (n-1)s; as powers of x that is the series (1 -
// x^(ns)) / (1 - x^s). Several loops visit the product of their series, where equal factors of numerator and denominator cancel.
struct Addresses {
  using Factors = std::vector<std::vector<int64_t>>; // exponents by operand; sorted
  Factors above;
  Factors below;
  bool operator==(const Addresses&) const = default;
};

// Of the loops d with chosen[d]. `strides` are by operand.
Addresses find_addresses(const Dims& extents, const std::vector<bool>& chosen, std::span<const Dims> strides) {
  Addresses::Factors above;
  Addresses::Factors below;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (chosen[d] && extents[d] != 1) {
      std::vector<int64_t>& end = above.emplace_back();
      std::vector<int64_t>& step = below.emplace_back();
      for (const Dims& of_operand : strides) {
        end.push_back(of_operand[d] * extents[d]);
        step.push_back(of_operand[d]);
      }
    }
  }
  std::sort(above.begin(), above.end());
  std::sort(below.begin(), below.end());
  Addresses left;
  std::set_difference(above.begin(), above.end(), below.begin(), below.end(), std::back_inserter(left.above));
  std::set_difference(below.begin(), below.end(), above.begin(), above.end(), std::back_inserter(left.below));
  return left;
}

// Extents of the loops or of the domain, which of them are reduced, and the strides of the kernel's buffers and indices on them.
struct Nest {
  Dims extents;
  std::vector<bool> reduced;
  std::vector<Dims> strides;
};

// Whether the first `count` buffers and indices visit the same elements in both, with the elements of one result reduced together.
bool meet_the_same(const Nest& a, const Nest& b, size_t count) {
  auto addresses = [count](const Nest& nest, bool reduced) {
    std::vector<bool> chosen = nest.reduced;
    if (!reduced) {
      chosen.flip();
    }
    return find_addresses(nest.extents, chosen, std::span(nest.strides).first(count));
  };
  return addresses(a, false) == addresses(b, false) && addresses(a, true) == addresses(b, true);
}

class KernelVerifier : private Verifier {
 public:
  KernelVerifier(const Schedule& schedule, const char* stage) : Verifier(stage, schedule) {}

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
    check_walk(step, kernel);
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

  void check_operand(const KernelOperand& operand, const KernelBuffer& buffer) const {
    ValueId v = operand.value;
    const Type& type = graph_.type(v);
    const Dims& strides = buffer.strides;
    auto item = static_cast<int64_t>(item_size(type.dtype));
    check(operand.root == root(v), "%", v, " is addressed in %", operand.root, ", which is not its root");
    check(buffer.dtype == word_type(type.dtype), "%", v, " is accessed as another type");
    check(strides.size() == loops_.size(), strides.size(), " strides of %", v, " for ", loops_.size(), " loops");
    int64_t end = operand.byte_offset + span_elements(loops_, strides) * item;
    bool inside = is_empty_ || (operand.byte_offset >= 0 && end <= bytes(operand.root));
    check(inside, "accesses %", v, " up to byte ", end, " of %", operand.root, ", which has ", bytes(operand.root));
    check(operand.byte_offset == places_[v].offset * item, "%", v, " does not begin at byte ", operand.byte_offset);
    check(operand.moved_by == places_[v].moved_by, "%", v, " is moved by another number");
  }

  // The loops pair the same elements as the domain.
  void check_walk(const Step& step, const BuiltKernel& kernel) const {
    Nest loops{loops_, reduced_loops(kernel.spec), {}};
    Nest domain{step.domain, {}, {}};
    for (size_t d = 0; d < step.domain.size(); ++d) {
      domain.reduced.push_back(step.reduced >> d & 1);
    }
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      ValueId v = kernel.operands[i].value;
      loops.strides.push_back(kernel.spec.buffers[i].strides);
      domain.strides.push_back(on_domain(step, graph_.type(v).dims, places_[v].strides));
    }
    add_indices(step, kernel.spec, loops, domain);
    size_t count = loops.strides.size();
    if (is_empty_ || meet_the_same(loops, domain, count)) {
      return;
    }
    for (count = 1; meet_the_same(loops, domain, count);) {
      ++count;
    }
    check(count > kernel.operands.size(), "does not walk over %", kernel.operands[count - 1].value, " as it lies in memory");
    check(false, "index ", count - 1 - kernel.operands.size(), " does not count its value's elements");
  }

  // By loop: whether the kernel reduces over it.
  std::vector<bool> reduced_loops(const KernelSpec& spec) const {
    std::vector<bool> reduced(loops_.size());
    for (size_t i = spec.outer.size(); i < loops_.size(); ++i) {
      reduced[i] = i + 1 < loops_.size() || spec.form == KernelForm::kRow;
    }
    return reduced;
  }

  // 0 for broadcast dims.
  static Dims on_domain(const Step& step, const Dims& dims, const Dims& strides) {
    Dims result(step.domain.size(), 0);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] != 1) {
        result[d + step.domain.size() - dims.size()] = strides[d];
      }
    }
    return result;
  }

  // Indices of the body's nodes: elements in row-major order, or the index along one dim.
  void add_indices(const Step& step, const KernelSpec& spec, Nest& loops, Nest& domain) const {
    size_t found = 0;
    for (ValueId v : step.body) {
      const Node& node = *graph_.find_producer(v);
      Prim prim = node.op->prim;
      if (prim != Prim::kIota && prim != Prim::kRandomBits) {
        continue;
      }
      check(found < spec.indices.size() && spec.indices[found].size() == loops_.size(), "index ", found, " of %", v, " is not by loop");
      const Dims& dims = graph_.type(v).dims;
      Dims strides = contiguous_strides(dims);
      if (int64_t along = prim == Prim::kIota ? std::get<int64_t>(node.attrs.at(0)) : -1; along >= 0) {
        strides = Dims(dims.size(), 0);
        strides[static_cast<size_t>(along)] = 1;
      }
      loops.strides.push_back(spec.indices[found++]);
      domain.strides.push_back(on_domain(step, dims, strides));
    }
    check(found == spec.indices.size(), spec.indices.size(), " indices for ", found, " values");
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
      bool same = load.strides == store.strides && from.byte_offset == to.byte_offset && from.moved_by == to.moved_by &&
          item_size(load.dtype) == item_size(store.dtype);
      check(same, "%", to.value, " is in place of %", from.value, " at other addresses");
      check(last[static_cast<size_t>(stored)], "%", to.value, " is in place of %", from.value, ", which a later sweep may read");
    }
  }

  // By buffer: whether it is stored after the last load.
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

void verify_kernels(const Schedule& schedule, const char* stage) {
  KernelVerifier(schedule, stage).run();
}

} // namespace torch_xla::cpu
