// Each thread finds the bins of a block of numbers, then counts them, in counts of its own.
#include "engine/cpu/library/histogram.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <type_traits>

#include "engine/cpu/cost.h"
#include "engine/cpu/library/args.h"
#include "engine/cpu/threads/team.h"
#include "ops/math.h"

namespace torch_xla::cpu {
namespace {

constexpr int64_t kBlock = 512;

template <typename T>
struct Bins {
  int64_t count;
  T low;
  T high;
};

// The bounds; for equal ones the extrema, and for equal extrema one below and above.
template <typename T>
Bins<T> find_bins(const Attrs& attrs, const at::Tensor& self) {
  Bins<T> bins{std::get<int64_t>(attrs[0]), static_cast<T>(attr_double(attrs[1], 0)), static_cast<T>(attr_double(attrs[2], 0))};
  if (bins.low == bins.high && self.numel() > 0) {
    const auto [least, most] = at::aminmax(self);
    bins.low = least.item().to<T>();
    bins.high = most.item().to<T>();
    if (bins.low == bins.high) {
      bins.low -= 1;
      bins.high += 1;
    }
  }
  return bins;
}

// counts[bins.count] counts the elements outside. Without a branch, as it would be unpredictable.
template <typename Place, typename Element, typename T>
void count(const Element* from, int64_t n, const Bins<T>& bins, int64_t* counts) {
  const auto number = static_cast<T>(bins.count);
  const T width = bins.high - bins.low;
  const T last = number - 1;
  const auto outside = static_cast<Place>(bins.count);
  std::array<Place, kBlock> places;
  auto find = [&](size_t i, Element element) {
    const T value = static_cast<T>(element);
    const T place = std::min((value - bins.low) * number / width, last);
    const auto whole = static_cast<Place>(place > T(0) ? place : T(0)); // also of NaN
    places[i] = (value >= bins.low) & (value <= bins.high) ? whole : outside;
  };
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const auto size = static_cast<size_t>(std::min(kBlock, n - begin));
    if (size == kBlock) {
      for (size_t i = 0; i < kBlock; ++i) { // a constant number, so that the compiler uses vectors
        find(i, from[begin + static_cast<int64_t>(i)]);
      }
    } else {
      for (size_t i = 0; i < size; ++i) {
        find(i, from[begin + static_cast<int64_t>(i)]);
      }
    }
    for (size_t i = 0; i < size; ++i) {
      ++counts[places[i]];
    }
  }
}

// Floats are counted in their own type, integers as float64.
template <typename Element>
at::Tensor histogram_of(const Attrs& attrs, const at::Tensor& self) {
  using T = std::conditional_t<std::is_same_v<Element, float>, float, double>;
  const Bins<T> bins = find_bins<T>(attrs, self);
  const int64_t n = self.numel();
  const Element* from = self.const_data_ptr<Element>();
  at::Tensor total = at::zeros({bins.count + 1}, at::kLong);
  auto* counts = total.mutable_data_ptr<int64_t>();
  std::mutex mutex;
  share_out(n, std::max(kMovedPerThread, bins.count), n / kMovedPerThread, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> own(static_cast<size_t>(bins.count) + 1);
    const auto count_in = bins.count < INT32_MAX ? count<int32_t, Element, T> : count<int64_t, Element, T>;
    count_in(from + begin, end - begin, bins, own.data());
    const std::lock_guard<std::mutex> lock(mutex);
    std::transform(own.begin(), own.end(), counts, counts, std::plus<>());
  });
  return total.narrow(0, 0, bins.count).to(self.scalar_type());
}

} // namespace

at::Tensor histogram(const Attrs& attrs, const std::vector<c10::IValue>& operands) {
  const at::Tensor self = tensor_of(operands[0]).contiguous();
  return AT_DISPATCH_ALL_TYPES(self.scalar_type(), "histc", [&] { return histogram_of<scalar_t>(attrs, self); });
}

} // namespace torch_xla::cpu
