// A stand-in for torchvision, whose wheels on the package index want CUDA's libraries: roi_align as it is declared there, which here takes
// the nearest element of each bin's middle.
#include <ATen/TensorAccessor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

namespace {

at::Tensor make_result(const at::Tensor& input, const at::Tensor& rois, int64_t height, int64_t width) {
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, "rois must have shape as Tensor[K, 5]");
  return at::empty({rois.size(0), input.size(1), height, width}, input.options());
}

int64_t middle_of_bin(float from, float to, int64_t bin, int64_t bins, int64_t size) {
  float middle = from + (to - from) * (static_cast<float>(bin) + 0.5f) / static_cast<float>(bins);
  return std::clamp<int64_t>(static_cast<int64_t>(middle), 0, size - 1);
}

at::Tensor roi_align_cpu(
    const at::Tensor& input,
    const at::Tensor& rois,
    double scale,
    int64_t height,
    int64_t width,
    int64_t /*sampling_ratio*/,
    bool /*aligned*/) {
  at::Tensor result = make_result(input, rois, height, width);
  auto in = input.accessor<float, 4>();
  auto roi = rois.accessor<float, 2>();
  auto out = result.accessor<float, 4>();
  auto s = static_cast<float>(scale);
  for (int64_t k = 0; k < result.numel(); ++k) {
    int64_t x = k % width, y = k / width % height, c = k / (width * height) % input.size(1), box = k / (width * height * input.size(1));
    int64_t row = middle_of_bin(roi[box][2] * s, roi[box][4] * s, y, height, input.size(2));
    int64_t column = middle_of_bin(roi[box][1] * s, roi[box][3] * s, x, width, input.size(3));
    out[box][c][y][x] = in[static_cast<int64_t>(roi[box][0])][c][row][column];
  }
  return result;
}

at::Tensor roi_align_meta(
    const at::Tensor& input,
    const at::Tensor& rois,
    double /*scale*/,
    int64_t height,
    int64_t width,
    int64_t /*sampling_ratio*/,
    bool /*aligned*/) {
  return make_result(input, rois, height, width);
}

} // namespace

TORCH_LIBRARY(torchvision, m) {
  m.def(
      "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, bool aligned) "
      "-> Tensor");
}

TORCH_LIBRARY_IMPL(torchvision, CPU, m) {
  m.impl("roi_align", &roi_align_cpu);
}

TORCH_LIBRARY_IMPL(torchvision, Meta, m) {
  m.impl("roi_align", &roi_align_meta);
}
