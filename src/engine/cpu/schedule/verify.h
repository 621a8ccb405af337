// The rules of a schedule, stage by stage. Each function throws InternalError for the first rule that is broken and names the stage (as
// `stage`), the step and the value. Each trusts the stages before its own, and takes time about linear in the schedule.
#pragma once

#include "engine/cpu/schedule/pipeline.h"

namespace torch_xla::cpu {

// Places lie within their roots, views where their nodes say, outputs are whole and in the requested order, operands of calls have orders
// that the kernels accept.
void verify_layout(const Schedule& schedule, const char* stage);
// Each node is in one group, after the groups that write its operands; the nodes of a group fit its domain and its reductions.
void verify_groups(const Schedule& schedule, const char* stage);
// Each value that a step reads is stored once, before the step, and so is each output; bodies are complete and fit their domain; calls that
// run beside each other are independent.
void verify_steps(const Schedule& schedule, const char* stage);
// Kernels pair the right elements of their values, at the right addresses, and stay within bounds; in-place pairs are read before they are
// written.
void verify_kernels(const Schedule& schedule, const char* stage);
// Each step's recorded reads, writes, memory and failures follow from its nodes.
void verify_accesses(const Schedule& schedule, const char* stage);
// No value is lost before its last read: live memories do not overlap, only steps that may do so overwrite memory, and memory is taken,
// given away and released in time.
void verify_memory(const Schedule& schedule, const char* stage);

} // namespace torch_xla::cpu
