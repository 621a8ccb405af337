// The shardings of a partitioned program's results: those that the program settles, and those that the compiler chose.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace torch_xla::pjrt {

// By output; nothing: the compiler chooses.
using WantedShardings = std::vector<std::optional<ShardingRef>>;

// Those of marks and of parameters that are outputs, and all in a program that cuts no value.
WantedShardings settled_shardings(const Graph& graph);

// From the optimized program, an HloModuleProto in one of PJRT's formats. `ranks`: of the results; `order`: the devices of the partitions.
// Nothing if the program does not tell all of them, or cuts one over some of the devices only.
std::optional<std::vector<ShardingRef>> read_output_shardings(
    std::string_view program, std::string_view format, const std::vector<size_t>& ranks, const Dims& order);

} // namespace torch_xla::pjrt
