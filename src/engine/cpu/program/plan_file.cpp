// Plans as bytes: the members of each part, once for both directions.
#include "engine/cpu/program/plan.h"
#include "ir/archive.h"

namespace torch_xla::cpu {

template <typename Archive>
void fields(Archive& archive, Memory& m) {
  archive(m.home, m.bytes, m.offset, m.parameter, m.first, m.last, m.is_output, m.donors, m.kept, m.undoable);
}
template <typename Archive>
void fields(Archive& archive, MemoryPlan& plan) {
  archive(plan.memories, plan.taken, plan.released, plan.arena_bytes, plan.last_fallible);
}
template <typename Archive>
void fields(Archive& archive, MemoryRef& ref) {
  archive(ref.memory, ref.byte_offset, ref.moved_by, ref.moved_bytes);
}
template <typename Archive>
void fields(Archive& archive, KernelNumbers& numbers) {
  archive(numbers.structure, numbers.values);
}
template <typename Archive>
void fields(Archive& archive, KernelStep& step) {
  archive(step.code, step.numbers, step.buffers, step.scalars, step.arguments, step.units, step.grain, step.keeps);
}
template <typename Archive>
void fields(Archive& archive, CallSpec::Tensor& tensor) {
  archive(tensor.type, tensor.strides);
}
template <typename Archive>
void fields(Archive& archive, CallSpec& call) {
  archive(call.name, call.out_form, call.attrs, call.operands, call.results, call.location, call.weight_stays);
}
template <typename Archive>
void fields(Archive& archive, LibraryStep& step) {
  archive(step.call, step.operands, step.results, step.meeting_bytes);
}
template <typename Archive>
void fields(Archive& archive, UpdateStep& step) {
  archive(step.dtype, step.base, step.result, step.elements, step.update, step.dims, step.update_strides, step.view);
  archive(step.view_strides);
}
template <typename Archive>
void fields(Archive& archive, Output& output) {
  archive(output.type, output.strides, output.memory, output.is_input);
}
template <typename Archive>
void fields(Archive& archive, StepRef& step) {
  archive(step.kind, step.index, step.name, step.location, step.beside);
}
template <typename Archive>
void fields(Archive& archive, Plan& plan) {
  archive(plan.memory, plan.steps, plan.kernels, plan.calls, plan.updates, plan.outputs, plan.num_parameters, plan.checks_values);
}

std::string write_plan(const Plan& plan) {
  Writer out;
  out(plan);
  return out.take();
}

Plan read_plan(std::string_view bytes) {
  Plan plan;
  Reader in(bytes);
  in(plan);
  in.finish();
  return plan;
}

} // namespace torch_xla::cpu
