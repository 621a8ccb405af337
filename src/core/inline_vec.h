// A vector of trivially copyable elements that keeps the first N in place: dims, operand lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace torch_xla {

template <typename T, uint32_t N>
class InlineVec {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  InlineVec() = default;
  InlineVec(std::initializer_list<T> v) {
    assign(v.begin(), v.size());
  }
  InlineVec(const std::vector<T>& v) {
    assign(v.data(), v.size());
  }
  InlineVec(const T* data, size_t size) {
    assign(data, size);
  }
  InlineVec(size_t size, T fill) {
    resize(size, fill);
  }
  InlineVec(const InlineVec& o) {
    if (o.heap_) {
      assign(o.heap_, o.size_);
    } else { // the size is a constant, so the compiler makes no call
      std::memcpy(static_cast<void*>(inline_), o.inline_, sizeof(inline_));
      size_ = o.size_;
    }
  }
  InlineVec(InlineVec&& o) noexcept {
    take(o);
  }
  InlineVec& operator=(const InlineVec& o) {
    if (!heap_ && !o.heap_) {
      std::memmove(static_cast<void*>(inline_), o.inline_, sizeof(inline_));
      size_ = o.size_;
    } else if (this != &o) {
      size_ = 0;
      assign(o.data(), o.size_);
    }
    return *this;
  }
  InlineVec& operator=(InlineVec&& o) noexcept {
    if (this != &o) {
      release();
      take(o);
    }
    return *this;
  }
  ~InlineVec() {
    release();
  }

  T* data() {
    return heap_ ? heap_ : inline_;
  }
  const T* data() const {
    return heap_ ? heap_ : inline_;
  }
  size_t size() const {
    return size_;
  }
  bool empty() const {
    return size_ == 0;
  }
  T* begin() {
    return data();
  }
  T* end() {
    return data() + size_;
  }
  const T* begin() const {
    return data();
  }
  const T* end() const {
    return data() + size_;
  }
  T& operator[](size_t i) {
    return data()[i];
  }
  const T& operator[](size_t i) const {
    return data()[i];
  }
  T& back() {
    return data()[size_ - 1];
  }
  const T& back() const {
    return data()[size_ - 1];
  }

  void push_back(T v) {
    reserve(size_ + 1);
    data()[size_++] = v;
  }
  void pop_back() {
    --size_;
  }
  void clear() {
    size_ = 0;
  }
  void resize(size_t n, T fill = T()) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) {
      data()[i] = fill;
    }
    size_ = static_cast<uint32_t>(n);
  }
  void reserve(size_t n) {
    if (n <= capacity_) {
      return;
    }
    uint32_t capacity = std::max<uint32_t>(static_cast<uint32_t>(n), capacity_ * 2);
    T* grown = new T[capacity];
    std::memcpy(static_cast<void*>(grown), data(), size_ * sizeof(T));
    release();
    heap_ = grown;
    capacity_ = capacity;
  }
  void assign(const T* data_in, size_t n) {
    reserve(n);
    T* to = data();
    for (size_t i = 0; i < n; ++i) {
      to[i] = data_in[i];
    }
    size_ = static_cast<uint32_t>(n);
  }
  std::vector<T> vec() const {
    return std::vector<T>(begin(), end());
  }

  bool operator==(const InlineVec& o) const {
    if (size_ != o.size_) {
      return false;
    }
    const T* a = data();
    const T* b = o.data();
    for (uint32_t i = 0; i < size_; ++i) {
      if (a[i] != b[i]) {
        return false;
      }
    }
    return true;
  }

 private:
  void release() {
    delete[] heap_;
    heap_ = nullptr;
    capacity_ = N;
  }
  void take(InlineVec& o) {
    size_ = o.size_;
    capacity_ = o.capacity_;
    heap_ = o.heap_;
    if (!heap_) {
      std::memcpy(static_cast<void*>(inline_), o.inline_, sizeof(inline_));
    }
    o.heap_ = nullptr;
    o.size_ = 0;
    o.capacity_ = N;
  }

  T* heap_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  T inline_[N];
};

// Extents, strides or dimension numbers; five covers nearly all tensors.
using Dims = InlineVec<int64_t, 5>;

inline int64_t num_elements(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    n *= d;
  }
  return n;
}

// Row-major strides in elements.
inline Dims contiguous_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(dims[i], 1);
  }
  return strides;
}

} // namespace torch_xla
