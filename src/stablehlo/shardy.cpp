// Finds axes for tiles.
#include "stablehlo/shardy.h"

#include <algorithm>
#include <numeric>

#include "core/errors.h"
#include "ir/type.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

Dims iota(int64_t n) {
  Dims list(static_cast<size_t>(n), 0);
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// For each place among the tiles the position of its device in the order. Copies are in rising order.
Dims positions_of(const Sharding& sharding, const Dims& order) {
  Dims position(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    position[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  Dims found;
  for (int64_t device : sharding.devices) {
    found.push_back(position[static_cast<size_t>(device)]);
  }
  const int64_t copies = sharding.num_devices() / sharding.num_tiles();
  for (int64_t* at = found.begin(); at != found.end(); at += copies) {
    std::sort(at, at + copies);
  }
  return found;
}

} // namespace

// Along each dim of the tiles the positions must rise by a stride, for each axis of the dim; the innermost axis is found first.
std::optional<Shardy::AxesOfDims> Shardy::find_axes(const Sharding& sharding, const Dims& order) {
  const Dims found = positions_of(sharding, order);
  Dims sizes = sharding.tiles;
  sizes.push_back(sharding.num_devices() / sharding.num_tiles());
  const Dims places = contiguous_strides(sizes);
  Dims expected{0};
  AxesOfDims axes;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    auto at = [&](int64_t i) { return found[static_cast<size_t>(i * places[dim])]; };
    std::vector<Axis> of_dim;
    Dims steps{0};
    for (int64_t done = 1; done < sizes[dim];) {
      const int64_t stride = at(done);
      int64_t size = 2;
      while (done * size < sizes[dim] && at(done * size) == size * stride) {
        ++size;
      }
      Dims more;
      for (int64_t i = 0; i < size; ++i) {
        std::for_each(steps.begin(), steps.end(), [&](int64_t v) { more.push_back(v + i * stride); });
      }
      steps = more;
      of_dim.insert(of_dim.begin(), {stride, size});
      done *= size;
    }
    if (static_cast<int64_t>(steps.size()) != sizes[dim]) {
      return std::nullopt;
    }
    Dims all;
    for (int64_t start : expected) {
      std::for_each(steps.begin(), steps.end(), [&](int64_t v) { all.push_back(start + v); });
    }
    expected = all;
    axes.push_back(std::move(of_dim));
  }
  return expected == found ? std::make_optional(std::move(axes)) : std::nullopt;
}

// The mesh with these axes, too; nothing if some overlap.
std::optional<Shardy::Mesh> Shardy::refine(Mesh mesh, const AxesOfDims& axes) {
  for (const std::vector<Axis>& of_dim : axes) {
    for (const Axis& axis : of_dim) {
      mesh.push_back(axis.stride);
      mesh.push_back(axis.stride * axis.size);
    }
  }
  std::sort(mesh.begin(), mesh.end(), std::greater<>());
  mesh.erase(std::unique(mesh.begin(), mesh.end()), mesh.end());
  for (size_t i = 1; i < mesh.size(); ++i) {
    if (mesh[i] == 0 || mesh[i - 1] % mesh[i] != 0) {
      return std::nullopt;
    }
  }
  return mesh;
}

void Shardy::add(const Sharding& sharding) {
  std::optional<AxesOfDims> axes = find_axes(sharding, order_);
  XLA_CHECK_KIND(
      NotImplemented,
      axes,
      str("a program with values that are sharded as ", sharding.text(), " and over devices in the order ", dims_text(order_, '[', ']')),
      ": use meshes with one order of device_ids");
  const Mesh whole{num_devices(), 1};
  for (size_t i = 0; i <= meshes_.size(); ++i) {
    if (std::optional<Mesh> refined = refine(i < meshes_.size() ? meshes_[i] : whole, *axes)) {
      meshes_.resize(std::max(meshes_.size(), i + 1));
      meshes_[i] = *std::move(refined);
      named_.push_back({sharding, i, *std::move(axes)});
      return;
    }
  }
}

Sharding Shardy::full(const ShardingRef& sharding, size_t rank) const {
  return sharding ? *sharding : Sharding{Dims(rank, 1), iota(num_devices())};
}

std::string Shardy::name_of(const Sharding& sharding) {
  XLA_ASSERT(
      sharding.num_devices() == num_devices(), "a sharding over ", sharding.num_devices(), " devices in a program of ", num_devices());
  auto same = [&](const Named& named) { return named.sharding == sharding; };
  auto known = std::find_if(named_.begin(), named_.end(), same);
  const auto number = known - named_.begin();
  if (known == named_.end()) {
    add(sharding);
  }
  return str("#sharding", number);
}

int64_t Shardy::partition_of(int64_t device) const {
  return std::find(order_.begin(), order_.end(), device) - order_.begin();
}

std::string Shardy::mesh_name(size_t mesh) const {
  return mesh == 0 ? "@mesh" : str("@mesh_", mesh);
}

std::string Shardy::definitions() const {
  std::string text;
  for (size_t i = 0; i < named_.size(); ++i) {
    const Mesh& mesh = meshes_[named_[i].mesh];
    const size_t rank = named_[i].sharding.tiles.size();
    std::string dims;
    for (size_t dim = 0; dim < rank; ++dim) {
      std::string names;
      for (const Axis& axis : named_[i].axes[dim]) {
        for (size_t k = 1; k < mesh.size(); ++k) {
          const bool is_part = mesh[k] >= axis.stride && mesh[k - 1] <= axis.stride * axis.size;
          names += is_part ? str(names.empty() ? "" : ", ", quoted(str("axis_", k - 1))) : "";
        }
      }
      dims += str(dim ? ", {" : "{", names, "}");
    }
    text += str("#sharding", i, " = #sdy.sharding<", mesh_name(named_[i].mesh), ", [", dims, "]>\n");
  }
  if (names_axes_) {
    XLA_CHECK_KIND(NotImplemented, meshes_.size() == 1, "manual sharding in a program over meshes whose axes overlap: use one mesh");
    std::string names;
    for (size_t k = 1; k < meshes_[0].size(); ++k) {
      names += str(k > 1 ? ", " : "", quoted(str("axis_", k - 1)));
    }
    text += "#axes = #sdy<manual_axes{" + names + "}>\n";
  }
  return text;
}

std::string Shardy::meshes() const {
  std::string text;
  for (size_t i = 0; i < meshes_.size(); ++i) {
    std::string axes;
    for (size_t k = 1; k < meshes_[i].size(); ++k) {
      axes += str(k > 1 ? ", " : "", quoted(str("axis_", k - 1)), "=", meshes_[i][k - 1] / meshes_[i][k]);
    }
    text += str("  sdy.mesh ", mesh_name(i), " = <[", axes, "]>\n");
  }
  return text;
}

} // namespace torch_xla::stablehlo
