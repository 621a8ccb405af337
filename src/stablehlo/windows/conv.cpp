// Convolutions: the forward form, and its two gradients, which also make the transposed convolution.
#include <optional>

#include "core/errors.h"
#include "ops/rules.h"
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

// Per spatial dim.
struct ConvWindow {
  Dims stride;
  Dims padding;
  Dims dilation;
  int64_t groups = 1;
};

// Attributes stride, padding, dilation, transposed, output padding, groups, from `first` on.
ConvWindow read_window(const Call& c, size_t first, size_t spatial) {
  ConvWindow w;
  for (size_t i = 0; i < spatial; ++i) {
    w.stride.push_back(pick(c.get_dims(first), i, 1));
    w.padding.push_back(pick(c.get_dims(first + 1), i, 0));
    w.dilation.push_back(pick(c.get_dims(first + 2), i, 1));
  }
  w.groups = c.get_int(first + 5, 1);
  return w;
}

struct RawConv {
  const char* layout; // two letters each for the first two dims of lhs, rhs and result; the spatial dims follow
  Dims stride;
  Dims low;
  Dims high;
  Dims lhs_dilation;
  Dims rhs_dilation;
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
};

std::string layout_text(const char* letters, size_t spatial) {
  std::string text = str("[", letters[0], ", ", letters[1]);
  for (size_t i = 0; i < spatial; ++i) {
    text += str(", ", i);
  }
  return text + "]";
}

Dims spatial_of(const Dims& dims) {
  return Dims(dims.data() + 2, dims.size() - 2);
}

// The elements at `tap` in the windows of x after padding and dilation: [N, channels, out ...].
Hlo elements_at(Hlo x, const Dims& tap, const RawConv& conv, const Dims& dims) {
  Dims starts{0, 0};
  Dims limits{x.dim(0), x.dim(1)};
  Dims steps{1, 1};
  for (size_t i = 0; i < tap.size(); ++i) {
    starts.push_back(tap[i] * conv.rhs_dilation[i]);
    limits.push_back(starts.back() + (dims[2 + i] - 1) * conv.stride[i] + 1);
    steps.push_back(conv.stride[i]);
  }
  return slice(x, starts, limits, steps);
}

// The weight's elements at `tap`: [out channels, in channels of a group].
Hlo weight_at(Hlo weight, const Dims& tap, const RawConv& conv) {
  Dims starts{0, 0};
  Dims limits{weight.dim(0), weight.dim(1)};
  for (int64_t i : tap) {
    starts.push_back(i);
    limits.push_back(i + 1);
  }
  Hlo part = reshape(slice(weight, starts, limits, Dims(starts.size(), 1)), {weight.dim(0), weight.dim(1)});
  return conv.layout[2] == 'o' ? part : transpose(part, {1, 0});
}

// Moves on to the next tap, the last dim first; false behind the last one.
bool advance(Dims& tap, const Dims& extents) {
  for (size_t i = tap.size(); i-- > 0;) {
    if (++tap[i] < extents[i]) {
      return true;
    }
    tap[i] = 0;
  }
  return false;
}

// As a sum of products, one for each tap: GPUs' libraries have no convolution of integers. There are no gradients of these.
Hlo integer_conv(Hlo x, Hlo weight, const RawConv& conv, const Dims& dims) {
  Dims low{0, 0};
  Dims high{0, 0};
  Dims interior{0, 0};
  for (size_t i = 0; i < conv.stride.size(); ++i) {
    low.push_back(conv.low[i]);
    high.push_back(conv.high[i]);
    interior.push_back(conv.lhs_dilation[i] - 1);
  }
  x = pad(x, number<0>(x.text(), x.dtype()), low, high, interior);
  int64_t groups = conv.feature_groups;
  int64_t positions = num_elements(spatial_of(dims));
  Dims tap(conv.stride.size(), 0);
  std::optional<Hlo> sum;
  do {
    Hlo part = reshape(elements_at(x, tap, conv, dims), {dims[0], groups, x.dim(1) / groups, positions});
    Hlo factors = reshape(weight_at(weight, tap, conv), {groups, dims[1] / groups, x.dim(1) / groups});
    Hlo product = dot(factors, part, {0}, {1}, {2}, {2}); // [groups, out channels, N, positions]
    sum = sum ? *sum + product : product;
  } while (advance(tap, spatial_of(weight.dims())));
  return reshape(transpose(*sum, {2, 0, 1, 3}), dims);
}

Hlo raw_conv(Hlo lhs, Hlo rhs, const RawConv& conv, const Dims& dims) {
  if (is_integral(lhs.dtype(), true)) {
    return integer_conv(lhs, rhs, conv, dims);
  }
  size_t spatial = conv.stride.size();
  std::string numbers =
      str("#stablehlo.conv<",
          layout_text(conv.layout, spatial),
          "x",
          layout_text(conv.layout + 2, spatial),
          "->",
          layout_text(conv.layout + 4, spatial),
          ">");
  Attributes attributes{
      {"window_strides", array_text(conv.stride)},
      {"padding", pairs_text(conv.low, conv.high)},
      {"lhs_dilation", array_text(conv.lhs_dilation)},
      {"rhs_dilation", array_text(conv.rhs_dilation)},
      {"dimension_numbers", numbers},
      {"feature_group_count", int_text(conv.feature_groups)},
      {"batch_group_count", int_text(conv.batch_groups)}};
  add_precision(attributes, lhs.text().convolutions, lhs.dtype());
  return lhs.text().op("convolution", {lhs, rhs}, attributes, {compute_type(lhs.dtype()), dims});
}

