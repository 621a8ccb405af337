// Recording of nodes and their hashes.
#include "trace/trace.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/host_activity.h"
#include "core/metrics.h"

namespace torch_xla {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  unsigned __int128 m = static_cast<unsigned __int128>(a ^ b ^ 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;
  return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
}

// Order matters, but mix(a, b) is symmetric: a running hash is rotated before each step.
uint64_t step(uint64_t hash, uint64_t v) {
  return mix((hash << 7) | (hash >> 57), v);
}

uint64_t type_hash(const Type& type) {
  uint64_t h = static_cast<uint64_t>(type.dtype) * 64 + type.dims.size();
  for (int64_t d : type.dims) {
    h = step(h, static_cast<uint64_t>(d));
  }
  return h;
}

thread_local bool changes_expected = false;

} // namespace

// If append() throws, all lists get their old lengths back.
template <typename Append>
ValueId Trace::append(Append append) {
  const size_t nodes = graph_.nodes.size();
  const size_t values = graph_.values.size();
  const size_t parameters = graph_.parameters.size();
  const size_t scalars = graph_.scalars.size();
  const size_t offsets = offsets_.size();
  auto cut = [](auto& list, size_t size) { list.erase(list.begin() + static_cast<ptrdiff_t>(std::min(size, list.size())), list.end()); };
  try {
    const ValueId id = append();
    while (lazies_.size() < graph_.values.size()) {
      lazies_.push_back(nullptr);
    }
    return id;
  } catch (...) {
    cut(graph_.nodes, nodes);
    cut(node_hashes_, nodes);
    cut(locations_, nodes);
    cut(graph_.values, values);
    cut(lazies_, values);
    cut(graph_.parameters, parameters);
    cut(graph_.parameter_strides, parameters);
    cut(graph_.parameter_shardings, parameters);
    cut(inputs_, parameters);
    cut(graph_.scalars, scalars);
    cut(scalars_, scalars);
    cut(changing_, scalars);
    cut(offsets_, offsets);
    throw;
  }
}

uint64_t Trace::new_generation() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

ValueId Trace::find_parameter(const Buffer& buffer) const {
  if (buffer.trace_generation == generation_) {
    return buffer.trace_value;
  }
  if (buffer.trace_generation < generation_) {
    return kNoValue;
  }
  for (; num_found_ < inputs_.size(); ++num_found_) {
    found_.emplace(inputs_[num_found_].get(), graph_.parameters[num_found_]);
  }
  auto found = found_.find(&buffer);
  return found == found_.end() ? kNoValue : found->second;
}

ValueId Trace::add_input(BufferRef buffer, const Type& type) {
  const Dims strides = buffer ? buffer->strides() : Dims();
  const ShardingRef sharding = buffer ? buffer->sharding() : nullptr;
  ValueId id = append([&] {
    inputs_.push_back(std::move(buffer));
    return graph_.add_parameter(type, strides, sharding);
  });
  input_bytes_ += type.nbytes();
  key_.add(step(0x1001, type_hash(type)));
  for (int64_t s : strides) {
    key_.add(static_cast<uint64_t>(s));
  }
  if (sharding) {
    key_.add(0x3003);
    sharding->add_to(key_);
  }
  return id;
}

BufferRef Trace::buffer_of(ValueId v) const {
  const Value& value = graph_.values[static_cast<size_t>(v)];
  return value.kind == ValueKind::kParameter ? inputs_[static_cast<size_t>(value.index)] : nullptr;
}

ValueId Trace::add_parameter(const BufferRef& buffer) {
  if (buffer->trace_generation == generation_) {
    return buffer->trace_value;
  }
  if (buffer->trace_generation > generation_) {
    if (ValueId known = find_parameter(*buffer); known != kNoValue) {
      return known;
    }
  }
  ValueId id = add_input(buffer, buffer->type());
  if (buffer->trace_generation < generation_) { // else a younger trace keeps the slot
    buffer->trace_generation = generation_;
    buffer->trace_value = id;
  }
  return id;
}

void Trace::expect_changes(bool on) {
  changes_expected = on;
}

ValueId Trace::add_scalar(DType dtype, uint64_t bits) {
  ValueId id = append([&] {
    scalars_.push_back(bits);
    changing_.push_back(changes_expected);
    return graph_.add_scalar(dtype);
  });
  key_.add(0x2002 + static_cast<uint64_t>(dtype));
  return id;
}

