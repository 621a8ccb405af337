// Capture of a step and its replays: by the known program, or by appending its nodes if an input's memory layout differs.
#include "replay/step_graph.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "program/program.h"
#include "program/program_run.h"
#include "program/sync.h"
#include "recording/append.h"
#include "replay/record_loop.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

ValueBits bits_of(const Graph& graph, const std::vector<Capture::Output>& outputs) {
  ValueBits bits((graph.values.size() + 63) / 64, 0);
  for (const Capture::Output& output : outputs) {
    bits[static_cast<size_t>(output.value) / 64] |= uint64_t{1} << (output.value % 64);
  }
  return bits;
}

std::vector<std::vector<size_t>> find_places(const Program& program, const std::vector<Capture::Output>& outputs) {
  std::vector<std::vector<size_t>> places(program.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto at = std::lower_bound(program.outputs.begin(), program.outputs.end(), outputs[i].value);
    places[static_cast<size_t>(at - program.outputs.begin())].push_back(i);
  }
  return places;
}

struct InputValue {
  BufferRef buffer;
  PreviousRef previous; // restored if the buffer's run fails
};

// The content of the input's storage, if the program can take its memory layout. Throws the error of a lost value.
std::optional<InputValue> find_value(const Capture::Input& input, const Graph& graph, size_t parameter) {
  Cell* cell = find_cell(input.whole);
  if (!cell || !cell->value || !cell->value->buffer()) {
    return std::nullopt;
  }
  take_back_when_told(*cell);
  const BufferRef& buffer = cell->value->buffer();
  if (buffer->state() == Buffer::State::kFailed) {
    buffer->wait_uninterrupted();
  }
  bool fits = cell->dtype == to_dtype(input.whole.scalar_type()) && same_dims(input.whole.sizes(), to_ref(cell->dims)) &&
      same_dims(input.whole.strides(), to_ref(cell->strides)) && buffer->type() == graph.type(graph.parameters[parameter]) &&
      buffer->strides() == graph.parameter_strides[parameter] && same_sharding(buffer->sharding(), graph.parameter_shardings[parameter]);
  return fits ? std::make_optional(InputValue{buffer, cell->previous}) : std::nullopt;
}

void set_value(Cell& cell, const at::Tensor& whole, const BufferRef& buffer) {
  cell.set_value(LazyValue::ready(buffer));
  cell.dtype = to_dtype(whole.scalar_type());
  cell.dims = to_dims(whole.sizes());
  cell.strides = to_dims(whole.strides());
}

// Keeps the storage's old content until the run has succeeded.
void give_value(const at::Tensor& whole, const BufferRef& buffer, std::vector<PreviousRef>& replaced) {
  Cell& cell = *find_cell(whole);
  if (PreviousRef previous = keep_previous(cell)) {
    replaced.push_back(std::move(previous));
  }
  set_value(cell, whole, buffer);
}

// Gives the storage the value of an input; they share it until one is written.
void share_value(const at::Tensor& whole, const InputValue& value) {
  Cell& cell = *find_cell(whole);
  cell.previous = value.previous;
  set_value(cell, whole, value.buffer);
}

// By input: only this run has the buffer. An input given twice may be read after it was written.
std::vector<bool> find_donated_once(int device, const Run& run) {
  const std::vector<BufferRef>& inputs = run.inputs;
  std::vector<bool> donated = find_donated(device, nullptr, inputs, run.replaced);
  std::map<Buffer*, int> uses;
  for (const BufferRef& input : inputs) {
    ++uses[input.get()];
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    donated[i] = donated[i] && uses[inputs[i].get()] == 1;
  }
  return donated;
}

std::vector<bool> find_restored(const Run& run) {
  std::set<const Buffer*> replaced;
  for (const PreviousRef& previous : run.replaced) {
    replaced.insert(previous->buffer.get().get());
  }
  std::vector<bool> restored(run.inputs.size());
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    restored[i] = run.args.donated[i] && replaced.contains(run.inputs[i].get());
  }
  return restored;
}

} // namespace

