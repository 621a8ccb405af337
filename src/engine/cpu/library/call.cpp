// Calls of ATen's CPU kernels through the dispatcher, into planned memory, or with adoption of the results that they allocate.
#include "engine/cpu/library/call.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>

#include "core/errors.h"
#include "engine/cpu/copy_kernel.h"
#include "engine/cpu/library/args.h"
#include "engine/cpu/library/aten_allocator.h"
#include "engine/cpu/library/own_rows.h"
#include "engine/cpu/library/packed.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/library/step_error.h"
#include "engine/cpu/library/substitutes.h"
#include "engine/cpu/library/untold.h"
#include "engine/cpu/threads/team.h"
#include "engine/engine.h"
#include "ir/computation.h"
#include "ir/strides.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

c10::OperatorHandle get_schema(const c10::OperatorName& name) {
  auto handle = c10::Dispatcher::singleton().findSchema(name);
  XLA_ASSERT(handle, "ATen has no ", c10::toString(name));
  return *handle;
}

// The chosen way to compute a node.
struct Choice {
  c10::OperatorHandle op; // ATen's functional or out form
  Substitute substitute;
  OwnKernel own = nullptr; // computes the result in ATen's place
  CallKernel kernel{}; // computes it in ATen's place, into given memory
  bool mutates = false; // operand 0 is written: it must be a copy, or the result's memory
  Written written = Written::kAll; // a part: by ATen's operation in place, on the result's memory
  bool writes_into = false;
};

// True where all results are row-major, as out forms resize theirs.
bool has_plain_results(const CallSpec& spec) {
  return std::all_of(spec.results.begin(), spec.results.end(), [](const CallSpec::Tensor& t) {
    return t.type.dtype != DType::Undefined && is_row_major(t);
  });
}

Choice choose(const CallSpec& spec) {
  size_t dot = spec.name.find('.');
  std::string base = spec.name.substr(0, dot);
  Choice choice{get_schema({base, dot == spec.name.npos ? "" : spec.name.substr(dot + 1)}), find_substitute(spec.name)};
  const Op& row = get_op(spec.name);
  choice.own = find_own_kernel(row);
  choice.kernel = choice.substitute.choose ? choice.substitute.choose(spec) : CallKernel();
  const auto& arguments = choice.op.schema().arguments();
  choice.mutates = !arguments.empty() && arguments[0].alias_info() && arguments[0].alias_info()->isWrite();
  choice.written = row.written;
  const bool writes_part = is_part(row.written);
  bool out_form = !choice.own && !spec.out_form.empty() && !choice.mutates && !writes_part && has_plain_results(spec);
  if (out_form) {
    choice.op = get_schema({base, spec.out_form});
  } else if (writes_part && !choice.mutates) {
    choice.op = get_schema({base + "_", choice.op.operator_name().overload_name});
  }
  choice.writes_into = out_form || choice.kernel || writes_part;
  return choice;
}

Work find_work(const Choice& choice, const CallSpec& spec) {
  const Substitute& s = choice.substitute;
  if (choice.kernel) {
    return s.work_of_kernel ? s.work_of_kernel(choice.kernel, spec) : std::nullopt;
  }
  if (s.is_short && s.is_short(spec)) { // ATen's kernel, by one thread always
    return 0;
  }
  return s.work ? s.work(spec) : std::nullopt;
}

} // namespace

bool is_row_major(const CallSpec::Tensor& t) {
  return same_strides(t.type.dims, t.strides, contiguous_strides(t.type.dims));
}

CallSpec make_call_spec(const LaidOutGraph& laid_out, const Node& node, bool may_write_into) {
  auto tensor = [&](ValueId v) { return CallSpec::Tensor{laid_out.graph.type(v), laid_out.places[v].strides}; };
  CallSpec spec;
  spec.name = node.op->name;
  spec.out_form = may_write_into && node.op->out_form ? node.op->out_form : "";
  spec.attrs = node.attrs;
  for (ValueId v : node.operands) {
    spec.operands.push_back(v == kNoValue ? CallSpec::Tensor{{DType::Undefined, {}}, {}} : tensor(v));
  }
  for (int32_t i = 0; i < node.num_results; ++i) {
    spec.results.push_back(tensor(node.result(i)));
  }
  spec.location = node.location;
  spec.weight_stays =
      find_substitute(spec.name).packing == &kPackedMatrix && has_packed_rest(spec) && weight_stays(laid_out.graph, node.operands.back());
  return spec;
}

bool writes_into(const LaidOutGraph& laid_out, const Node& node, bool may_write_into) {
  // A loop's turns take what memory they need.
  return !find_body(node) && choose(make_call_spec(laid_out, node, may_write_into)).writes_into;
}

bool prefers_one_thread(const Node& node) {
  return find_substitute(node.op->name).one_thread;
}

