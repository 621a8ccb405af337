// Turns of a body: buffers over the loop's operands, slices, carried values, joined results.
#include "engine/cpu/program/loop.h"

#include <algorithm>
#include <cstring>

#include "core/errors.h"
#include "engine/cpu/library/half_products.h"
#include "passes/passes.h"

namespace torch_xla::cpu {
namespace {

std::shared_ptr<Executable> compile_body(const Graph& body, size_t carried, const CompileOptions& options) {
  CompileOptions own;
  own.device = options.device;
  own.precision = options.precision;
  own.poll = options.poll;
  own.donated.assign(body.parameters.size(), false);
  std::fill_n(own.donated.begin(), carried, true);
  return cpu_engine().compile(run_passes_on_body(body, own.device, {.widens = widens_products}), own);
}

const BlockRef& block_of(const EngineBuffer& buffer) {
  return static_cast<const CpuBuffer&>(buffer).block();
}

} // namespace

Loop::Loop(const Node& node, const CompileOptions& options)
    : body_(std::get<ComputationRef>(node.attrs[kLoopBody])),
      carried_(static_cast<size_t>(std::get<int64_t>(node.attrs[kLoopCarried]))),
      sliced_(static_cast<size_t>(std::get<int64_t>(node.attrs[kLoopSliced]))),
      trips_(std::holds_alternative<int64_t>(node.attrs[kLoopTrips]) ? std::get<int64_t>(node.attrs[kLoopTrips]) : -1),
      reverse_(std::get<bool>(node.attrs[kLoopReverse])),
      device_(options.device),
      location_(node.location),
      program_(compile_body(body_->graph, carried_, options)) {
  XLA_ASSERT(node.operands.size() == body_->graph.parameters.size() + body_->graph.scalars.size(), "operands of a loop");
}

// One run of the loop.
class Loop::Turns {
 public:
  Turns(Loop& loop, Pool& pool, std::span<void* const> operands, std::span<ResultMemory> results, const RunOptions& options)
      : loop_(loop), graph_(loop.body_->graph), pool_(pool), operands_(operands), results_(results), options_(options) {}

  void run() {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      bool sliced = i >= loop_.carried_ && i < loop_.carried_ + loop_.sliced_;
      given_.push_back(sliced ? nullptr : foreign(i, operands_[i]));
    }
    add_joined();
    for (int64_t turn = 0; goes_on(turn); ++turn) {
      run_turn(loop_.reverse_ ? loop_.trips_ - 1 - turn : turn);
    }
    for (size_t i = 0; i < loop_.carried_; ++i) {
      results_[i].block = own_block(std::move(given_[i]));
      results_[i].data = results_[i].block->data();
    }
  }

 private:
  const Type& type(size_t parameter) const {
    return graph_.type(graph_.parameters[parameter]);
  }

  // A parameter that lies in memory of the loop's operands: never written, as its block has a second owner.
  EngineBufferRef foreign(size_t parameter, void* data) {
    foreign_.push_back(std::make_shared<Block>(data, [] {}));
    return std::make_shared<CpuBuffer>(type(parameter), contiguous_strides(type(parameter).dims), loop_.device_, foreign_.back());
  }

  void add_joined() {
    for (size_t i = loop_.carried_; i < graph_.outputs.size(); ++i) {
      auto bytes = static_cast<size_t>(graph_.type(graph_.outputs[i]).nbytes() * loop_.trips_);
      results_[i].block = std::make_shared<Block>(pool_, bytes);
      results_[i].data = results_[i].block->data();
    }
  }

  bool goes_on(int64_t turn) const {
    return loop_.trips_ >= 0 ? turn < loop_.trips_ : *static_cast<const bool*>(block_of(*given_[loop_.carried_ - 1])->data());
  }

  void run_turn(int64_t index) {
    XLA_CHECK(!options_.is_cancelled(), kCancelled);
    RunArgs args;
    args.options = options_;
    args.restored.assign(graph_.parameters.size(), false);
    args.donated.assign(graph_.parameters.size(), false);
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      if (i < loop_.carried_) {
        args.inputs.push_back(std::move(given_[i]));
        args.donated[i] = true;
      } else if (i < loop_.carried_ + loop_.sliced_) {
        args.inputs.push_back(foreign(i, static_cast<char*>(operands_[i]) + type(i).nbytes() * index));
      } else {
        args.inputs.push_back(given_[i]);
      }
    }
    args.scalars = read_scalars(static_cast<uint64_t>(index));
    loop_.program_->run(args);
    std::move(args.outputs.begin(), args.outputs.begin() + static_cast<ptrdiff_t>(loop_.carried_), given_.begin());
    for (size_t i = loop_.carried_; i < args.outputs.size(); ++i) {
      store(i, index, *args.outputs[i]);
    }
  }

  std::vector<uint64_t> read_scalars(uint64_t index) const {
    std::vector<uint64_t> bits;
    for (size_t i = 0; i < graph_.scalars.size(); ++i) {
      const void* data = operands_[graph_.parameters.size() + i];
      bool is_bool = graph_.type(graph_.scalars[i]).dtype == DType::Bool;
      bits.push_back(0);
      std::memcpy(&bits.back(), data, is_bool ? sizeof(bool) : sizeof(uint64_t));
    }
    for (const Computation::Draw& draw : loop_.body_->draws) {
      uint64_t& seed = bits[static_cast<size_t>(draw.seed)];
      seed = seed_of_turn(seed, index);
    }
    return bits;
  }

  void store(size_t i, int64_t index, const EngineBuffer& slice) {
    auto bytes = static_cast<size_t>(slice.type().nbytes());
    if (bytes) {
      std::memcpy(static_cast<char*>(results_[i].data) + bytes * static_cast<size_t>(index), block_of(slice)->data(), bytes);
    }
  }

  // The buffer's block, or a copy if the block has another owner.
  BlockRef own_block(EngineBufferRef buffer) {
    if (buffer.use_count() == 1 && buffer->sole_owner()) {
      return block_of(*buffer);
    }
    auto bytes = static_cast<size_t>(buffer->type().nbytes());
    auto block = std::make_shared<Block>(pool_, bytes);
    if (bytes) {
      std::memcpy(block->data(), block_of(*buffer)->data(), bytes);
    }
    return block;
  }

  Loop& loop_;
  const Graph& graph_;
  Pool& pool_;
  std::span<void* const> operands_;
  std::span<ResultMemory> results_;
  const RunOptions& options_;
  std::vector<EngineBufferRef> given_; // by parameter: the carried values now, and what all turns share
  std::vector<BlockRef> foreign_; // over memory of operands
};

void Loop::run(Pool& pool, std::span<void* const> operands, std::span<ResultMemory> results, const RunOptions& options) {
  try {
    Turns(*this, pool, operands, results, options).run();
  } catch (const UserError& error) { // of the body's step, which has no line
    throw StepError(error.kind(), error.what(), location_);
  }
}

std::vector<Loop> compile_loops(const Schedule& schedule, const CompileOptions& options) {
  std::vector<Loop> loops;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::kLibrary) {
      const Node& node = schedule.laid_out.graph.nodes[step.node];
      if (find_body(node)) {
        loops.emplace_back(node, options);
      }
    }
  }
  return loops;
}

} // namespace torch_xla::cpu
