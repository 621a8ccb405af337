// The library `xla` of the dispatcher: collectives between the replicas of a run.
#pragma once

namespace torch_xla {

// Defines torch.ops.xla and its kernels on the CPU, which the programs of all devices call. A group is named by what _add_group() was
// given.
// Called once, before the device is used.
void register_collectives();

} // namespace torch_xla
