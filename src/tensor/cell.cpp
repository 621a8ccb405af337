// Creation of cells and the reserved addresses that stand for their memory.
#include "tensor/cell.h"

#include <sys/mman.h>

#include "tensor/api.h"

namespace torch_xla {
namespace {

std::atomic<int64_t> live_cell_count{0};

// Addresses are handed out in order from a region that nothing may touch and start again at its end after 8 TB, so that two live tensors
// share one only after that much was allocated in between.
constexpr uintptr_t kRegionBytes = uintptr_t{1} << 43;

uintptr_t region_base() {
  static const uintptr_t base = [] {
    void* p = mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(p != MAP_FAILED, "the XLA device could not reserve ", kRegionBytes, " bytes of address space (is `ulimit -v` set?)");
    return reinterpret_cast<uintptr_t>(p);
  }();
  return base;
}

void* next_address(size_t nbytes) {
  static std::atomic<uintptr_t> next{64};
  uintptr_t size = (nbytes + 127) / 64 * 64;
  TORCH_CHECK(size < kRegionBytes / 2, "cannot allocate ", nbytes, " bytes on the XLA device");
  uintptr_t at = next.fetch_add(size, std::memory_order_relaxed) % kRegionBytes;
  if (at + size > kRegionBytes) {
    at = next.fetch_add(size, std::memory_order_relaxed) % kRegionBytes;
  }
  return reinterpret_cast<void*>(region_base() + at);
}

void delete_cell(void* context) {
  delete static_cast<Cell*>(context);
  live_cell_count.fetch_sub(1, std::memory_order_relaxed);
}

} // namespace

c10::DataPtr make_cell(size_t nbytes, int device, Cell** cell) {
  *cell = new Cell;
  (*cell)->nbytes = nbytes;
  (*cell)->device = device;
  live_cell_count.fetch_add(1, std::memory_order_relaxed);
  return {next_address(nbytes), *cell, &delete_cell, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

c10::DataPtr allocate_cell(size_t nbytes, int device) {
  Cell* cell = nullptr;
  return make_cell(nbytes, device, &cell);
}

int64_t live_cells() {
  return live_cell_count.load(std::memory_order_relaxed);
}

} // namespace torch_xla
