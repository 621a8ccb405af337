// A tensor's state as text.
#include "core/errors.h"
#include "engine/engine.h"
#include "ir/listing.h"
#include "program/pending_graph.h"
#include "trace/cell.h"
#include "trace/recorder.h"

namespace torch_xla {
namespace {

// In the original's words, which has a form for values on several devices.
std::string data_text(const Buffer& buffer, int device) {
  const char* state = buffer.state() == Buffer::State::kReady ? "ready" : buffer.state() == Buffer::State::kFailed ? "failed" : "queued";
  const int partitions = engine().num_partitions();
  const std::string place = partitions > 1 ? "SPMD" : engine().hardware();
  std::string text = str(partitions > 1 ? "XLAShardedData:" : "XLAData:", "\n  Data Device: ", place, ":", device, "\n  Data Shape: ");
  text += shape_text(buffer.type());
  if (partitions > 1) {
    text += str("\n  OpSharding: ", sharding_text(buffer.sharding()), "\n  NumShards: ", partitions);
  }
  return text + str("\n  Data Handle: ", static_cast<const void*>(&buffer), "\n  State: ", state, "\n");
}

} // namespace

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) {
    return "Not a XLATensor\n";
  }
  const int device = tensor.get_device();
  Cell* found = find_cell(tensor);
  XLA_CHECK(found, kNoCell);
  const Cell& cell = *found;
  auto lock = lock_recorder(device);
  std::string shape = shape_text({to_dtype(tensor.scalar_type()), to_dims(tensor.sizes())});
  std::string ir = "None", data = "XLAData: None\n", host = "None", sharding = cell.mark ? cell.mark->sharding.text() : "None";
  const bool is_spread = engine().num_partitions() > 1;
  if (cell.value && cell.value->buffer()) {
    Buffer& buffer = *cell.value->buffer();
    if (is_spread && buffer.state() == Buffer::State::kReady && !buffer.get()->is_placed()) { // it waits for a mark or its first use
      host = c10::str("with size ", tensor.sizes());
    } else {
      data = data_text(buffer, device);
      sharding = cell.mark || !is_spread ? sharding : sharding_text(buffer.sharding());
      ir = is_spread ? str(shape_text(buffer.type()), " xla::device_data") : ir;
    }
  } else if (cell.value && cell.value->trace()) {
    const Graph& graph = cell.value->trace()->graph();
    const Node* node = graph.find_producer(cell.value->id());
    ir = node ? str(shape_text(graph.type(cell.value->id())), " ", node->op->name) : ir;
  }
  auto id = reinterpret_cast<uintptr_t>(tensor.unsafeGetTensorImpl());
  auto alias = reinterpret_cast<uintptr_t>(tensor.storage().data());
  const std::string place = str(is_spread ? "SPMD:" : "xla:", device);
  return str("XLATensor {\nTensorID: ", id, "\nAliasID: ", alias, "\nDevice: ", place, "\nXLA Shape: ", shape) +
      str("\nShardingSpec: ", sharding, "\nIR: ", ir, "\n", data, "Tensor on host: ", host, "\n}\n");
}

} // namespace torch_xla
