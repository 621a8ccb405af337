// Writes the body of a kernel in SSA order, with 16-bit floats computed in float32, then fits its accesses to the loops.
#include "engine/cpu/schedule/kernel_builder.h"

#include <algorithm>
#include <bit>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/loop_nest.h"

namespace torch_xla::cpu {
namespace {

class KernelBuilder {
 public:
  KernelBuilder(const LaidOutGraph& laid_out, const Step& step)
      : graph_(laid_out.graph), places_(laid_out.places), step_(step), rank_(step.domain.size()) {}

  BuiltKernel run() {
    kernel_.spec.form = step_.form;
    kernel_.spec.body.reserve(2 * (step_.body.size() + step_.stores.size()));
    for (ValueId v : step_.body) {
      int32_t index = emit_value(*graph_.find_producer(v));
      at_.emplace_back(v, index);
    }
    for (ValueId v : step_.stores) {
      emit_store(v);
    }
    fit_loops();
    find_in_place();
    kernel_.grain = find_grain();
    return std::move(kernel_);
  }

 private:
  // ---- Body ----

  int32_t emit(Instr instr) {
    kernel_.spec.body.push_back(std::move(instr));
    return static_cast<int32_t>(kernel_.spec.body.size()) - 1;
  }

  // The type that the kernel computes in or copies.
  DType dtype_of(ValueId v) const {
    return word_type(graph_.type(v).dtype);
  }

  DType dtype_at(int32_t index) const {
    return kernel_.spec.body[index].dtype;
  }

  int32_t emit_simple(Prim prim, DType dtype, InlineVec<int32_t, 3> args) {
    Instr instr;
    instr.prim = prim;
    instr.dtype = dtype;
    instr.args = std::move(args);
    return emit(std::move(instr));
  }

  // To and from 16-bit floats by way of float32, as ATen does.
  int32_t convert(int32_t x, DType to) {
    DType from = dtype_at(x);
    if (from == to) {
      return x;
    }
    bool by_float = (is_reduced_float(from) && to != DType::F32) || (is_reduced_float(to) && from != DType::F32);
    if (by_float) {
      x = emit_simple(Prim::kConvert, DType::F32, {x});
      return to == DType::F32 ? x : emit_simple(Prim::kConvert, to, {x});
    }
    return emit_simple(Prim::kConvert, to, {x});
  }

  // The instruction of a value; -1 where there is none yet. Steps are short: a search from the last one on is faster than a map.
  int32_t find(ValueId v) const {
    auto found = std::find_if(at_.rbegin(), at_.rend(), [v](const auto& entry) { return entry.first == v; });
    return found == at_.rend() ? -1 : found->second;
  }

  // Values from outside the step are loaded at their first use, as late as SSA order permits.
  int32_t operand(ValueId v) {
    int32_t index = find(v);
    if (index < 0) {
      index = graph_.values[v].kind == ValueKind::kScalar ? emit_scalar(v) : emit_load(v);
      at_.emplace_back(v, index);
    }
    return index;
  }

  int32_t emit_scalar(ValueId v) {
    Instr instr;
    instr.prim = Prim::kScalar;
    instr.dtype = dtype_of(v);
    instr.index = static_cast<int32_t>(kernel_.scalars.size());
    kernel_.scalars.push_back(graph_.values[v].index);
    kernel_.spec.scalars.push_back(instr.dtype);
    return emit(std::move(instr));
  }

  // Values at the same addresses (a view of a whole, the same slice taken twice) share a load.
  int32_t emit_load(ValueId v) {
    const Place& place = places_[v];
    DomainAccess access{on_domain(graph_.type(v).dims, place.strides), graph_.type(v).numel(), false};
    for (const Load& load : loads_) {
      if (load.place.root == place.root && load.place.offset == place.offset && load.place.moved_by == place.moved_by &&
          load.place.strides == access.strides) {
        return load.index;
      }
    }
    loads_.push_back({{place.root, place.offset, access.strides, place.moved_by}});
    Instr instr;
    instr.prim = Prim::kLoad;
    instr.dtype = dtype_of(v);
    instr.index = add_buffer(v, std::move(access), false);
    return loads_.back().index = emit(std::move(instr));
  }

