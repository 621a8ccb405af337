// Marks of storages, and where their contents lie.
#include "recording/sharding.h"

#include <numeric>

#include "core/errors.h"
#include "core/metrics.h"
#include "engine/engine.h"
#include "ir/builder.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "recording/capture.h"
#include "trace/shards.h"

namespace torch_xla {
namespace {

bool shows(const at::Tensor& t, const Dims& dims, const Dims& strides) {
  return t.storage_offset() == 0 && same_dims(t.sizes(), to_ref(dims)) && same_dims(t.strides(), to_ref(strides));
}

Sharding replicated(size_t rank) {
  Dims devices(static_cast<size_t>(engine().num_partitions()), 0);
  std::iota(devices.begin(), devices.end(), 0);
  return {Dims(rank, 1), std::move(devices)};
}

std::optional<Sharding> sharding_of(const LazyValue& value, size_t rank) {
  if (const Trace* trace = value.trace()) {
    const Node* node = trace->graph().find_producer(value.id());
    return node ? find_constraint(*node) : std::nullopt;
  }
  Buffer& buffer = *value.buffer();
  if (!buffer.may_have_value() || (buffer.state() == Buffer::State::kReady && !buffer.get()->is_placed())) {
    return std::nullopt;
  }
  return buffer.sharding() ? *buffer.sharding() : replicated(rank);
}

// That of the tensor, which shows all elements along some dims of the cell and one place along the others, which are not cut.
std::optional<Sharding> of_shown(const at::Tensor& t, const Cell& cell, const Sharding& whole) {
  Dims tiles;
  int64_t dim = 0;
  for (size_t i = 0; i < cell.dims.size(); ++i) {
    if (dim < t.dim() && t.size(dim) == cell.dims[i] && t.stride(dim) == cell.strides[i]) {
      tiles.push_back(whole.tiles[i]);
      ++dim;
    } else if (whole.tiles[i] != 1) {
      return std::nullopt;
    }
  }
  return dim == t.dim() ? std::make_optional(Sharding{std::move(tiles), whole.devices}) : std::nullopt;
}

// Cuts the cell's value over the devices if only the host has it yet. False: nothing has changed.
bool place_value(Cell& cell, const Sharding& sharding) {
  const BufferRef& buffer = cell.value->buffer();
  if (!buffer || buffer->state() != Buffer::State::kReady || buffer->get()->is_placed()) {
    return false;
  }
  EngineBufferRef placed = engine().place(*buffer->get(), make_sharding(sharding.tiles, sharding.devices));
  if (!placed) {
    return false;
  }
  static metrics::Counter& uploads = metrics::find_or_create_counter("VirtualDeviceUsage"); // each shard to its device alone
  uploads.add();
  cell.set_value(LazyValue::ready(std::make_shared<Buffer>(std::move(placed), buffer->type().dtype)));
  return true;
}

} // namespace

ValueId Recording::constrain(ValueId v, const Sharding& sharding) {
  static const Op& op = get_op("xla::sharding_constraint");
  const Node* before = graph().find_producer(v);
  if (before && find_constraint(*before) == sharding) {
    return v;
  }
  const Type result = type(v);
  return node(op, {v}, {sharding.tiles, sharding.devices}, result);
}

ValueId Recording::as_marked(const Cell& cell, const Dims& dims, const Dims& strides, ValueId v) {
  const bool fits = cell.mark && cell.mark->dims == dims && cell.mark->strides == strides;
  return fits ? constrain(v, cell.mark->sharding) : v;
}

void Recording::mark(const at::Tensor& t, const Sharding& sharding) {
  XLA_CHECK_KIND(
      Value,
      sharding.num_devices() == engine().num_partitions() && sharding.tiles.size() == static_cast<size_t>(t.dim()),
      str("a tensor of shape ", dims_text(to_dims(t.sizes()), '[', ']'), " in a program over ", engine().num_partitions(), " devices"),
      " cannot be sharded as ",
      sharding.text());
  Cell& cell = get_cell(t);
  const bool is_whole = fills_storage(t, cell.nbytes);
  if (is_whole && (!cell.mark || shows(t, cell.mark->dims, cell.mark->strides))) { // else it is another view's
    cell.mark = std::make_shared<ShardingMark>(ShardingMark{sharding, to_dims(t.sizes()), to_dims(t.strides())});
    find_cell(t)->mark = cell.mark;
  }
  if (is_whole && t.numel() > 0 && !cell.value && !capture_) {
    set_blank_geometry(cell, t);
    find_uninitialized(cell);
  }
  const bool is_alone = is_whole && cell.value && !capture_ && shows(t, cell.dims, cell.strides);
  if (t.numel() > 0 && !(is_alone && place_value(cell, sharding))) {
    write(t, constrain(read(t), sharding));
  }
}

void place_as_marked(Cell& cell) {
  if (cell.mark && cell.mark->dims == cell.dims && cell.mark->strides == cell.strides) {
    place_value(cell, cell.mark->sharding);
  }
}

std::optional<Sharding> find_sharding(const at::Tensor& t) {
  Cell* own = find_cell(t);
  if (!own || engine().num_partitions() == 1) {
    return std::nullopt;
  }
  auto lock = lock_recorder(own->device);
  const Cell& cell = shown_cell(*own);
  if (cell.mark && shows(t, cell.mark->dims, cell.mark->strides)) {
    return cell.mark->sharding;
  }
  const std::optional<Sharding> whole = cell.value ? sharding_of(*cell.value, cell.dims.size()) : std::nullopt;
  return whole ? of_shown(t, cell, *whole) : std::nullopt;
}

static at::Tensor record(const at::Tensor& t, const Op& op, Attrs attrs) {
  Recording recording(device_number(t));
  const ValueId v = recording.read(t);
  const InlineVec<ValueId, 4> operands{v};
  InferContext context(recording.graph(), {operands.data(), operands.size()}, attrs);
  op.infer(context);
  const Type result = context.results()[0];
  return recording.wrap(recording.node(op, operands, std::move(attrs), result));
}

at::Tensor take_shard(const at::Tensor& t, const Sharding& sharding) {
  static const Op& op = get_op("xla::take_shard");
  return record(t, op, {sharding.tiles, sharding.devices});
}

at::Tensor join_shards(const at::Tensor& shard, const Sharding& sharding) {
  static const Op& op = get_op("xla::join_shards");
  return record(shard, op, {sharding.tiles, sharding.devices});
}

at::Tensor exchange_shards(const at::Tensor& shard, const std::string& name, Attrs attrs) {
  return record(shard, get_op(name), std::move(attrs));
}

bool is_shard(const at::Tensor& t) {
  Cell* own = find_cell(t);
  if (!own) {
    return false;
  }
  auto lock = lock_recorder(own->device);
  const Cell& cell = shown_cell(*own);
  if (!cell.value) {
    return false;
  }
  Trace* trace = cell.value->trace();
  return trace ? find_shards(*trace)[static_cast<size_t>(cell.value->id())] : cell.value->buffer()->is_shard;
}

void clear_mark(const at::Tensor& t) {
  Cell* own = find_cell(t);
  if (!own) {
    return;
  }
  auto lock = lock_recorder(own->device);
  for (Cell* cell : {own, &shown_cell(*own)}) {
    if (cell->mark && shows(t, cell->mark->dims, cell->mark->strides)) {
      cell->mark = nullptr;
    }
  }
}

} // namespace torch_xla
