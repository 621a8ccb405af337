// The library `xla` of the dispatcher: collectives between the replicas of a run.
#pragma once

namespace torch_xla {

// Defines torch.ops.xla and its kernels on the CPU, which the programs of all devices call. Groups have the names given to _add_group().
// register_all() of cpp/load.h calls it once.
void register_collectives();

} // namespace torch_xla
