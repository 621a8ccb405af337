// Graphs of pending tensors: a copy of the trace with the tensors as outputs and only the nodes they need.
#include "program/pending_graph.h"

#include <algorithm>
#include <array>
#include <memory>

#include "core/env.h"
#include "core/errors.h"
#include "core/log_file.h"
#include "engine/engine.h"
#include "ir/listing.h"
#include "ops/registry.h"
#include "passes/passes.h"
#include "program/compile_settings.h"
#include "program/known_numbers.h"
#include "program/sync.h"
#include "stablehlo/writer.h"
#include "trace/cell.h"
#include "trace/device_number.h"
#include "trace/recorder.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

// ---- Graphs ----

// The inputs of an excerpt.
enum class Inputs : uint8_t {
  kNeeded, // the parameters and scalars of its nodes and outputs, in order of use
  kParameters, // all parameters in their order, all scalars fixed
};

// The live nodes of a graph, with their inputs and the bits of its scalars.
struct Excerpt {
  Graph graph;
  std::vector<uint64_t> scalars;

  Excerpt(const Graph& from, const std::vector<uint64_t>& bits, Inputs inputs = Inputs::kNeeded)
      : from_(from), bits_(bits), inputs_(inputs), mapped_(from.values.size(), kNoValue) {
    if (inputs == Inputs::kParameters) {
      std::for_each(from.parameters.begin(), from.parameters.end(), [this](ValueId v) { map(v); });
    }
    std::vector<bool> live = find_live_nodes(from);
    for (size_t i = 0; i < from.nodes.size(); ++i) {
      if (live[i]) {
        add(from.nodes[i]);
      }
    }
    for (ValueId v : from.outputs) {
      graph.outputs.push_back(map(v));
    }
  }

 private:
  ValueId map(ValueId v) {
    if (v == kNoValue || mapped_[v] != kNoValue) {
      return v == kNoValue ? kNoValue : mapped_[v];
    }
    const Value& value = from_.values[v];
    if (value.kind == ValueKind::kScalar) {
      const auto number = static_cast<size_t>(value.index);
      mapped_[v] = graph.add_scalar(value.type.dtype);
      scalars.push_back(bits_[number]);
      graph.fixed_scalars.push_back(inputs_ == Inputs::kParameters ? bits_[number] : from_.fixed_scalar(number));
    } else {
      const auto i = static_cast<size_t>(value.index);
      mapped_[v] = graph.add_parameter(value.type, from_.parameter_strides[i], from_.parameter_shardings[i]);
    }
    return mapped_[v];
  }

  void add(const Node& node) {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(map(v));
    }
    std::vector<Type> results;
    for (int32_t i = 0; i < node.num_results; ++i) {
      results.push_back(from_.type(node.result(i)));
    }
    ValueId first = graph.add_node(*node.op, std::move(operands), node.attrs, results, node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = first + i;
    }
  }

  const Graph& from_;
  const std::vector<uint64_t>& bits_;
  const Inputs inputs_;
  std::vector<ValueId> mapped_; // by value of the source graph
};

// The cell's value in the copy of the trace, or kNoValue for uninitialized memory.
ValueId value_of(const Cell& cell, const Trace& trace, Graph& graph) {
  if (!cell.value) {
    return kNoValue;
  }
  const BufferRef& buffer = cell.value->buffer();
  if (cell.value->trace() == &trace) {
    return cell.value->id();
  }
  if (Trace* other = cell.value->trace()) {
    return graph.add_parameter(other->graph().type(cell.value->id()), {});
  }
  const ValueId known = trace.find_parameter(*buffer);
  return known != kNoValue ? known : graph.add_parameter(buffer->type(), buffer->strides(), buffer->sharding());
}

const Cell& cell_of(int device, const at::Tensor& t) {
  bool here = t.is_privateuseone() && t.get_device() == device;
  XLA_CHECK_KIND(Value, here, "expected a tensor on xla:", device, ", but got one on ", t.device().str());
  const Cell* cell = find_cell(t);
  XLA_CHECK(cell, kNoCell);
  return *cell;
}

// The node of the cell's value; null if that is not pending.
const Node* find_pending(const Cell& cell) {
  return cell.value && cell.value->trace() ? cell.value->trace()->graph().find_producer(cell.value->id()) : nullptr;
}

ValueId add_node(Graph& graph, const Op& op, ValueId operand, Attrs attrs, Type type) {
  return graph.add_node(op, {operand}, std::move(attrs), std::span<const Type>(&type, 1));
}

