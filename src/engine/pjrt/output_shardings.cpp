// Looks for marks, and reads OpSharding messages of protocol buffers.
#include "engine/pjrt/output_shardings.h"

#include <algorithm>
#include <numeric>

#include "ops/tables.h"

namespace torch_xla::pjrt {
namespace {

// Numbers of the fields that are read.
constexpr uint32_t kModule = 1; // HloModuleProtoWithConfig
constexpr uint32_t kOutputSharding = 12; // HloModuleProto
enum OpShardingField : uint32_t {
  kType = 1,
  kTileDims = 3,
  kTileDevices = 4,
  kTuple = 5,
  kReplicatesOnLastDim = 6,
  kLastTileDims = 8,
  kIotaDims = 9,
  kIotaOrder = 10,
};
enum ShardingKind : uint64_t { kReplicated = 0, kTupleOf = 2, kOther = 3 };

// The fields of one message, in their order. Ends at bytes that are none.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool next() {
    uint64_t key = 0;
    if (rest_.empty() || !read_varint(key)) {
      return false;
    }
    number = static_cast<uint32_t>(key >> 3);
    bytes = {};
    switch (key & 7) {
      case 0:
        return read_varint(value);
      case 1:
        return skip(8);
      case 2:
        return read_varint(value) && take(value);
      case 5:
        return skip(4);
      default:
        return false;
    }
  }
  // A repeated number: one element, or all of them packed.
  void append_to(std::vector<int64_t>& list) const {
    if (bytes.empty()) {
      list.push_back(static_cast<int64_t>(value));
      return;
    }
    Fields packed(bytes);
    for (uint64_t v = 0; packed.read_varint(v);) {
      list.push_back(static_cast<int64_t>(v));
    }
  }

  uint32_t number = 0;
  uint64_t value = 0; // of a number
  std::string_view bytes; // of a message or text

 private:
  bool read_varint(uint64_t& v) {
    v = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      v |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        return true;
      }
    }
    return false;
  }
  bool take(uint64_t size) {
    if (size > rest_.size()) {
      return false;
    }
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  bool skip(uint64_t size) {
    rest_.remove_prefix(std::min<size_t>(size, rest_.size()));
    return true;
  }

  std::string_view rest_;
};

std::optional<std::string_view> find_field(std::string_view message, uint32_t number) {
  for (Fields fields(message); fields.next();) {
    if (fields.number == number) {
      return fields.bytes;
    }
  }
  return std::nullopt;
}

struct OpSharding {
  uint64_t kind = kReplicated;
  std::vector<int64_t> tile_dims;
  std::vector<int64_t> devices;
  std::vector<int64_t> iota_dims;
  std::vector<int64_t> iota_order;
  std::vector<int64_t> last_kinds; // of the last tile dims, which are none of the value's
  std::vector<std::string_view> of_tuple;

  explicit OpSharding(std::string_view message) {
    for (Fields fields(message); fields.next();) {
      switch (fields.number) {
        case kType:
          kind = fields.value;
          break;
        case kTileDims:
          fields.append_to(tile_dims);
          break;
        case kTileDevices:
          fields.append_to(devices);
          break;
        case kTuple:
          of_tuple.push_back(fields.bytes);
          break;
        case kReplicatesOnLastDim:
          last_kinds.assign(fields.value ? 1 : 0, kReplicated);
          break;
        case kLastTileDims:
          fields.append_to(last_kinds);
          break;
        case kIotaDims:
          fields.append_to(iota_dims);
          break;
        case kIotaOrder:
          fields.append_to(iota_order);
          break;
        default:
          break;
      }
    }
  }
};

// The numbers from 0 on, as an array of these dims with its dims in another order.
Dims iota_devices(const std::vector<int64_t>& dims, const std::vector<int64_t>& order) {
  const Dims strides = contiguous_strides(Dims(dims.data(), dims.size()));
  Dims devices{0};
  for (int64_t dim : order) {
    Dims longer;
    for (int64_t start : devices) {
      for (int64_t i = 0; i < dims[static_cast<size_t>(dim)]; ++i) {
        longer.push_back(start + i * strides[static_cast<size_t>(dim)]);
      }
    }
    devices = longer;
  }
  return devices;
}

bool are_positions(const std::vector<int64_t>& order, size_t size) {
  std::vector<int64_t> sorted = order, all(size);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  return sorted == all;
}

std::optional<ShardingRef> convert(const OpSharding& from, size_t rank, const Dims& order) {
  if (from.kind == kReplicated) {
    return ShardingRef();
  }
  bool is_known = from.kind == kOther && from.tile_dims.size() == rank + from.last_kinds.size() &&
      std::all_of(from.last_kinds.begin(), from.last_kinds.end(), [](int64_t kind) { return kind == kReplicated; }) &&
      are_positions(from.iota_order, from.iota_dims.size());
  Dims devices = !is_known   ? Dims()
      : from.devices.empty() ? iota_devices(from.iota_dims, from.iota_order)
                             : Dims(from.devices.data(), from.devices.size());
  if (devices.size() != order.size()) {
    return std::nullopt;
  }
  for (int64_t& device : devices) { // a partition so far
    if (device < 0 || device >= static_cast<int64_t>(order.size())) {
      return std::nullopt;
    }
    device = order[static_cast<size_t>(device)];
  }
  return make_sharding(Dims(from.tile_dims.data(), rank), std::move(devices));
}

} // namespace

WantedShardings settled_shardings(const Graph& graph) {
  const bool cuts = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return find_named(node); }) ||
      std::any_of(graph.parameter_shardings.begin(), graph.parameter_shardings.end(), [](const ShardingRef& s) { return s != nullptr; });
  WantedShardings wanted;
  for (ValueId v : graph.outputs) {
    const Value& value = graph.values[v];
    const Node* node = graph.find_producer(v);
    const std::optional<Sharding> mark = node ? find_constraint(*node) : std::nullopt;
    if (mark) {
      wanted.emplace_back(make_sharding(mark->tiles, mark->devices));
    } else if (value.kind == ValueKind::kParameter) {
      wanted.emplace_back(graph.parameter_shardings[static_cast<size_t>(value.index)]);
    } else {
      wanted.push_back(cuts ? std::nullopt : std::make_optional<ShardingRef>());
    }
  }
  return wanted;
}

std::optional<std::vector<ShardingRef>> read_output_shardings(
    std::string_view program, std::string_view format, const std::vector<size_t>& ranks, const Dims& order) {
  if (ranks.empty()) {
    return std::vector<ShardingRef>();
  }
  std::optional<std::string_view> module;
  if (format == "hlo_with_config") {
    module = find_field(program, kModule);
  } else if (format == "hlo") {
    module = program;
  }
  const std::optional<std::string_view> message = module ? find_field(*module, kOutputSharding) : std::nullopt;
  if (!message) {
    return std::nullopt;
  }
  const OpSharding whole(*message);
  const std::vector<std::string_view> parts = whole.kind == kTupleOf ? whole.of_tuple : std::vector<std::string_view>{*message};
  if (parts.size() != ranks.size()) {
    return std::nullopt;
  }
  std::vector<ShardingRef> shardings;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::optional<ShardingRef> sharding = convert(OpSharding(parts[i]), ranks[i], order);
    if (!sharding) {
      return std::nullopt;
    }
    shardings.push_back(*std::move(sharding));
  }
  return shardings;
}

} // namespace torch_xla::pjrt