std::string call_settings() {
  return (at::globalContext().userEnabledMkldnn() ? "onednn " : "") + at::get_cpu_capability();
}

struct LibraryCall::Impl {
  std::string name;
  int32_t location = -1;
  Choice choice;
  Attrs attrs;
  std::vector<at::Tensor> operands; // parallel to the spec's; undefined: None
  std::vector<CallSpec::Tensor> results;
  std::vector<at::Tensor> outs; // empty: the functional form is called
  torch::jit::Stack stack; // template
  Work work;
  bool trains = false; // Substitute::trains
  int generator = -1; // the argument that is one; seed and offset are the last operands
  const Packing* packing = nullptr; // none where no operand is packed
  Hash128 packing_key;
  bool reads_only_packed = false;

  explicit Impl(const CallSpec& spec);
  void set_operands(std::span<void* const> addresses) const;
  void call(Pool& pool, torch::jit::Stack& args, std::vector<Undo>* undo, const Packed* packed) const;
  void compute_packed(torch::jit::Stack& args, const Packed& packed) const;
  void write_part(torch::jit::Stack& args, std::vector<Undo>* undo) const;
  void take_result(Pool& pool, const c10::IValue& value, const CallSpec::Tensor& result, ResultMemory& memory) const;
  bool is_operand_memory(const at::Tensor& t) const;
  bool has_kernel() const; // for the present operands
};

LibraryCall::Impl::Impl(const CallSpec& spec)
    : name(spec.name), location(spec.location), choice(choose(spec)), attrs(spec.attrs), results(spec.results) {
  auto alias = [](const CallSpec::Tensor& t) { return make_alias(t.type.dtype, t.type.dims, t.strides); };
  for (const CallSpec::Tensor& t : spec.operands) {
    operands.push_back(t.type.dtype == DType::Undefined ? at::Tensor() : alias(t));
  }
  for (const CallSpec::Tensor& t : spec.results) {
    if (choice.writes_into) {
      outs.push_back(alias(t));
    }
  }
  stack = make_stack(choice.op.schema(), spec.attrs, {operands.begin(), operands.end()});
  generator = find_generator(choice.op.schema());
  work = find_work(choice, spec);
  trains = choice.substitute.trains && choice.substitute.trains(spec);
  if (stack.size() < choice.op.schema().arguments().size()) { // an out form
    stack.insert(stack.end(), outs.begin(), outs.end());
  }
  if (choice.substitute.packing && choice.substitute.packing->fits(spec, stack)) {
    packing = choice.substitute.packing;
    packing_key = packing->key(spec);
    reads_only_packed = !(packing->reads_weight && packing->reads_weight(spec));
  }
}

void LibraryCall::Impl::set_operands(std::span<void* const> addresses) const {
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (operands[i].defined()) {
      set_address(operands[i], addresses[i]);
    }
  }
}

bool LibraryCall::Impl::has_kernel() const {
  return choice.kernel && (!choice.substitute.suits || choice.substitute.suits(operands));
}

// If ATen refuses to read the part it will also refuse to write it, with its own error, but perhaps after writing some of it.
void LibraryCall::Impl::write_part(torch::jit::Stack& args, std::vector<Undo>* undo) const {
  const at::Tensor& self = outs[0];
  args[0] = self;
  if (self.const_data_ptr() != operands[0].const_data_ptr()) {
    self.copy_(operands[0]);
  } else if (undo) {
    try {
      undo->push_back(self.dim() > 0 ? save_part(choice.written, args) : save_whole(self));
    } catch (const c10::Error&) {
      undo->push_back(save_whole(self));
    }
  }
  has_kernel() ? choice.kernel(operands, outs, attrs) : choice.op.callBoxed(args);
}

// If the result has planned memory, oneDNN's operator must allocate it there.
void LibraryCall::Impl::compute_packed(torch::jit::Stack& args, const Packed& packed) const {
  std::optional<Placement> placement;
  if (choice.writes_into) {
    placement.emplace(outs[0].data_ptr(), outs[0].nbytes());
  }
  at::Tensor result = packing->compute(args, packed, reads_only_packed);
  if (choice.writes_into && result.const_data_ptr() != outs[0].const_data_ptr()) {
    outs[0].copy_(result);
  }
  args = {std::move(result)};
}

void LibraryCall::Impl::call(Pool& pool, torch::jit::Stack& args, std::vector<Undo>* undo, const Packed* packed) const {
  c10::InferenceMode inference;
  const Untold untold;
  const PoolRedirect redirect(choice.substitute.outside_pool ? nullptr : &pool);
  if (packed) {
    compute_packed(args, *packed);
    return;
  }
  if (choice.substitute.prepare) {
    choice.substitute.prepare(args);
  }
  c10::AutoGradMode grad_mode(trains);
  if (is_part(choice.written)) {
    write_part(args, undo);
    return;
  }
  if (has_kernel()) { // it shares out its work itself
    choice.kernel(operands, outs, attrs);
    return;
  }
  if (choice.own) {
    args = {choice.own(attrs, {operands.begin(), operands.end()})};
    return;
  }
  if (choice.mutates) {
    args[0] = args[0].toTensor().clone();
  }
  if (generator >= 0) {
    args[static_cast<size_t>(generator)] = make_generator(operands);
  }
  choice.op.callBoxed(args);
  XLA_ASSERT(!choice.kernel, name, " got operands that do not suit the kernel in its place");
}