  // The offset is not part of the spec: kernels that differ only in offsets are compiled once.
  int32_t add_buffer(ValueId v, DomainAccess access, bool written) {
    const Place& place = places_[v];
    DType dtype = dtype_of(v);
    kernel_.spec.buffers.push_back({dtype, {}});
    kernel_.operands.push_back({v, place.root, place.offset * static_cast<int64_t>(item_size(dtype)), place.moved_by, written});
    buffer_access_.push_back(std::move(access));
    return static_cast<int32_t>(kernel_.spec.buffers.size()) - 1;
  }

  void emit_store(ValueId v) {
    DType dtype = dtype_of(v);
    Instr instr;
    instr.prim = Prim::kStore;
    instr.dtype = dtype;
    instr.args = {convert(find(v), dtype)};
    instr.index = add_buffer(v, {on_domain(graph_.type(v).dims, places_[v].strides), graph_.type(v).numel(), true}, true);
    emit(std::move(instr));
  }

  // Strides by dimension of the domain; 0 where v has extent 1 or no dimension.
  Dims on_domain(const Dims& dims, const Dims& strides) const {
    Dims result(rank_, 0);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] != 1) {
        result[d + rank_ - dims.size()] = strides[d];
      }
    }
    return result;
  }

  int32_t emit_value(const Node& node) {
    DType dtype = dtype_of(node.result());
    switch (node.op->prim) {
      case Prim::kConstant:
        return emit_constant(node.attrs.at(0), dtype);
      case Prim::kIota:
        return emit_iota(node, dtype);
      case Prim::kConvert:
        return convert(operand(node.operands[0]), dtype);
      case Prim::kRandomBits:
        return emit_random(node, dtype);
      default:
        return emit_compute(node, dtype);
    }
  }

  // Attributes hold the user's number; the immediate has the kernel's type.
  int32_t emit_constant(const Attr& attr, DType dtype) {
    Instr instr;
    instr.prim = Prim::kConstant;
    instr.dtype = compute_type(dtype);
    if (is_float(dtype)) {
      auto integer = std::get_if<int64_t>(&attr);
      instr.imm = std::bit_cast<uint64_t>(integer ? static_cast<double>(*integer) : std::get<double>(attr));
    } else if (auto number = std::get_if<double>(&attr)) {
      instr.imm = static_cast<uint64_t>(static_cast<int64_t>(*number));
    } else if (auto flag = std::get_if<bool>(&attr)) {
      instr.imm = *flag;
    } else {
      instr.imm = static_cast<uint64_t>(std::get<int64_t>(attr));
    }
    return convert(emit(std::move(instr)), dtype);
  }

  // The index of an element: row-major (dim < 0) or along one dimension.
  int32_t add_index(const Dims& dims, int64_t dim) {
    Dims strides = contiguous_strides(dims);
    for (size_t d = 0; d < dims.size() && dim >= 0; ++d) {
      strides[d] = static_cast<int64_t>(d) == dim ? 1 : 0;
    }
    index_access_.push_back({on_domain(dims, strides), 0, false});
    return static_cast<int32_t>(index_access_.size()) - 1;
  }

  // Counted in 64 bits and then converted: large indices are rounded once.
  int32_t emit_iota(const Node& node, DType dtype) {
    Instr instr;
    instr.prim = Prim::kIota;
    instr.dtype = DType::I64;
    instr.index = add_index(graph_.type(node.result()).dims, std::get<int64_t>(node.attrs.at(0)));
    return convert(emit(std::move(instr)), dtype);
  }

  // The counter is the element's number in its tensor, for any loops: a program draws the same bits with fusion and without.
  int32_t emit_random(const Node& node, DType dtype) {
    Instr instr;
    instr.prim = Prim::kRandomBits;
    instr.dtype = dtype;
    instr.args = {operand(node.operands[0]), operand(node.operands[1])};
    instr.index = add_index(graph_.type(node.result()).dims, -1);
    instr.lane = static_cast<int32_t>(std::get<int64_t>(node.attrs.at(0)));
    return emit(std::move(instr));
  }

  // 16-bit floats are rounded after each operation, as eager rounds what it stores.
  int32_t emit_compute(const Node& node, DType dtype) {
    InlineVec<int32_t, 3> args;
    for (ValueId v : node.operands) {
      int32_t index = operand(v);
      args.push_back(convert(index, compute_type(dtype_at(index))));
    }
    return convert(emit_simple(node.op->prim, compute_type(dtype), std::move(args)), dtype);
  }

  // ---- Loops ----

  // Buffers and indices decide together on the loops, as all of them are addressed by the same ones.
  void fit_loops() {
    std::vector<DomainAccess> all = buffer_access_;
    all.insert(all.end(), index_access_.begin(), index_access_.end());
    std::vector<Dims> fitted = nest_loops(kernel_.spec, step_.domain, step_.reduced, all);
    for (size_t i = 0; i < buffer_access_.size(); ++i) {
      kernel_.spec.buffers[i].strides = std::move(fitted[i]);
    }
    for (size_t i = buffer_access_.size(); i < all.size(); ++i) {
      kernel_.spec.indices.push_back(std::move(fitted[i]));
    }
  }

  // ---- In place ----

  // All pairs that would be right; the memory plan chooses among them.
  void find_in_place() {
    std::vector<int> sweeps = find_sweeps(kernel_.spec.body);
    int last = sweeps.empty() ? 0 : *std::max_element(sweeps.begin(), sweeps.end());
    const auto& buffers = kernel_.spec.buffers;
    for (size_t i = 0; i < kernel_.spec.body.size(); ++i) {
      const Instr& store = kernel_.spec.body[i];
      // A later sweep may read elements that an earlier sweep has written.
      if (store.prim != Prim::kStore || (kernel_.spec.form == KernelForm::kRow && sweeps[i] != last)) {
        continue;
      }
      for (size_t b = 0; b < buffers.size(); ++b) {
        bool same =
            item_size(buffers[b].dtype) == item_size(buffers[store.index].dtype) && buffers[b].strides == buffers[store.index].strides;
        const KernelOperand& loaded = kernel_.operands[b];
        if (!loaded.written && loaded.byte_offset == 0 && loaded.moved_by < 0 && same) {
          kernel_.in_place.emplace_back(static_cast<int32_t>(b), store.index);
        }
      }
    }
  }

  // The work of all units is that of the domain's elements.
  int64_t find_grain() const {
    int64_t cost = 0;
    for (const Instr& instr : kernel_.spec.body) {
      cost += kernel_cost(instr.prim);
    }
    int64_t work = num_elements(step_.domain) * std::max<int64_t>(cost / kOperationsPerWork, 1);
    return std::max<int64_t>(1, kWorkPerThread * kernel_.spec.units() / std::max<int64_t>(work, 1));
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  const Step& step_;
  size_t rank_;
  BuiltKernel kernel_;
  std::vector<std::pair<ValueId, int32_t>> at_; // values with their instructions
  struct Load {
    Place place; // with strides by dimension of the domain
    int32_t index = -1; // of the instruction
  };
  std::vector<Load> loads_;
  std::vector<DomainAccess> buffer_access_; // parallel to spec.buffers
  std::vector<DomainAccess> index_access_; // parallel to spec.indices
};

} // namespace

std::vector<int> find_sweeps(const std::vector<Instr>& body) {
  std::vector<int> sweeps;
  for (const Instr& instr : body) {
    int sweep = 0;
    for (int32_t arg : instr.args) {
      sweep = std::max(sweep, sweeps[arg] + (is_reduce(body[arg].prim) ? 1 : 0));
    }
    sweeps.push_back(sweep);
  }
  return sweeps;
}

BuiltKernel build_kernel(const LaidOutGraph& laid_out, const Step& step) {
  return KernelBuilder(laid_out, step).run();
}

} // namespace torch_xla::cpu