ValueId Trace::add_node(const Op& op, InlineVec<ValueId, 4>&& operands, Attrs&& attrs, std::span<const Type> results, int64_t location) {
  host_activity::note_operation();
  uint64_t local = reinterpret_cast<uintptr_t>(&op);
  auto here = static_cast<ValueId>(graph_.values.size());
  uint64_t wiring = 0;
  for (ValueId v : operands) {
    wiring = step(wiring, static_cast<uint64_t>(v));
    if (v == kNoValue) {
      local = step(local, 3);
    } else if (graph_.values[v].kind == ValueKind::kResult) {
      local = step(local, static_cast<uint64_t>(here - v) << 2);
    } else {
      local = step(local, type_hash(graph_.values[v].type) * 4 + static_cast<uint64_t>(graph_.values[v].kind));
    }
  }
  const bool is_view = op.kind == OpKind::kView || op.kind == OpKind::kViewUpdate;
  if (!attrs.empty()) {
    Hash128 h;
    for (size_t i = 0; i < attrs.size() - is_view; ++i) { // a view's last attribute is its offset
      hash_attr(attrs[i], h);
    }
    local = step(local, h.lo);
    wiring = step(wiring, h.hi);
  }
  for (const Type& type : results) {
    local = step(local, type_hash(type));
  }
  const auto offset = is_view ? std::get<int64_t>(attrs[kViewOffset]) : 0;
  if (graph_.nodes.empty()) [[unlikely]] {
    start_ns_ = metrics::now_ns();
  }
  ValueId id = append([&] {
    node_hashes_.push_back(is_view ? step(local, static_cast<uint64_t>(offset)) : local);
    locations_.push_back(location);
    if (is_view) {
      offsets_.push_back(offset);
    }
    // The graph's own location is the node's number: a run finds the line by it in its trace.
    auto number = static_cast<int32_t>(graph_.nodes.size());
    return graph_.add_node(op, std::move(operands), std::move(attrs), results, number);
  });
  key_.add(local);
  key_.add(wiring);
  if (is_view) {
    offset_hash_ = step(offset_hash_, static_cast<uint64_t>(offset));
  }
  has_collectives_ = has_collectives_ || (op.traits & kCollective);
  return id;
}

void Trace::note_order(ValueId v, const Dims& strides) {
  auto is_v = [v](const auto& order) { return order.first == v; };
  if (std::any_of(orders_.rbegin(), orders_.rend(), is_v)) {
    return;
  }
  orders_.emplace_back(v, strides);
  key_.add(static_cast<uint64_t>(v));
  for (int64_t s : strides) {
    key_.add(static_cast<uint64_t>(s));
  }
}

int64_t Trace::orphaned_bytes() const {
  std::unordered_set<const Buffer*> replaced;
  for (const PreviousRef& previous : replaced_) {
    replaced.insert(previous->buffer.get().get());
  }
  int64_t bytes = 0;
  for (const BufferRef& input : inputs_) {
    bool is_orphaned = input->owners.load(std::memory_order_relaxed) == 0 && !replaced.contains(input.get());
    bytes += is_orphaned ? input->type().nbytes() : 0;
  }
  return bytes;
}

std::vector<Dims> Trace::orders_of(const std::vector<ValueId>& values) const {
  if (orders_.empty()) {
    return {};
  }
  std::unordered_map<ValueId, const Dims*> noted;
  for (const auto& [v, strides] : orders_) {
    noted.emplace(v, &strides);
  }
  std::vector<Dims> orders;
  for (ValueId v : values) {
    auto found = noted.find(v);
    orders.push_back(found == noted.end() ? Dims() : *found->second);
  }
  return orders;
}

LazyValue* Trace::lazy(ValueId id) {
  LazyValue*& slot = lazies_[id];
  if (slot) {
    slot->ref();
  } else {
    slot = LazyValue::pending(id, this);
  }
  return slot;
}

RecordedRef Trace::take_recorded(const std::vector<ValueId>& outputs, const std::vector<Dims>& strides) {
  auto is_free = [](const std::unique_ptr<Recorded>& recorded) { return !recorded->in_use.load(std::memory_order_acquire); };
  auto free = std::find_if(recorded_.begin(), recorded_.end(), is_free);
  if (free == recorded_.end()) {
    free = recorded_.insert(free, std::make_unique<Recorded>());
  }
  Recorded& recorded = **free;
  recorded.in_use.store(true, std::memory_order_relaxed);
  std::swap(recorded.graph, graph_);
  std::swap(recorded.overwritten, overwritten_);
  recorded.graph.outputs = outputs;
  recorded.graph.output_strides = strides;
  return RecordedRef(&recorded);
}

void Trace::clear() {
  for (LazyValue* value : lazies_) {
    if (value) {
      value->unref();
    }
  }
  graph_.clear();
  lazies_.clear();
  inputs_.clear();
  replaced_.clear();
  overwritten_.clear();
  scalars_.clear();
  changing_.clear();
  locations_.clear();
  node_hashes_.clear();
  has_collectives_ = false;
  key_ = Hash128();
  offsets_.clear();
  orders_.clear();
  input_bytes_ = 0;
  offset_hash_ = 0;
  found_.clear();
  num_found_ = 0;
  generation_ = new_generation();
}

} // namespace torch_xla
