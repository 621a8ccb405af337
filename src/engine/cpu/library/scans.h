// Running sums and products along a dim that is not the last: ATen follows each column through memory, here the rows are read in order.
#pragma once

#include "engine/cpu/library/substitutes.h"

namespace torch_xla::cpu {

// Of cumsum and cumprod, attributes dim and dtype: a kernel, or null where ATen's is as good. Values are ATen's to the bit.
CallKernel choose_running_sum(const CallSpec& call);
CallKernel choose_running_product(const CallSpec& call);
Work work_of_scan(CallKernel kernel, const CallSpec& call);

} // namespace torch_xla::cpu
