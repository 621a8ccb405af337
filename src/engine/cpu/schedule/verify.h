// The rules of a schedule, stage by stage. Each function throws InternalError for the first rule that is broken and names the stage (as
// `stage`), the step and the value. Each takes what the stages before it have decided for right, and time about linear in the schedule.
#pragma once

#include "engine/cpu/schedule/pipeline.h"

namespace torch_xla::cpu {

// Places lie within their roots, views where their nodes say, outputs are whole and in the order that is asked for, calls read what their
// kernels can.
void verify_layout(const Schedule& schedule, const char* stage);
// Each node is in one group, behind all that it reads from memory; all of a group fits its domain and its reductions.
void verify_groups(const Schedule& schedule, const char* stage);
// What a step reads is stored before it, once, and what leaves the program is stored; bodies are complete and fit their domain; calls that
// run beside each other need nothing of each other.
void verify_steps(const Schedule& schedule, const char* stage);
// Kernels meet the elements of their values that belong together, where these lie in memory, and nothing beyond; in-place pairs are read
// before they are written.
void verify_kernels(const Schedule& schedule, const char* stage);
// What is said of each step's reads, writes, memory and failures follows from its nodes.
void verify_accesses(const Schedule& schedule, const char* stage);
// No value is lost while somebody reads it: memories that live do not overlap, are written over only where the step may and are taken,
// given away and released in time.
void verify_memory(const Schedule& schedule, const char* stage);

} // namespace torch_xla::cpu