bool LibraryCall::Impl::is_operand_memory(const at::Tensor& t) const {
  return std::any_of(operands.begin(), operands.end(), [&](const at::Tensor& operand) {
    return operand.defined() && operand.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(t.storage());
  });
}

void LibraryCall::Impl::take_result(Pool& pool, const c10::IValue& value, const CallSpec::Tensor& result, ResultMemory& memory) const {
  at::Tensor t = value.toTensor();
  t = t.defined() ? t.resolve_conj().resolve_neg() : t;
  const Dims& dims = result.type.dims;
  if (!t.defined() && result.type.numel() == 0) { // a workspace that inference does not need
    memory.block = std::make_shared<Block>(pool, 0);
    memory.data = memory.block->data();
    return;
  }
  XLA_ASSERT(t.defined(), name, " returned an undefined tensor");
  XLA_ASSERT(t.sizes() == c10::IntArrayRef(dims.data(), dims.size()), name, " returned the sizes ", t.sizes());
  XLA_ASSERT(t.scalar_type() == static_cast<c10::ScalarType>(result.type.dtype), name, " returned ", t.scalar_type());
  Dims strides(t.strides().data(), t.strides().size());
  if (same_strides(dims, strides, result.strides) && !is_operand_memory(t)) {
    memory.data = t.data_ptr();
    memory.block = std::make_shared<Block>(memory.data, [storage = t.storage()] {});
    return;
  }
  auto bytes = static_cast<size_t>(span_elements(dims, result.strides)) * item_size(result.type.dtype);
  memory.block = std::make_shared<Block>(pool, bytes);
  memory.data = memory.block->data();
  copy_strided(result.type.dtype, dims, memory.data, result.strides, t.data_ptr(), strides);
}

LibraryCall::LibraryCall(const CallSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
LibraryCall::~LibraryCall() = default;
LibraryCall::LibraryCall(LibraryCall&&) noexcept = default;

bool LibraryCall::writes_into() const {
  return !impl_->outs.empty();
}

void LibraryCall::run(
    Pool& pool, std::span<void* const> operands, std::span<ResultMemory> results, std::vector<Undo>* undo, const PackedRef& packed) {
  impl_->set_operands(operands);
  for (size_t i = 0; i < impl_->outs.size(); ++i) {
    set_address(impl_->outs[i], results[i].data);
  }
  try {
    const Work& work = impl_->work;
    const bool shares_out = impl_->choice.kernel && !packed; // a kernel, itself
    const OneThread one_thread(!shares_out && work && (*work == 0 || takes_one_thread(*work)));
    torch::jit::Stack args = impl_->stack;
    impl_->call(pool, args, undo, packed.get());
    for (size_t i = 0; i < impl_->results.size() && !writes_into(); ++i) {
      if (impl_->results[i].type.dtype != DType::Undefined) {
        impl_->take_result(pool, args.at(i), impl_->results[i], results[i]);
      }
    }
  } catch (...) {
    rethrow_as_step_error(impl_->name, impl_->location);
  }
}

OperandRange LibraryCall::packable() const {
  return impl_->packing ? impl_->packing->operands(impl_->operands.size()) : OperandRange();
}

bool LibraryCall::reads_only_packed() const {
  return impl_->reads_only_packed;
}

const Work& LibraryCall::work() const {
  return impl_->work;
}

bool LibraryCall::shares_out() const {
  return impl_->choice.kernel && impl_->choice.kernel != multiply_by_onednn && impl_->choice.kernel != multiply_packing;
}

const Hash128& LibraryCall::packing() const {
  return impl_->packing_key;
}

int64_t LibraryCall::packed_bytes() const {
  return static_cast<int64_t>(impl_->operands[static_cast<size_t>(packable().begin)].nbytes());
}

PackedRef LibraryCall::pack(std::span<void* const> operands) const {
  impl_->set_operands(operands);
  try {
    c10::InferenceMode inference;
    return std::make_shared<Packed>(impl_->packing->pack(impl_->stack));
  } catch (...) {
    rethrow_as_step_error(impl_->name, impl_->location);
  }
}

std::function<void(void*)> LibraryCall::find_unpack(const PackedRef& packed, const void* operand) const {
  return torch_xla::cpu::find_unpack(*impl_->packing, packed, impl_->operands[static_cast<size_t>(packable().begin)], operand);
}

} // namespace torch_xla::cpu