void add_output(const at::Tensor& t, const Cell& cell, const Trace& trace, Graph& graph) {
  static const Op& reinterpret = get_op("aten::view_copy.dtype");
  ValueId v = value_of(cell, trace, graph);
  if (v == kNoValue || t.numel() == 0) {
    return;
  }
  DType dtype = to_dtype(t.scalar_type());
  Dims dims = to_dims(t.sizes()), strides = to_dims(t.strides()), base = cell.strides, flat{1};
  auto elements = [&](DType type) { return Dims{static_cast<int64_t>(cell.nbytes / item_size(type))}; };
  if (dtype != cell.dtype) { // from the bytes in memory
    v = add_node(graph, kViewOp, v, {cell.strides, flat, int64_t{0}}, {cell.dtype, elements(cell.dtype)});
    v = add_node(graph, reinterpret, v, {static_cast<int64_t>(dtype)}, {dtype, elements(dtype)});
    base = flat;
  }
  bool whole = dtype == cell.dtype && t.storage_offset() == 0 && dims == cell.dims && strides == cell.strides;
  graph.outputs.push_back(whole ? v : add_node(graph, kViewOp, v, {base, strides, t.storage_offset()}, {dtype, dims}));
}

// ---- Texts ----

// Of the graph from `lower`.
template <typename Lower>
std::string stablehlo_text(Lower lower, const LocationText& location, GraphFormat format, int num_partitions) {
  const Precision precision = read_precision();
  StableHloOptions options{
      .products = precision.products, .convolutions = precision.convolutions, .target = engine().stablehlo_target(), .location = location};
  try {
    const Graph graph = lower();
    options.device_order = find_device_order(graph, num_partitions);
    return format == GraphFormat::kHlo ? write_hlo(graph, options) : write_stablehlo(graph, options);
  } catch (const UserError& error) {
    throw UserError(error.kind(), str("there is no StableHLO of this graph: ", error.what()));
  }
}

// Reads the trace's lines under the recording lock.
std::string text_of(const Excerpt& excerpt, int device, const std::vector<int64_t>& lines, GraphFormat format) {
  auto location = [&](int32_t node) {
    bool known = node >= 0 && static_cast<size_t>(node) < lines.size();
    return known ? location_text(lines[static_cast<size_t>(node)]) : std::string();
  };
  if (format == GraphFormat::kHlo || format == GraphFormat::kStableHlo) {
    return stablehlo_text(
        [&] { return run_passes(excerpt.graph, device, stablehlo_rules(engine().hardware())); },
        location,
        format,
        engine().num_partitions());
  }
  ListingOptions options{str(engine().hardware(), ":", device), excerpt.scalars, location};
  return format == GraphFormat::kDot ? list_dot(excerpt.graph, options) : list_graph(excerpt.graph, options);
}

std::string graph_text(int device, const Trace& trace, Graph graph, GraphFormat format) {
  if (format == GraphFormat::kHlo || format == GraphFormat::kStableHlo) { // the constants and numbers of the program
    KnownNumbers::get().find(trace).apply(graph);
    const std::vector<uint64_t> bits(graph.scalars.size()); // numbers are arguments: the text does not show their values
    return text_of(Excerpt(graph, bits), device, trace.locations(), format);
  }
  return text_of(Excerpt(graph, trace.scalar_bits()), device, trace.locations(), format);
}

std::vector<ValueId> alive_values(const Trace& trace) {
  std::vector<ValueId> values;
  for (size_t v = 0; v < trace.graph().values.size(); ++v) {
    if (trace.is_alive(static_cast<ValueId>(v))) {
      values.push_back(static_cast<ValueId>(v));
    }
  }
  return values;
}

// The trace in which the first tensor is pending, else the calling thread's.
const Trace& find_trace(int device, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& t : tensors) {
    const Cell& cell = cell_of(device, t);
    if (cell.value && cell.value->trace()) {
      return *cell.value->trace();
    }
  }
  return Recorder::current().trace(device);
}

// A copy of the trace with the tensors as outputs, or all alive values if there are none.
Graph graph_of(int device, const Trace& trace, const std::vector<at::Tensor>& tensors) {
  Graph graph = trace.graph();
  if (tensors.empty()) {
    graph.outputs = alive_values(trace);
  }
  for (const at::Tensor& t : tensors) {
    add_output(t, cell_of(device, t), trace, graph);
  }
  return graph;
}

const std::string& graph_file() {
  static const auto* path = new std::string(env::text(env::variable("XLA_SAVE_TENSORS_FILE")));
  return *path;
}

// The caller holds the device's recording lock.
LogFile& graph_file_of(int device) {
  static std::array<std::unique_ptr<LogFile>, kMaxDevices> files;
  std::unique_ptr<LogFile>& file = files[static_cast<size_t>(device)];
  if (!file) {
    const int64_t number = env::integer_or(env::variable("RANK"), 0) * num_devices() + device;
    file = std::make_unique<LogFile>("XLA_SAVE_TENSORS_FILE", str(graph_file(), ".", number));
  }
  return *file;
}

} // namespace