Dims ones(const ConvWindow& w) {
  return Dims(w.stride.size(), 1);
}

// x [N, I, ...], weight [O, I / groups, ...] -> [N, O, out ...]
Hlo forward(Hlo x, Hlo weight, const ConvWindow& w, const Dims& out) {
  RawConv conv{"bfoibf", w.stride, w.padding, w.padding, ones(w), w.dilation, w.groups};
  Dims dims{x.dim(0), weight.dim(0)};
  for (size_t i = 0; i < out.size(); ++i) {
    dims.push_back(out[i]);
    // Elements after the last window are not part of the convolution.
    int64_t covered = (out[i] - 1) * w.stride[i] + (weight.dim(2 + i) - 1) * w.dilation[i] + 1;
    conv.high[i] = covered - x.dim(2 + i) - w.padding[i];
  }
  return raw_conv(x, weight, conv, dims);
}

// [O, I / groups, ...] -> [I, O / groups, ...]
Hlo swap_channels(Hlo weight, int64_t groups) {
  Dims dims = weight.dims();
  int64_t outputs = dims[0] / groups;
  int64_t inputs = dims[1];
  if (groups == 1) {
    return weight; // the layout says it
  }
  Dims split{groups, outputs, inputs};
  Dims joined{groups * inputs, outputs};
  Dims order{0, 2, 1};
  for (size_t i = 2; i < dims.size(); ++i) {
    split.push_back(dims[i]);
    joined.push_back(dims[i]);
    order.push_back(static_cast<int64_t>(i) + 1);
  }
  return reshape(transpose(reshape(weight, split), order), joined);
}

// The gradient of forward's x: g [N, O, ...] -> [N, I, in ...].
Hlo input_gradient(Hlo g, Hlo weight, const ConvWindow& w, const Dims& in) {
  Dims spatial_dims;
  RawConv conv{w.groups == 1 ? "bfiobf" : "bfoibf", ones(w), {}, {}, w.stride, w.dilation, w.groups};
  Dims dims{g.dim(0), weight.dim(1) * w.groups};
  for (size_t i = 0; i < in.size(); ++i) {
    int64_t reach = (weight.dim(2 + i) - 1) * w.dilation[i];
    conv.low.push_back(reach - w.padding[i]);
    conv.high.push_back(in[i] + w.padding[i] - (g.dim(2 + i) - 1) * w.stride[i] - 1);
    spatial_dims.push_back(static_cast<int64_t>(2 + i));
    dims.push_back(in[i]);
  }
  return raw_conv(g, reverse(swap_channels(weight, w.groups), spatial_dims), conv, dims);
}

// The gradient of forward's weight, with the given dims.
Hlo weight_gradient(Hlo x, Hlo g, const ConvWindow& w, const Dims& weight) {
  RawConv conv{"fbiofb", w.dilation, w.padding, {}, ones(w), w.stride, 1, w.groups};
  for (size_t i = 2; i < weight.size(); ++i) {
    int64_t covered = (g.dim(i) - 1) * w.stride[i - 2] + (weight[i] - 1) * w.dilation[i - 2] + 1;
    conv.high.push_back(covered - x.dim(i) - w.padding[i - 2]);
  }
  return raw_conv(x, g, conv, weight);
}

void write_convolution(Call& c) {
  ConvWindow w = read_window(c, 0, c[0].rank() - 2);
  Dims out = spatial_of(c.result_type(0).dims);
  Hlo y = c.get_bool(3) ? input_gradient(c[0], c[1], w, out) : forward(c[0], c[1], w, out);
  if (c.has(2)) {
    y = y + broadcast_in_dim(c.computed(2), y.dims(), {1});
  }
  c.set(0, y);
}

// Operands gradient, input, weight.
void write_convolution_backward(Call& c) {
  const Hlo& g = c[0];
  const Hlo& x = c[1];
  const Hlo& weight = c[2];
  ConvWindow w = read_window(c, 1, x.rank() - 2);
  bool transposed = c.get_bool(4);
  if (c.is_wanted(0)) {
    Dims in = spatial_of(x.dims());
    c.set(0, transposed ? forward(g, weight, w, in) : input_gradient(g, weight, w, in));
  }
  if (c.is_wanted(1)) {
    c.set(1, transposed ? weight_gradient(g, x, w, weight.dims()) : weight_gradient(x, g, w, weight.dims()));
  }
  if (c.is_wanted(2)) {
    Dims others = all_dims(g.rank());
    c.set(2, reduce_sum(c.computed(0), without(others, 1)));
  }
}

constexpr Writer kWriters[] = {
    {"aten::convolution", write_convolution},
    {"aten::convolution_backward", write_convolution_backward},
};

} // namespace

std::span<const Writer> conv_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