StepGraph::~StepGraph() {
  try {
    reset();
  } catch (...) { // in a forked child
  }
}

void StepGraph::begin(int device) {
  XLA_CHECK(!capture_ && !step_, "the graph has captured a step already: reset() it first");
  sync(device);
  {
    auto lock = lock_recorder(device);
    XLA_CHECK(!Recorder::current().capture(device), "a step cannot be captured while another one or the body of a loop is recorded");
  }
  device_ = device;
  capture_.emplace(device, Trace::Kind::kStep);
}

StepGraph::Step StepGraph::take_step() {
  Trace& trace = capture_->trace();
  Step step;
  step.graph = trace.graph();
  step.draws = find_draws(step.graph);
  for (ValueId v : step.graph.scalars) {
    const Value& value = step.graph.values[static_cast<size_t>(v)];
    step.numbers.push_back({value.type.dtype, trace.scalars()[static_cast<size_t>(value.index)]});
  }
  step.lines = trace.locations();
  step.inputs = capture_->inputs();
  for (Capture::Output& output : capture_->outputs()) {
    bool is_computed = step.graph.find_producer(output.value);
    (is_computed ? step.outputs : step.passed_on).push_back(std::move(output));
  }
  step.has_collectives = trace.has_collectives();
  if (!step.outputs.empty() || step.has_collectives) {
    FoundProgram found = find_or_compile(trace, bits_of(step.graph, step.outputs), SyncCause::kReplay, capture_->find_donated());
    step.program = found.program;
    step.offsets = std::move(found.offsets);
    step.places = find_places(step.program, step.outputs);
  }
  return step;
}

void StepGraph::end() {
  XLA_CHECK(capture_, "no step is being captured: capture_begin() begins it");
  try {
    interrupt::retry([this] {
      auto lock = lock_recorder(device_);
      step_ = take_step();
    });
  } catch (...) {
    reset();
    throw;
  }
  capture_.reset();
}

void StepGraph::reset() {
  capture_.reset();
  step_.reset();
}

// Queues the program; false if an input or number does not fit the program.
bool StepGraph::enqueue_known(const std::vector<Number>& numbers) {
  const Step& step = *step_;
  std::vector<uint64_t> bits;
  std::transform(numbers.begin(), numbers.end(), std::back_inserter(bits), [](const Number& number) { return number.bits; });
  if (!step.program.groups.hold(bits)) {
    return false;
  }
  std::vector<InputValue> inputs;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    std::optional<InputValue> value = find_value(step.inputs[i], step.graph, i);
    if (!value) {
      return false;
    }
    inputs.push_back(*std::move(value));
  }
  Executor::get(device_).start();
  const int64_t start_ns = metrics::now_ns();
  observer::Span span(
      {.phase = observer::Phase::kSync,
       .name = cause_text(SyncCause::kReplay),
       .start_ns = start_ns,
       .line = observed_location(observer::Phase::kSync),
       .device = device_});
  for (const Capture::Output& output : step.passed_on) {
    share_value(output.whole, inputs[static_cast<size_t>(step.graph.values[static_cast<size_t>(output.value)].index)]);
  }
  if (!step.program.executable) {
    return true;
  }
  std::unique_ptr<Run> run = new_run(device_, step.program);
  std::transform(inputs.begin(), inputs.end(), std::back_inserter(run->inputs), [](const InputValue& input) { return input.buffer; });
  run->outputs.resize(step.program.outputs.size());
  for (size_t i = 0; i < run->outputs.size(); ++i) {
    if (step.places[i].empty()) {
      continue;
    }
    run->outputs[i] = make_output(step.program, i, step.graph.type(step.program.outputs[i]));
    for (size_t place : step.places[i]) {
      give_value(step.outputs[place].whole, run->outputs[i], run->replaced);
    }
  }
  step.program.groups.take(bits, run->args.scalars);
  run->args.scalars.insert(run->args.scalars.end(), step.offsets.begin(), step.offsets.end());
  run->args.donated = find_donated_once(device_, *run);
  run->args.restored = find_restored(*run);
  run->lines = step.lines;
  run->waits_for_others = step.has_collectives;
  span.set_run(hand_over(device_, std::move(run), start_ns));
  return true;
}