GraphFormat find_graph_format(const std::string& name) {
  constexpr const char* kNames[] = {"text", "dot", "hlo", "stablehlo"}; // in the order of GraphFormat
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  XLA_CHECK_KIND(Value, found != std::end(kNames), "the graph format ", name, " is not known; it can be text, dot, hlo or stablehlo");
  return static_cast<GraphFormat>(found - kNames);
}

std::string pending_text(int device, const std::vector<at::Tensor>& tensors, GraphFormat format) {
  auto lock = lock_recorder(device);
  const Trace& trace = find_trace(device, tensors);
  return graph_text(device, trace, graph_of(device, trace, tensors), format);
}

Hash128 pending_hash(int device, const std::vector<at::Tensor>& tensors) {
  auto lock = lock_recorder(device);
  const Trace& trace = find_trace(device, tensors);
  Excerpt excerpt(graph_of(device, trace, tensors), trace.scalar_bits());
  std::fill(excerpt.scalars.begin(), excerpt.scalars.end(), 0);
  std::string text = list_graph(excerpt.graph, {"", excerpt.scalars, {}});
  Hash128 hash;
  hash.add_bytes(text.data(), text.size());
  return hash;
}

std::string body_text(int device, const Body& body, GraphFormat format) {
  XLA_CHECK_KIND(
      NotImplemented,
      body.computation->draws.empty(),
      "there is no StableHLO of a program that draws random numbers: its results would be the same at each run");
  std::vector<uint64_t> bits;
  std::transform(body.numbers.begin(), body.numbers.end(), std::back_inserter(bits), [](const Number& number) { return number.bits; });
  Excerpt excerpt(body.computation->graph, bits, Inputs::kParameters);
  return stablehlo_text(
      [&] { return run_passes_on_body(excerpt.graph, device, stablehlo_rules(engine().hardware())); },
      /*location=*/{},
      format,
      /*num_partitions=*/1);
}

std::string pending_operation(const at::Tensor& tensor) {
  int device = tensor.is_privateuseone() ? tensor.get_device() : -1;
  const Cell& cell = cell_of(device, tensor);
  auto lock = lock_recorder(device);
  const Node* node = find_pending(cell);
  return node ? node->op->name : "";
}

void set_location(const at::Tensor& tensor, int64_t location) {
  int device = tensor.is_privateuseone() ? tensor.get_device() : -1;
  const Cell& cell = cell_of(device, tensor);
  auto lock = lock_recorder(device);
  if (const Node* node = find_pending(cell)) {
    Trace& trace = *cell.value->trace();
    trace.locations()[static_cast<size_t>(node - trace.graph().nodes.data())] = location;
  }
}

bool saves_graphs() {
  return !graph_file().empty();
}

static GraphFormat saved_format() {
  static const GraphFormat format = find_graph_format(env::text(env::variable("XLA_SAVE_TENSORS_FMT")));
  return format;
}

void save_graph(int device, const Trace& trace, const std::vector<ValueId>& outputs) {
  const GraphFormat format = saved_format(); // its error is the user's
  std::string text = "[ScheduleSyncTensorsGraph]\n" + (graph_name().empty() ? "" : "Graph Name: " + graph_name() + "\n");
  text += "TensorsGraphInfo:\n";
  for (const std::string& frame : current_frames(kAllFrames)) {
    text += "  " + frame + "\n";
  }
  Graph graph = trace.graph();
  graph.outputs = outputs;
  text += "\n## BEGIN_GRAPH\n";
  try {
    text += graph_text(device, trace, std::move(graph), format);
  } catch (const UserError& error) { // an operation without a StableHLO form: the program still runs
    text += str(error.what(), "\n");
  }
  text += "\nGraph Hash: " + trace.key().hex() + "\n\n## END_GRAPH\n\n";
  graph_file_of(device).append(text);
}

void save_output_shardings(int device, const Trace& trace, const Program& program) {
  if (engine().num_partitions() == 1 || (saved_format() != GraphFormat::kHlo && saved_format() != GraphFormat::kStableHlo)) {
    return;
  }
  std::string text = "#OUTPUT_SHARDING_BEGIN\n";
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::string type = type_text(trace.graph().type(program.outputs[i]));
    text += str(type, " ", sharding_text(program.executable->output_sharding(i)), "\n");
  }
  graph_file_of(device).append(text + "#OUTPUT_SHARDING_END\n\n");
}

std::string pending_graph_text(int device) {
  check_device(device);
  auto lock = lock_recorder(device);
  return print_graph(Recorder::current().trace(device).graph());
}

} // namespace torch_xla
