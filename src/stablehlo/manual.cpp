// Finds manual regions, and writes collectives between their devices.
#include "stablehlo/manual.h"

#include <algorithm>
#include <numeric>

#include "core/errors.h"
#include "ir/shards.h"
#include "ops/tables.h"
#include "stablehlo/call.h"

namespace torch_xla::stablehlo {
namespace {

class Splitter {
 public:
  Splitter(const Graph& graph, int64_t num_devices)
      : graph_(graph), num_devices_(num_devices), places_(graph.values.size()), part_of_(graph.nodes.size()) {}

  std::vector<Part> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      place(i);
    }
    for (const Part& part : parts_) {
      std::for_each(part.nodes.begin(), part.nodes.end(), [this](const Node* node) { add_ports(*node); });
    }
    find_used_outside();
    return std::move(parts_);
  }

 private:
  // A value of the whole program comes from its first region at the earliest with level 1, and so on. Regions of level i read whole values
  // up to that level.
  struct Place {
    size_t level = 0;
    bool is_shard = false;
  };

  size_t number_of(const Node& node) const {
    return static_cast<size_t>(&node - graph_.nodes.data());
  }

  void place(size_t i) {
    const Node& node = graph_.nodes[i];
    Place at;
    for (ValueId v : node.operands) {
      if (v != kNoValue) {
        at.level = std::max(at.level, places_[v].level);
        at.is_shard = at.is_shard || places_[v].is_shard;
      }
    }
    const bool joins = find_joined(node).has_value();
    at.is_shard = at.is_shard || is_of_shards(*node.op);
    const size_t part = 2 * at.level + (at.is_shard ? 1 : 0);
    parts_.resize(std::max(parts_.size(), part + 1));
    parts_[part].is_manual = at.is_shard;
    parts_[part].nodes.push_back(&node);
    part_of_[i] = part;
    for (int32_t r = 0; r < node.num_results; ++r) {
      places_[node.result(r)] = joins ? Place{at.level + 1, false} : at;
    }
  }

  // The value as it is on each device.
  Part::Port same(ValueId v) const {
    Dims devices(static_cast<size_t>(num_devices_), 0);
    std::iota(devices.begin(), devices.end(), 0);
    return {v, v, {Dims(graph_.type(v).dims.size(), 1), std::move(devices)}};
  }

  static void add(std::vector<Part::Port>& ports, Part::Port port) {
    auto is_same = [&](const Part::Port& other) { return other.inside == port.inside && other.outside == port.outside; };
    if (std::none_of(ports.begin(), ports.end(), is_same)) {
      ports.push_back(std::move(port));
    }
  }

  void add_ports(const Node& node) {
    const size_t number = part_of_[number_of(node)];
    Part& part = parts_[number];
    if (!part.is_manual) {
      return;
    }
    if (std::optional<Sharding> taken = find_taken(node)) {
      add(part.inputs, {node.operands[0], node.result(), *std::move(taken)});
      return;
    }
    for (ValueId v : node.operands) {
      const Node* producer = graph_.find_producer(v);
      if (v != kNoValue && (!producer || part_of_[number_of(*producer)] != number)) {
        add(part.inputs, same(v));
      }
    }
    if (std::optional<Sharding> joined = find_joined(node)) {
      add(part.outputs, {node.result(), node.operands[0], *std::move(joined)});
    }
  }

  void add_output(ValueId v) {
    const Node* producer = graph_.find_producer(v);
    if (producer && !find_joined(*producer) && parts_[part_of_[number_of(*producer)]].is_manual) {
      add(parts_[part_of_[number_of(*producer)]].outputs, same(v));
    }
  }

  // Shards that later regions, or the program's reader, get.
  void find_used_outside() {
    for (const Node& node : graph_.nodes) {
      for (ValueId v : node.operands) {
        const Node* producer = graph_.find_producer(v);
        if (producer && part_of_[number_of(*producer)] != part_of_[number_of(node)]) {
          add_output(v);
        }
      }
    }
    std::for_each(graph_.outputs.begin(), graph_.outputs.end(), [this](ValueId v) { add_output(v); });
  }

  const Graph& graph_;
  const int64_t num_devices_;
  std::vector<Place> places_; // by value
  std::vector<size_t> part_of_; // by node
  std::vector<Part> parts_;
};

