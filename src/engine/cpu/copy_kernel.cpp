// Strided copies, plane by plane; those that transpose, block by block, so that each line of memory is used while it is in the cache.
#include "engine/cpu/copy_kernel.h"

#include <algorithm>
#include <cstring>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

struct Loop {
  int64_t extent;
  int64_t from; // strides, in elements
  int64_t to;
};

constexpr size_t kLine = 64; // bytes
constexpr size_t kLongRow = 1024; // from here on a call costs nothing

void copy_row(const void* from, void* to, size_t bytes) {
  if (bytes >= kLongRow || bytes % kLine != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (size_t at = 0; at < bytes; at += kLine) { // of constant size, so the compiler makes no call
    std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, kLine);
  }
}

template <typename T>
void copy_elements(const T* from, T* to, const Loop& rows, const Loop& inner) {
  for (int64_t j = 0; j < rows.extent; ++j) {
    for (int64_t i = 0; i < inner.extent; ++i) {
      to[j * rows.to + i * inner.to] = from[j * rows.from + i * inner.from];
    }
  }
}

// The side of the square of elements that is transposed in registers; 1: no such square.
template <typename T>
constexpr int64_t kSquare = sizeof(T) == 4 ? 4
    : sizeof(T) == 8                       ? 2
                                           : 1;

template <typename T>
using Vector [[gnu::vector_size(16)]] = T;

template <typename V>
V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

template <typename V>
void store(void* to, V v) {
  std::memcpy(to, &v, sizeof(v));
}

