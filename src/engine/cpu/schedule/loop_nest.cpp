// Loop order by memory order, as ATen's TensorIterator finds it, within the kept and within the reduced dimensions.
#include "engine/cpu/schedule/loop_nest.h"

#include <algorithm>
#include <numeric>

#include "engine/cpu/copy_kernel.h"
#include "engine/cpu/cost.h"

namespace torch_xla::cpu {
namespace {

struct Loop {
  int64_t extent;
  Dims strides; // by access
};
using Loops = std::vector<Loop>;

// Positive: a belongs outside b. The largest access with a preference decides, as its cache lines cost most.
int compare_loops(const Loop& a, const Loop& b, const std::vector<int>& by_size) {
  for (int i : by_size) {
    int64_t sa = a.strides[i];
    int64_t sb = b.strides[i];
    if (sa != 0 && sb != 0 && sa != sb) {
      return sa > sb ? 1 : -1;
    }
  }
  return 0;
}

// Insertion sort: the comparison is no strict order where accesses disagree.
void sort_loops(Loops& loops, const std::vector<int>& by_size) {
  for (size_t i = 1; i < loops.size(); ++i) {
    for (size_t k = i; k > 0 && compare_loops(loops[k], loops[k - 1], by_size) > 0; --k) {
      std::swap(loops[k], loops[k - 1]);
    }
  }
}

// For every access: one loop less, and a longer one to vectorize.
bool can_merge(const Loop& outer, const Loop& inner) {
  for (size_t i = 0; i < outer.strides.size(); ++i) {
    if (outer.strides[i] != inner.strides[i] * inner.extent) {
      return false;
    }
  }
  return true;
}

void merge_loops(Loops& loops) {
  Loops merged;
  for (Loop& loop : loops) {
    if (!merged.empty() && can_merge(merged.back(), loop)) {
      loop.extent *= merged.back().extent;
      merged.back() = std::move(loop);
    } else {
      merged.push_back(std::move(loop));
    }
  }
  loops = std::move(merged);
}

// The innermost loop; of one iteration where there is none.
Loop take_last(Loops& loops, size_t num_accesses) {
  if (loops.empty()) {
    return {1, Dims(num_accesses, 0)};
  }
  Loop last = std::move(loops.back());
  loops.pop_back();
  return last;
}

// A few long outer iterations cannot be shared out evenly among threads: they get parts of the inner loop.
void split_long_inner(Loops& outer, Loop& inner) {
  int64_t units = 1;
  for (const Loop& loop : outer) {
    units *= loop.extent;
  }
  if (outer.empty() || units >= kFewUnits || inner.extent < kLongInner) {
    return;
  }
  for (int64_t parts : kInnerParts) {
    if (inner.extent % parts == 0) {
      Loop part{parts, inner.strides};
      inner.extent /= parts;
      for (int64_t& stride : part.strides) {
        stride *= inner.extent;
      }
      outer.push_back(std::move(part));
      return;
    }
  }
}

// The first of the sizes that divides the extent; 0: none.
int64_t find_tile(int64_t extent, std::initializer_list<int> sizes) {
  for (int64_t size : sizes) {
    if (extent % size == 0 && extent > size) {
      return size;
    }
  }
  return 0;
}

// Splits a loop into blocks (returned) of `tile` iterations, which stay in `loop`.
Loop split_blocks(Loop& loop, int64_t tile) {
  Loop blocks{loop.extent / tile, loop.strides};
  for (int64_t& stride : blocks.strides) {
    stride *= tile;
  }
  loop.extent = tile;
  return blocks;
}

// A transposing access: its unit stride is in an outer loop. With tiles each line of its memory is read while it is in the cache.
void tile_transposes(Loops& outer, Loop& inner, const std::vector<DomainAccess>& accesses) {
  for (size_t i = 0; i < accesses.size(); ++i) {
    if (accesses[i].elements < kLargeTranspose || inner.strides[i] <= 1) {
      continue;
    }
    for (size_t d = 0; d < outer.size(); ++d) {
      int64_t rows = outer[d].strides[i] == 1 ? find_tile(outer[d].extent, kTileRows) : 0;
      int64_t columns = find_tile(inner.extent, kTileColumns);
      if (rows && columns) {
        Loop row = outer[d];
        outer[d] = split_blocks(row, rows);
        outer.push_back(split_blocks(inner, columns));
        outer.push_back(std::move(row));
        return;
      }
    }
  }
}

void append_loops(Loops& all, const Loops& loops, Dims& extents) {
  for (const Loop& loop : loops) {
    extents.push_back(loop.extent);
    all.push_back(loop);
  }
}

} // namespace

// Kept dims outside, reduced ones inside: a row kernel vectorizes over the reduced elements, a column kernel over its results.
std::vector<Dims> nest_loops(KernelSpec& spec, const Dims& domain, uint32_t reduced, const std::vector<DomainAccess>& accesses) {
  std::vector<int> by_size(accesses.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) {
    return std::pair(accesses[a].elements, accesses[a].stored) > std::pair(accesses[b].elements, accesses[b].stored);
  });
  Loops kept;
  Loops over;
  for (size_t d = 0; d < domain.size(); ++d) {
    if (domain[d] == 1) {
      continue;
    }
    Loop loop{domain[d], {}};
    for (const DomainAccess& access : accesses) {
      loop.strides.push_back(access.strides[d]);
    }
    (reduced >> d & 1 ? over : kept).push_back(std::move(loop));
  }
  for (Loops* loops : {&kept, &over}) {
    sort_loops(*loops, by_size);
    merge_loops(*loops);
  }
  Loop inner = take_last(spec.form == KernelForm::kRow ? over : kept, accesses.size());
  if (spec.form == KernelForm::kPointwise) {
    if (!is_copy(spec)) { // copies have blocks of their own
      tile_transposes(kept, inner, accesses);
    }
    split_long_inner(kept, inner);
  }
  Loops all;
  append_loops(all, kept, spec.outer);
  append_loops(all, over, spec.mid);
  spec.inner = inner.extent;
  all.push_back(std::move(inner));
  std::vector<Dims> result(accesses.size());
  for (size_t i = 0; i < accesses.size(); ++i) {
    for (const Loop& loop : all) {
      result[i].push_back(loop.strides[i]);
    }
  }
  return result;
}

} // namespace torch_xla::cpu
