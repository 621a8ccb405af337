// Plans views by splitting memory into axes: at the boundaries of its own dims where they fit the view, else at the view's strides.
#include "stablehlo/view_plan.h"

#include <algorithm>

namespace torch_xla::stablehlo {
namespace {

class ViewPlanner {
 public:
  ViewPlanner(const Dims& memory, const Dims& dims, const Dims& strides, int64_t offset)
      : dims_(dims), strides_(strides), extent_(num_elements(memory)), start_(offset) {
    for (int64_t step : contiguous_strides(memory)) {
      boundaries_.push_back(step);
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] != 1 && strides[i] != 0) {
        plan_.dims.push_back(i);
        span_ += (dims[i] - 1) * strides[i];
      }
    }
    std::stable_sort(plan_.dims.begin(), plan_.dims.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    plan_.length = extent_;
  }

  std::optional<ViewPlan> run() {
    split_unwalked();
    for (size_t d : plan_.dims) {
      span_ -= (dims_[d] - 1) * strides_[d];
      if (!walk(dims_[d], strides_[d])) {
        return std::nullopt;
      }
      split_unwalked();
    }
    if (extent_ > 1) {
      plan_.axes.push_back({extent_, start_, 1, 1});
    }
    return std::move(plan_);
  }

 private:
  // True if the rest of the view stays within one block of this many elements.
  bool fits(int64_t block) const {
    return start_ % block + span_ < block;
  }
  // Splits at the boundaries of memory that the rest of the view does not cross.
  void split_unwalked() {
    for (int64_t block : boundaries_) {
      if (block < extent_ && extent_ % block == 0 && fits(block)) {
        push(block, 1, 1);
      }
    }
  }
  void push(int64_t block, int64_t count, int64_t step) {
    plan_.axes.push_back({extent_ / block, start_ / block, count, step});
    extent_ = block;
    start_ %= block;
  }
  bool walk(int64_t count, int64_t stride) {
    auto divides = [&](int64_t block) { return stride % block == 0 && block <= extent_ && fits(block); };
    auto found = std::find_if(boundaries_.begin(), boundaries_.end(), divides);
    int64_t block = found != boundaries_.end() ? *found : stride;
    if (!divides(block) || !cut_to(block, count, stride / block)) {
      return false;
    }
    push(block, count, stride / block);
    return true;
  }
  // Makes the rest of the memory a multiple of the block; only its end may be cut off.
  bool cut_to(int64_t block, int64_t count, int64_t step) {
    int64_t blocks = extent_ / block;
    if (extent_ % block == 0) {
      return true;
    }
    if (!plan_.axes.empty() || start_ / block + (count - 1) * step >= blocks) {
      return false;
    }
    extent_ = blocks * block;
    plan_.length = extent_;
    return true;
  }

  const Dims& dims_;
  const Dims& strides_;
  std::vector<int64_t> boundaries_; // strides of memory's own dims, slowest first
  int64_t extent_; // of the memory that is not split yet
  int64_t start_; // of the view within it
  int64_t span_ = 0; // from the first to the last element of the dims that are not walked yet
  ViewPlan plan_;
};

template <typename F>
Dims collect(const std::vector<ViewAxis>& axes, F part) {
  Dims list;
  for (const ViewAxis& axis : axes) {
    list.push_back(part(axis));
  }
  return list;
}

} // namespace

Dims ViewPlan::extents() const {
  return collect(axes, [](const ViewAxis& a) { return a.extent; });
}
Dims ViewPlan::counts() const {
  return collect(axes, [](const ViewAxis& a) { return a.count; });
}
Dims ViewPlan::starts() const {
  return collect(axes, [](const ViewAxis& a) { return a.start; });
}
Dims ViewPlan::limits() const {
  return collect(axes, [](const ViewAxis& a) { return a.start + (a.count - 1) * a.step + 1; });
}
Dims ViewPlan::steps() const {
  return collect(axes, [](const ViewAxis& a) { return a.step; });
}
bool ViewPlan::is_whole() const {
  return counts() == extents();
}
bool ViewPlan::has_steps() const {
  return std::any_of(axes.begin(), axes.end(), [](const ViewAxis& a) { return a.step != 1; });
}

std::optional<ViewPlan> plan_view(const Dims& memory, const Dims& dims, const Dims& strides, int64_t offset) {
  return ViewPlanner(memory, dims, strides, offset).run();
}

} // namespace torch_xla::stablehlo