// As enqueue_known(); false also if something is pending.
bool StepGraph::run_known(const std::vector<Number>& numbers) {
  const Executor::ShortRuns run_here(device_); // a replay has nothing to record meanwhile
  return interrupt::retry([&] {
    auto lock = lock_recorder(device_);
    return Recorder::current().trace(device_).empty() && enqueue_known(numbers);
  });
}

// Appends the step's nodes, as if recorded now.
void StepGraph::append(const std::vector<Number>& numbers) const {
  Recording recording(device_);
  Appending appending(recording, step_->graph);
  for (size_t i = 0; i < step_->inputs.size(); ++i) {
    appending.give(i, step_->inputs[i].whole);
  }
  appending.give_numbers(numbers);
  appending.append_nodes();
  for (const std::vector<Capture::Output>* outputs : {&step_->passed_on, &step_->outputs}) {
    for (const Capture::Output& output : *outputs) {
      recording.write(output.whole, appending.at(output.value));
    }
  }
}

void StepGraph::replay() {
  XLA_CHECK(!capture_ && step_, "the graph has no step to replay: capture one first");
  sync(device_);
  const std::vector<Number> numbers = draw_again(device_, step_->draws, step_->numbers);
  try {
    if (!run_known(numbers)) {
      append(numbers);
    }
  } catch (...) {
    settle_after_error(device_);
    throw;
  }
  sync(device_, false, SyncCause::kReplay);
}

std::vector<std::pair<double, std::string>> StepGraph::numbers() const {
  XLA_CHECK(step_, "the graph has captured no step");
  std::vector<std::pair<double, std::string>> numbers;
  for (size_t n = 0; n < step_->graph.nodes.size(); ++n) {
    const Node& node = step_->graph.nodes[n];
    size_t plain = node.operands.size() - (node.op->traits & kRandom ? 2 : 0);
    for (size_t i = 0; i < plain; ++i) {
      ValueId v = node.operands[i];
      if (v != kNoValue && step_->graph.values[static_cast<size_t>(v)].kind == ValueKind::kScalar) {
        const Number& number = step_->numbers[static_cast<size_t>(step_->graph.values[static_cast<size_t>(v)].index)];
        double value =
            number.dtype == DType::F64 ? std::bit_cast<double>(number.bits) : static_cast<double>(std::bit_cast<int64_t>(number.bits));
        numbers.emplace_back(value, line_of(step_->lines, static_cast<int32_t>(n)));
      }
    }
  }
  return numbers;
}

std::vector<std::pair<c10::StorageImpl*, std::string>> StepGraph::storages() const {
  XLA_CHECK(step_, "the graph has captured no step");
  const std::vector<Node>& nodes = step_->graph.nodes;
  std::vector<std::pair<c10::StorageImpl*, std::string>> storages;
  for (const Capture::Input& input : step_->inputs) {
    auto reader = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
      return std::find(node.operands.begin(), node.operands.end(), input.parameter) != node.operands.end();
    });
    std::string line = reader == nodes.end() ? "" : line_of(step_->lines, static_cast<int32_t>(reader - nodes.begin()));
    storages.emplace_back(input.is_value ? nullptr : input.whole.storage().unsafeGetStorageImpl(), std::move(line));
  }
  return storages;
}

std::string StepGraph::text() const {
  return step_ ? print_graph(step_->graph) : std::string();
}

} // namespace torch_xla
