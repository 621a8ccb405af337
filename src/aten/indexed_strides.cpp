// The memory order of advanced indexing: that of a TensorIterator over at::native::index's forms of self and indices.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>

#include "aten/result_strides.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

// The result's dims: leading dims of self, the broadcast points of the indices, the other dims of self.
struct Layout {
  int64_t before = 0;
  std::vector<int64_t> points;
  int64_t after = 0;
};

// The points come first if the indices are not adjacent.
Layout find_layout(const Dims& dims, int64_t self_rank, std::span<const at::Tensor> indices) {
  auto given = [](const at::Tensor& t) { return t.defined(); };
  auto first = std::find_if(indices.begin(), indices.end(), given);
  auto last = std::find_if(indices.rbegin(), indices.rend(), given).base();
  Layout layout;
  layout.before = std::all_of(first, last, given) ? first - indices.begin() : 0;
  layout.after = self_rank - std::count_if(first, last, given) - layout.before;
  layout.points = {dims.begin() + layout.before, dims.end() - layout.after};
  return layout;
}

// Along the points self has stride 0.
Dims source_strides(const at::Tensor& self, std::span<const at::Tensor> indices, const Layout& layout) {
  std::vector<int64_t> strides;
  for (size_t d = 0; d < static_cast<size_t>(self.dim()); ++d) {
    if (d >= indices.size() || !indices[d].defined()) {
      strides.push_back(self.stride(static_cast<int64_t>(d)));
    }
  }
  strides.insert(strides.begin() + layout.before, layout.points.size(), 0);
  return strides;
}

// An index, converted to Long and expanded to the points, has stride 0 along self's dims.
Dims index_strides(const Dims& dims, const at::Tensor& index, const Layout& layout) {
  auto expanded = at::inferExpandGeometry_dimvector(index.sizes(), index.strides(), layout.points);
  c10::IntArrayRef strides(expanded.strides);
  std::vector<int64_t> converted;
  if (index.scalar_type() != c10::ScalarType::Long) {
    converted = at::infer_dense_strides(layout.points, strides);
    strides = converted;
  }
  std::vector<int64_t> shape = layout.points;
  shape.insert(shape.begin(), static_cast<size_t>(layout.before), 1);
  shape.insert(shape.end(), static_cast<size_t>(layout.after), 1);
  Dims result = at::detail::computeStride(layout.points, strides, shape).value_or(at::detail::defaultStrides(shape));
  for (size_t d = 0; d < shape.size(); ++d) {
    result[d] = shape[d] == 1 && dims[d] != 1 ? 0 : result[d];
  }
  return result;
}

} // namespace

Dims indexed_strides(const Dims& dims, const at::Tensor& self, std::span<const at::Tensor> indices) {
  Layout layout = find_layout(dims, self.dim(), indices);
  std::vector<Dims> operands{source_strides(self, indices, layout)};
  for (const at::Tensor& index : indices) {
    if (index.defined()) {
      operands.push_back(index_strides(dims, index, layout));
    }
  }
  return iterator_strides(dims, operands);
}

} // namespace torch_xla
