// The writer of StableHLO: the MLIR text of a lowered graph, for engines that compile it, and its HLO. The door of this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/precision.h"
#include "ir/graph.h"
#include "passes/passes.h"
#include "stablehlo/target.h"

namespace torch_xla {

// The user's source line of a Node::location, as "file.py:12 in forward"; empty where it is not known.
using LocationText = std::function<std::string(int32_t location)>;

struct StableHloOptions {
  // For each parameter the output that may take its memory (tf.aliasing_output), or -1; empty: none. Both have the same type, and the
  // parameter has no strides.
  std::span<const int32_t> aliases = {};
  Precision::Level products = Precision::kHighest;
  Precision::Level convolutions = Precision::kHighest;
  StableHloTarget target = {};
  LocationText location = {}; // may be empty
  Dims device_order = {0}; // of find_device_order()
  // Of a program with several partitions, by output; nothing: the compiler chooses. Empty: it chooses all.
  std::span<const std::optional<ShardingRef>> output_shardings = {};
};

// True for a row with a writer: lowering keeps it and expands the others.
bool has_stablehlo_form(const Op& op);
// What the passes do for a compiler of this hardware, by Engine::hardware().
EngineRules stablehlo_rules(std::string_view hardware);

// The device of each partition. XLA computes wrong values where tiles do not follow the order of partitions, so the order is that of the
// devices in a sharding of the program which is over no axes of 0, 1, 2, ...
Dims find_device_order(const Graph& graph, int num_partitions);

// MLIR text of a lowered graph: one public function @main. Parameters in the order of Graph::parameters, then Graph::scalars as 0-d
// tensors; results in the order of Graph::outputs, row-major. Parameters and results that are cut into tiles with padding are declared
// with it. A parameter with parameter_strides is declared with its dims in memory order,
// slowest first: a dense buffer is row-major in that order. Throws UserError(NotImplemented) that names a row without a form, and for
// shardings that do not follow one order of devices.
std::string write_stablehlo(const Graph& graph, const StableHloOptions& options = {});
// The same as text of XLA's HLO, for people and for XLA's tools; without the aliases.
std::string write_hlo(const Graph& graph, const StableHloOptions& options = {});

} // namespace torch_xla
