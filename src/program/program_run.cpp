// Runs of programs: made, and handed over to the device's executor.
#include "program/program_run.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/metrics.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

// For an error of a run: the user's line of the node; of the last node if it is unknown (-1).
std::string describe(std::span<const int64_t> locations, int32_t node) {
  std::string line = line_of(locations, node);
  if (!line.empty()) {
    return "\n" + line;
  }
  line = line_of(locations, static_cast<int32_t>(locations.size()) - 1);
  return line.empty() ? line : "\nin the program whose last operation is at " + line;
}

// Under the original's names.
void count_run() {
  if (engine().num_partitions() > 1) {
    static metrics::Counter replicated("ExecuteReplicated");
    replicated.add();
  } else {
    static metrics::Counter executed("ExecuteComputation");
    executed.add();
  }
}

} // namespace

std::unique_ptr<Run> new_run(int device, const Program& program) {
  std::unique_ptr<Run> run = Executor::get(device).new_run();
  run->executable = program.executable;
  run->describe = &describe;
  run->args.options.threads = at::get_num_threads();
  return run;
}

BufferRef make_output(const Program& program, size_t i, const Type& type) {
  const std::vector<Dims>& strides = program.output_strides;
  ShardingRef sharding = program.executable ? program.executable->output_sharding(i) : nullptr;
  return std::make_shared<Buffer>(type, strides.empty() ? Dims() : strides[i], std::move(sharding));
}

uint64_t hand_over(int device, std::unique_ptr<Run> run, int64_t sync_ns) {
  static metrics::Metric aliases("InputOutputAliasCount", metrics::Unit::kNumber);
  aliases.add(static_cast<double>(std::count(run->args.donated.begin(), run->args.donated.end(), true)), sync_ns);
  count_run();
  return Executor::get(device).enqueue(std::move(run));
}

} // namespace torch_xla