// ---- Writers ----
// In texts without regions these are XLA's calls.
Hlo write_call(const Hlo& x, const char* target, const std::string& sharding, const Type& result) {
  const Attributes attributes{{"call_target_name", quoted(target)}, {"has_side_effect", "false"}, {"mhlo.sharding", quoted(sharding)}};
  return x.text().op("custom_call", {x}, attributes, result);
}

void write_take(Call& c) {
  c.set(0, write_call(c[0], "SPMDFullToShardShape", "{manual}", c.result_type(0)));
}

void write_join(Call& c) {
  const Sharding sharding{c.get_dims(kShardTiles), c.get_dims(kShardDevices)};
  const Hlo shard = write_call(c[0], "Sharding", "{manual}", c[0].type());
  c.set(0, write_call(shard, "SPMDShardToFullShape", sharding.text(), c.result_type(0)));
}

// The groups of devices as a list of lists, and the channel between them.
Attributes between_devices(Call& c, const char* name) {
  Text& text = c.text();
  const Dims devices = c.get_dims(kShardGroups);
  const size_t size = devices.size() / static_cast<size_t>(c.get_int(kShardNumGroups));
  std::string groups;
  for (size_t i = 0; i < devices.size(); ++i) {
    groups += str(i % size ? ", " : i ? "], [" : "[", text.partition_of(devices[i]));
  }
  return {
      {name, str("dense<[", groups, "]]> : tensor<", devices.size() / size, "x", size, "xi64>")},
      {"channel_handle", str("#stablehlo.channel_handle<handle = ", text.next_channel(), ", type = 1>")}};
}

void write_reduction(Call& c, const char* name, const Attributes& own) {
  Attributes attributes = own;
  for (const auto& attribute : between_devices(c, "replica_groups")) {
    attributes.push_back(attribute);
  }
  attributes.push_back({"use_global_device_ids", "unit"});
  const std::string& reduction = std::get<std::string>(c.attr(kShardReduction));
  const Type number{c[0].dtype(), {}};
  const Region region{{number, number}, [&](const Hlos& v) { return Hlos{binary(reduction.c_str(), v[0], v[1])}; }};
  c.set(0, c.text().op(name, {c[0]}, attributes, {c.result_type(0)}, {region})[0]);
}

void write_all_reduce(Call& c) {
  write_reduction(c, "all_reduce", {});
}

void write_reduce_scatter(Call& c) {
  write_reduction(c, "reduce_scatter", {{"scatter_dimension", int_text(c.get_int(kShardDim))}});
}

void write_all_gather(Call& c) {
  Attributes attributes = between_devices(c, "replica_groups");
  attributes.push_back({"all_gather_dim", int_text(c.get_int(kShardDim))});
  attributes.push_back({"use_global_device_ids", "unit"});
  c.set(0, c.text().op("all_gather", {c[0]}, attributes, c.result_type(0)));
}

void write_all_to_all(Call& c) {
  Attributes attributes = between_devices(c, "replica_groups");
  const auto of_group = static_cast<int64_t>(c.get_dims(kShardGroups).size()) / c.get_int(kShardNumGroups);
  attributes.push_back({"split_dimension", int_text(c.get_int(kShardDim))});
  attributes.push_back({"concat_dimension", int_text(c.get_int(kShardJoinedDim))});
  attributes.push_back({"split_count", int_text(of_group)});
  c.set(0, c.text().op("all_to_all", {c[0]}, attributes, c.result_type(0)));
}

void write_permute(Call& c) {
  c.set(0, c.text().op("collective_permute", {c[0]}, between_devices(c, "source_target_pairs"), c.result_type(0)));
}

constexpr Writer kWriters[] = {
    {"xla::take_shard", write_take},
    {"xla::join_shards", write_join},
    {"xla::all_reduce_shards", write_all_reduce},
    {"xla::reduce_scatter_shards", write_reduce_scatter},
    {"xla::all_gather_shards", write_all_gather},
    {"xla::all_to_all_shards", write_all_to_all},
    {"xla::permute_shards", write_permute},
};

} // namespace

std::vector<Part> split_by_regions(const Graph& graph, int64_t num_devices) {
  return Splitter(graph, num_devices).run();
}

std::span<const Writer> shard_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
