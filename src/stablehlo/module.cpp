// The module around the function's operations: arguments, results, meshes, locations.
#include <algorithm>

#include "core/errors.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// The attributes that are not empty, as a dictionary after a type.
std::string dictionary(std::initializer_list<std::string> attributes) {
  std::string text;
  for (const std::string& attribute : attributes) {
    text += attribute.empty() ? "" : (text.empty() ? " {" : ", ") + attribute;
  }
  return text.empty() ? text : text + "}";
}

// "file.py:12" as loc("file.py":12:0), another name as loc("name").
std::string location_text(const std::string& location) {
  auto [file, line] = file_and_line(location);
  return line.empty() ? str("loc(", quoted(file), ")") : str("loc(", quoted(file), ":", line, ":0)");
}

// The same with copies in place of the tiles along dims that would have padding.
Sharding without_padding(const Sharding& sharding, const Dims& dims) {
  const Dims& tiles = sharding.tiles;
  Sharding other{tiles, {}};
  for (size_t i = 0; i < dims.size(); ++i) {
    other.tiles[i] = dims[i] % tiles[i] == 0 ? tiles[i] : 1;
  }
  std::vector<std::vector<int64_t>> of_tile(static_cast<size_t>(other.num_tiles()));
  const int64_t copies = sharding.num_devices() / sharding.num_tiles();
  for (int64_t i = 0; i < sharding.num_devices(); ++i) {
    int64_t rest = i / copies, number = 0, step = 1;
    for (size_t dim = tiles.size(); dim-- > 0; rest /= tiles[dim]) {
      number += other.tiles[dim] == 1 ? 0 : rest % tiles[dim] * step;
      step *= other.tiles[dim];
    }
    of_tile[static_cast<size_t>(number)].push_back(sharding.devices[static_cast<size_t>(i)]);
  }
  for (const std::vector<int64_t>& list : of_tile) {
    std::for_each(list.begin(), list.end(), [&](int64_t device) { other.devices.push_back(device); });
  }
  return other;
}

} // namespace

Hlo Text::constrain(const Hlo& x, const Sharding& sharding) {
  if (!is_partitioned()) {
    return x;
  }
  // XLA pads other ones inside programs, but some of its partitioners end the process on them.
  const Sharding even = sharding.pads(x.dims()) ? without_padding(sharding, x.dims()) : sharding;
  return op("sdy.sharding_constraint", {x}, {{"sharding", shardy_.name_of(even)}}, x.type());
}

Hlos Text::manual_computation(const Hlos& operands, const ManualRegion& region, const std::vector<Type>& results) {
  auto list = [this](const std::vector<Sharding>& shardings) {
    std::string names;
    for (const Sharding& sharding : shardings) {
      names += (names.empty() ? "" : ", ") + shardy_.name_of(sharding);
    }
    return "#sdy.sharding_per_value<[" + names + "]>";
  };
  const Attributes attributes{
      {"in_shardings", list(region.inputs)}, {"manual_axes", shardy_.name_of_axes()}, {"out_shardings", list(region.outputs)}};
  return op("sdy.manual_computation", operands, attributes, results, {region.body});
}

std::string Text::sharding_attribute(const ShardingRef& sharding, const Type& type) {
  return !is_partitioned() ? "" : "sdy.sharding = " + shardy_.name_of(shardy_.full(sharding, type.dims.size()));
}

Hlo Text::argument(const Type& type, const ShardingRef& sharding) {
  arguments_.push_back(type);
  argument_shardings_.push_back(sharding_attribute(sharding, type));
  return {this, "%arg" + std::to_string(arguments_.size() - 1), type};
}

std::string Text::finish(
    const Hlos& results,
    const std::vector<std::string>& argument_attributes,
    std::span<const std::optional<ShardingRef>> result_shardings) {
  std::string arguments, types, names, sharded_types;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    arguments += str(i ? ", " : "", "%arg", i, ": ", tensor_text(arguments_[i]));
    arguments += dictionary({argument_attributes[i], argument_shardings_[i]});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const bool is_settled = i < result_shardings.size() && result_shardings[i];
    const std::string type = str(i ? ", " : "", tensor_text(results[i].type()));
    types += type;
    names += (i ? ", " : "") + results[i].name();
    sharded_types += type + dictionary({is_settled ? sharding_attribute(*result_shardings[i], results[i].type()) : ""});
  }
  line("\"func.return\"(" + names + ") : (" + types + ") -> ()");
  const int64_t partitions = shardy_.num_devices();
  std::string text = shardy_.definitions() + "module @program";
  text += partitions == 1
      ? " {\n"
      : str(" attributes {mhlo.num_partitions = ", partitions, " : i32, mhlo.num_replicas = 1 : i32} {\n", shardy_.meshes());
  text += "  func.func public @main(" + arguments + ") -> (" + sharded_types + ") {\n" + body_ + "  }\n";
  text += functions_ + "}\n";
  for (size_t i = 0; i < locations_.size(); ++i) {
    text += str("#loc", i, " = ", location_text(locations_[i]), "\n");
  }
  return text;
}

} // namespace torch_xla::stablehlo