// to[j * to_stride + i] = from[j + i * from_stride]
inline void transpose_square(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  using V = Vector<uint32_t>;
  V a = load<V>(from);
  V b = load<V>(from + from_stride);
  V c = load<V>(from + 2 * from_stride);
  V d = load<V>(from + 3 * from_stride);
  V ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  V ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  V cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  V cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  store(to + to_stride, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  store(to + 2 * to_stride, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  store(to + 3 * to_stride, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

inline void transpose_square(const uint64_t* from, int64_t from_stride, uint64_t* to, int64_t to_stride) {
  using V = Vector<uint64_t>;
  V a = load<V>(from);
  V b = load<V>(from + from_stride);
  store(to, __builtin_shufflevector(a, b, 0, 2));
  store(to + to_stride, __builtin_shufflevector(a, b, 1, 3));
}

// A block that fits in the cache: squares first, then the remainders on two sides. As copy_plane().
template <typename T>
void transpose_block(const T* from, T* to, const Loop& rows, const Loop& inner) {
  constexpr int64_t side = kSquare<T>;
  int64_t whole_rows = 0;
  int64_t whole_columns = 0;
  if constexpr (side > 1) {
    whole_rows = rows.extent / side * side;
    whole_columns = inner.extent / side * side;
    for (int64_t j = 0; j < whole_rows; j += side) {
      for (int64_t i = 0; i < whole_columns; i += side) {
        transpose_square(from + j + i * inner.from, inner.from, to + j * rows.to + i, rows.to);
      }
    }
  }
  copy_elements(
      from + whole_columns * inner.from,
      to + whole_columns,
      {whole_rows, rows.from, rows.to},
      {inner.extent - whole_columns, inner.from, inner.to});
  copy_elements(from + whole_rows, to + whole_rows * rows.to, {rows.extent - whole_rows, rows.from, rows.to}, inner);
}

// For rows that are neighbours in the source, and columns that are neighbours in the target.
template <typename T>
void transpose(const T* from, T* to, const Loop& rows, const Loop& inner) {
  constexpr int64_t kBlockRows = 64;
  constexpr int64_t kBlockColumns = std::max<int64_t>(static_cast<int64_t>(kLine / sizeof(T)), 8); // a line that is written
  for (int64_t j = 0; j < rows.extent; j += kBlockRows) {
    for (int64_t i = 0; i < inner.extent; i += kBlockColumns) {
      transpose_block(
          from + j + i * inner.from,
          to + j * rows.to + i,
          {std::min(kBlockRows, rows.extent - j), rows.from, rows.to},
          {std::min(kBlockColumns, inner.extent - i), inner.from, inner.to});
    }
  }
}

// The inner loop within the last of the outer ones.
template <typename T>
void copy_plane(const T* from, T* to, const Loop& rows, const Loop& inner) {
  const size_t bytes = static_cast<size_t>(inner.extent) * sizeof(T);
  if (inner.from == 1 && inner.to == 1 && bytes >= kLine) {
    for (int64_t j = 0; j < rows.extent; ++j) {
      copy_row(from + j * rows.from, to + j * rows.to, bytes);
    }
    return;
  }
  if (inner.from == 0 && inner.to == 1) {
    for (int64_t j = 0; j < rows.extent; ++j) {
      std::fill_n(to + j * rows.to, inner.extent, from[j * rows.from]);
    }
    return;
  }
  if (rows.from == 1 && inner.to == 1) {
    transpose(from, to, rows, inner);
    return;
  }
  copy_elements(from, to, rows, inner);
}

// The loops outside of the planes, as an index; the last loop counts fastest.
class Outside {
 public:
  Outside(const Loop* loops, size_t count, int64_t index) : loops_(loops), at_(count, 0) {
    for (size_t d = count; d-- > 0;) {
      at_[d] = index % loops[d].extent;
      index /= loops[d].extent;
      from_ += at_[d] * loops[d].from;
      to_ += at_[d] * loops[d].to;
    }
  }
  void next() {
    for (size_t d = at_.size(); d-- > 0;) {
      from_ += loops_[d].from;
      to_ += loops_[d].to;
      if (++at_[d] < loops_[d].extent) {
        return;
      }
      from_ -= at_[d] * loops_[d].from;
      to_ -= at_[d] * loops_[d].to;
      at_[d] = 0;
    }
  }
  int64_t from() const {
    return from_;
  }
  int64_t to() const {
    return to_;
  }

 private:
  const Loop* loops_;
  Dims at_;
  int64_t from_ = 0;
  int64_t to_ = 0;
};

// A KernelFn. The arguments are the number of loops, and the loops, the inner one last.
template <typename T>
void run_copy(void* const* buffers, const uint64_t* arguments, int64_t begin, int64_t end) {
  auto from = static_cast<const T*>(buffers[0]);
  auto to = static_cast<T*>(buffers[1]);
  const auto count = static_cast<size_t>(arguments[0]);
  auto loops = reinterpret_cast<const Loop*>(arguments + 1);
  const Loop& inner = loops[count - 1];
  if (count == 1) { // units are its elements
    copy_plane(from + begin * inner.from, to + begin * inner.to, {1, 0, 0}, {end - begin, inner.from, inner.to});
    return;
  }
  const Loop& rows = loops[count - 2];
  Outside outside(loops, count - 2, begin / rows.extent);
  for (int64_t row = begin % rows.extent; begin < end; row = 0, outside.next()) {
    const int64_t taken = std::min(rows.extent - row, end - begin);
    copy_plane(from + outside.from() + row * rows.from, to + outside.to() + row * rows.to, {taken, rows.from, rows.to}, inner);
    begin += taken;
  }
}

struct Complex {
  uint64_t parts[2];
};

struct Copy {
  size_t bytes; // of an element
  KernelFn run;

  Hash128 hash() const {
    Hash128 result;
    result.add_bytes("copy", 4);
    result.add(bytes);
    return result;
  }
};

constexpr Copy kCopies[] = {
    {1, run_copy<uint8_t>},
    {2, run_copy<uint16_t>},
    {4, run_copy<uint32_t>},
    {8, run_copy<uint64_t>},
    {16, run_copy<Complex>},
};

// The first copy for which `holds` is true, as a kernel; or none.
template <typename Holds>
Kernel find_copy(Holds holds) {
  auto found = std::find_if(std::begin(kCopies), std::end(kCopies), holds);
  return found == std::end(kCopies) ? Kernel() : Kernel(found->hash(), found->run, nullptr, 0, /*is_new=*/false);
}

KernelFn get_copy(size_t bytes) {
  auto found = std::find_if(std::begin(kCopies), std::end(kCopies), [bytes](const Copy& copy) { return copy.bytes == bytes; });
  XLA_ASSERT(found != std::end(kCopies), "a copy of elements of ", bytes, " bytes");
  return found->run;
}

// Where neighbours in the memory that is read are those of another outer loop, that one is the last: a plane has both sides' lines.
std::vector<uint64_t> arguments_of(std::vector<Loop> loops) {
  auto next = std::find_if(loops.begin(), loops.end() - 1, [](const Loop& loop) { return loop.from == 1; });
  if (next != loops.end() - 1) {
    std::rotate(next, next + 1, loops.end() - 1);
  }
  std::vector<uint64_t> arguments{loops.size()};
  for (const Loop& loop : loops) {
    for (int64_t number : {loop.extent, loop.from, loop.to}) {
      arguments.push_back(static_cast<uint64_t>(number));
    }
  }
  return arguments;
}

// Slowest first in the memory that is written; those that are one in both memories are one.
std::vector<Loop> loops_of(const Dims& dims, const Dims& from, const Dims& to) {
  std::vector<Loop> sorted;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) {
      sorted.push_back({dims[d], from[d], to[d]});
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Loop& a, const Loop& b) { return a.to > b.to; });
  std::vector<Loop> loops;
  for (const Loop& loop : sorted) {
    if (!loops.empty() && loops.back().from == loop.from * loop.extent && loops.back().to == loop.to * loop.extent) {
      loops.back() = {loops.back().extent * loop.extent, loop.from, loop.to};
    } else {
      loops.push_back(loop);
    }
  }
  if (loops.empty()) {
    loops.push_back({1, 1, 1});
  }
  return loops;
}

// Units of run_copy(). A few long outer iterations cannot be shared out evenly: the inner loop is halved until there are enough.
int64_t make_units(std::vector<Loop>& loops) {
  int64_t units = 1;
  for (size_t i = 0; i + 1 < loops.size(); ++i) {
    units *= loops[i].extent;
  }
  if (loops.size() == 1) {
    return loops[0].extent;
  }
  for (Loop inner = loops.back(); units < kFewUnits && inner.extent >= kLongInner && inner.extent % 2 == 0; inner = loops.back()) {
    inner.extent /= 2;
    loops.back() = {2, inner.from * inner.extent, inner.to * inner.extent};
    loops.push_back(inner);
    units *= 2;
  }
  return units;
}

} // namespace

bool is_copy(const KernelSpec& spec) {
  return spec.body.size() == 2 && spec.body[0].prim == Prim::kLoad && spec.body[1].prim == Prim::kStore;
}

Kernel copy_kernel(const KernelSpec& spec) {
  const KernelFn run = get_copy(item_size(spec.buffers[0].dtype));
  return find_copy([run](const Copy& copy) { return copy.run == run; });
}

std::vector<uint64_t> copy_arguments(const KernelSpec& spec) {
  const Dims& from = spec.buffers[static_cast<size_t>(spec.body[0].index)].strides;
  const Dims& to = spec.buffers[static_cast<size_t>(spec.body[1].index)].strides;
  std::vector<Loop> loops;
  for (size_t d = 0; d < spec.outer.size(); ++d) {
    loops.push_back({spec.outer[d], from[d], to[d]});
  }
  loops.push_back({spec.inner, from.back(), to.back()});
  return arguments_of(std::move(loops));
}

Kernel find_copy_kernel(const Hash128& hash) {
  return find_copy([&](const Copy& copy) { return copy.hash() == hash; });
}

void copy_strided(DType dtype, const Dims& dims, void* to, const Dims& to_strides, const void* from, const Dims& from_strides) {
  const int64_t elements = num_elements(dims);
  if (elements == 0) {
    return;
  }
  const KernelFn copy = get_copy(item_size(dtype));
  std::vector<Loop> loops = loops_of(dims, from_strides, to_strides);
  const int64_t units = make_units(loops);
  const std::vector<uint64_t> arguments = arguments_of(std::move(loops));
  void* const buffers[] = {const_cast<void*>(from), to};
  auto copy_units = [&](int64_t begin, int64_t end) { copy(buffers, arguments.data(), begin, end); };
  const int64_t worth = elements / kMovedPerThread;
  worth == 0 ? copy_units(0, units) : share_out(units, std::max<int64_t>(1, units / worth), worth, copy_units);
}

} // namespace torch_xla::cpu
