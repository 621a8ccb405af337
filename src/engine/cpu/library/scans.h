// Running sums and products along a dim that is not the last: ATen walks each column through memory; these read the rows in order.
#pragma once

#include "engine/cpu/library/substitutes.h"

namespace torch_xla::cpu {

// The kernel for a cumsum or cumprod (attributes dim and dtype), or null if ATen's is as fast. Values are ATen's to the bit.
CallKernel choose_running_sum(const CallSpec& call);
CallKernel choose_running_product(const CallSpec& call);
Work work_of_scan(CallKernel kernel, const CallSpec& call);

} // namespace torch_xla::cpu
