// grid_sampler: interpolation at the places that a grid names.
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

enum Interpolation { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Border { kZeros = 0, kBorder = 1, kReflection = 2 };

// One element that the grid reads along a dim, and its weight; elements outside count as 0 if a mask says so.
struct Tap {
  Hlo index; // within the dim
  Hlo weight; // empty: 1
  Hlo inside; // empty: everywhere
};

// Attributes interpolation, padding, align_corners.
class Sampler {
 public:
  Sampler(const Call& c, int64_t extent)
      : interpolation_(c.get_int(0)), border_(c.get_int(1)), align_(c.get_bool(2)), extent_(static_cast<double>(extent)) {}

  // Of grid coordinates from -1 to 1.
  std::vector<Tap> taps(const Hlo& grid) const {
    Hlo at = align_ ? (grid + 1) / 2 * (extent_ - 1) : ((grid + 1) * extent_ - 1) / 2;
    if (interpolation_ == kBicubic) {
      return cubic(at);
    }
    at = keep_inside(at);
    return interpolation_ == kNearest ? std::vector<Tap>{tap(unary("round_nearest_even", at), Hlo())} : linear(at);
  }

 private:
  Hlo reflect(const Hlo& at) const {
    double low = align_ ? 0 : -0.5;
    double span = align_ ? extent_ - 1 : extent_;
    if (span == 0) {
      return constant_like(at, 0);
    }
    Hlo distance = unary("abs", at - low);
    Hlo flips = unary("floor", distance / span);
    Hlo extra = binary("remainder", distance, constant_like(distance, span));
    Hlo odd = binary("remainder", flips, constant_like(flips, 2)) != 0;
    return select(odd, constant_like(extra, span + low) - extra, extra + low);
  }
  Hlo keep_inside(const Hlo& at) const {
    if (border_ == kZeros) {
      return at;
    }
    return clamp(border_ == kReflection ? reflect(at) : at, 0, extent_ - 1);
  }
  Tap tap(const Hlo& place, const Hlo& weight) const {
    Tap t{convert(clamp(place, 0, extent_ - 1), DType::I64), weight, Hlo()};
    if (border_ == kZeros) {
      t.inside = (place >= 0) & (place <= extent_ - 1);
    }
    return t;
  }
  std::vector<Tap> linear(const Hlo& at) const {
    Hlo first = unary("floor", at);
    Hlo part = at - first;
    Tap second = tap(first + 1, part);
    second.inside = (first + 1 >= 0) & (first + 1 <= extent_ - 1); // its weight is 0 at the border, but the element may be NaN
    return {tap(first, 1.0 - part), second};
  }
  // Keys' kernel with a = -0.75.
  static Hlo near_weight(const Hlo& x) {
    return (x * 1.25 - 2.25) * x * x + 1;
  }
  static Hlo far_weight(const Hlo& x) {
    return ((x * -0.75 + 3.75) * x - 6) * x + 3;
  }
  std::vector<Tap> cubic(const Hlo& at) const {
    Hlo first = unary("floor", at);
    Hlo part = at - first;
    Hlo weights[] = {far_weight(part + 1), near_weight(part), near_weight(1.0 - part), far_weight(2.0 - part)};
    std::vector<Tap> taps;
    for (int k = 0; k < 4; ++k) {
      taps.push_back(tap(keep_inside(first + (k - 1)), weights[k]));
    }
    return taps;
  }

  int64_t interpolation_;
  int64_t border_;
  bool align_;
  double extent_;
};

Hlo multiplied(const Hlo& a, const Hlo& b) {
  return a.rank() == 0 ? b : b.rank() == 0 ? a : a * b;
}

// Sums over the taps of all dims.
class Sum {
 public:
  Sum(const Hlo& x, std::vector<std::vector<Tap>> taps) : x_(x), taps_(std::move(taps)) {}

  Hlo run() {
    Hlo batch = iota(x_.text(), taps_[0][0].index.dims(), 0, DType::I64);
    add({batch}, {});
    return sum_;
  }

 private:
  void add(const Hlos& coordinates, const std::vector<Tap>& chosen) {
    if (chosen.size() < taps_.size()) {
      for (const Tap& t : taps_[chosen.size()]) {
        Hlos longer = coordinates;
        longer.push_back(t.index);
        std::vector<Tap> more = chosen;
        more.push_back(t);
        add(longer, more);
      }
      return;
    }
    std::vector<size_t> dims{0};
    for (size_t d = 2; d < x_.rank(); ++d) {
      dims.push_back(d);
    }
    add_part(gather(x_, dims, coordinates, 0), chosen);
  }
  // [N, out..., C]
  void add_part(Hlo part, const std::vector<Tap>& chosen) {
    Dims mapping;
    for (size_t d = 0; d + 1 < part.rank(); ++d) {
      mapping.push_back(static_cast<int64_t>(d));
    }
    Hlo weight;
    Hlo inside;
    for (const Tap& t : chosen) {
      weight = multiplied(weight, t.weight);
      inside = inside.rank() == 0 ? t.inside : t.inside.rank() == 0 ? inside : inside & t.inside;
    }
    part = weight.rank() == 0 ? part : part * broadcast_in_dim(weight, part.dims(), mapping);
    part = inside.rank() == 0 ? part : select(broadcast_in_dim(inside, part.dims(), mapping), part, 0);
    sum_ = sum_.rank() == 0 ? part : sum_ + part;
  }

  Hlo x_;
  std::vector<std::vector<Tap>> taps_; // by spatial dim
  Hlo sum_;
};

// Operands input [N, C, (D,) H, W] and grid [N, ..., rank]; the grid's last dim starts with the fastest dim's coordinate.
void write_grid_sampler(Call& c) {
  Hlo x = c.computed(0);
  Hlo grid = c.computed(1);
  size_t last = grid.rank() - 1;
  Dims places = without(grid.dims(), last);
  std::vector<std::vector<Tap>> taps;
  for (size_t d = 2; d < x.rank(); ++d) {
    auto which = static_cast<int64_t>(x.rank() - 1 - d);
    Hlo coordinate = reshape(slice_dim(grid, last, which, which + 1), places);
    taps.push_back(Sampler(c, x.dim(d)).taps(coordinate));
  }
  Hlo sum = Sum(x, std::move(taps)).run();
  c.set(0, move_dim(sum, sum.rank() - 1, 1));
}

constexpr Writer kWriters[] = {
    {"aten::grid_sampler_2d", write_grid_sampler},
    {"aten::grid_sampler_3d", write_grid_sampler},
};

} // namespace

std::span<const Writer> grid_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
