// Shardings in the words of Shardy: named axes of meshes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/sharding.h"

namespace torch_xla::stablehlo {

// The shardings of one program. All are over axes of one mesh where such axes exist: meshes of other sizes are parts of it.
class Shardy {
 public:
  // The devices of the partitions. A program of one device has no shardings.
  explicit Shardy(Dims order) : order_(std::move(order)) {}

  int64_t num_devices() const {
    return static_cast<int64_t>(order_.size());
  }
  // Whether the sharding is over axes of the partitions in this order.
  static bool follows(const Sharding& sharding, const Dims& order) {
    return find_axes(sharding, order).has_value();
  }
  // The sharding for a value of this rank; null is whole.
  Sharding full(const ShardingRef& sharding, size_t rank) const;
  // The name of the sharding: an alias for MLIR. Throws UserError (NotImplemented) if it does not follow the order.
  std::string name_of(const Sharding& sharding);
  // The name of the list of all axes. A program with it has one mesh.
  std::string name_of_axes() {
    names_axes_ = true;
    return "#axes";
  }
  int64_t partition_of(int64_t device) const;
  // Definitions of the names, for the lines before the module. Throws UserError (NotImplemented) for several meshes where one is needed.
  std::string definitions() const;
  // The meshes, for the first lines of the module.
  std::string meshes() const;

 private:
  // Devices at a distance, in the order of a mesh.
  struct Axis {
    int64_t stride;
    int64_t size;
  };
  using AxesOfDims = std::vector<std::vector<Axis>>; // by dim, the outermost axis first
  using Mesh = std::vector<int64_t>; // the strides of its axes with their ends: from the number of devices down to 1
  struct Named {
    Sharding sharding;
    size_t mesh;
    AxesOfDims axes;
  };

  static std::optional<AxesOfDims> find_axes(const Sharding& sharding, const Dims& order);
  static std::optional<Mesh> refine(Mesh mesh, const AxesOfDims& axes);
  std::string mesh_name(size_t mesh) const;
  void add(const Sharding& sharding);

  const Dims order_;
  std::vector<Mesh> meshes_;
  std::vector<Named> named_;
  bool names_axes_ = false;
};

} // namespace torch_xla::stablehlo
