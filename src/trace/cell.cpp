// Creation of cells and the addresses that stand for their memory.
#include "trace/cell.h"

#include <algorithm>
#include <utility>

#include "core/errors.h"
#include "core/first_use.h"
#include "core/metrics.h"
#include "trace/recorder.h"

namespace torch_xla {
namespace {

// Addresses that no process has: non-canonical on x86-64, the kernel's on ARM. Each thread takes them in chunks; they start again after
// 2^54 bytes.
constexpr uintptr_t kRegion = 0x4080'0000'0000'0000;
constexpr uintptr_t kRegionBytes = uintptr_t{1} << 54;
constexpr uintptr_t kChunkBytes = uintptr_t{1} << 30;

// No process has room for a tensor of this size, and computing one would take days, in memory or fused into its readers.
constexpr uintptr_t kMostBytes = uintptr_t{1} << 47;

uintptr_t take_from_region(uintptr_t size) {
  static std::atomic<uintptr_t> next{0};
  uintptr_t at = next.fetch_add(size, std::memory_order_relaxed) % kRegionBytes;
  if (at + size > kRegionBytes) {
    at = next.fetch_add(size, std::memory_order_relaxed) % kRegionBytes;
  }
  return kRegion + at;
}

void* next_address(size_t nbytes) {
  static thread_local constinit uintptr_t begin [[gnu::tls_model("initial-exec")]] = 0;
  static thread_local constinit uintptr_t end [[gnu::tls_model("initial-exec")]] = 0;
  TORCH_CHECK_WITH(OutOfMemoryError, nbytes < kMostBytes, out_of_memory_text(nbytes));
  uintptr_t size = (nbytes + 127) / 64 * 64; // one line more: even an empty storage has a unique address
  if (size > end - begin) {
    uintptr_t taken = std::max(size, kChunkBytes);
    begin = take_from_region(taken);
    end = begin + taken;
  }
  return reinterpret_cast<void*>(std::exchange(begin, begin + size));
}

} // namespace

void delete_cell(void* context) {
  static metrics::Counter count("DestroyXlaTensor");
  count.add();
  delete static_cast<Cell*>(context);
}

c10::DataPtr make_cell(size_t nbytes, int device, Cell** cell) {
  static metrics::Counter count("CreateXlaTensor");
  count.add();
  void* address = next_address(nbytes);
  *cell = new Cell;
  (*cell)->nbytes = nbytes;
  (*cell)->device = device;
  return {address, *cell, &delete_cell, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

void move_cell(c10::DataPtr& data, size_t nbytes) {
  void* address = next_address(nbytes);
  const c10::Device device = data.device();
  data = c10::DataPtr(address, data.release_context(), &delete_cell, device);
}

c10::DataPtr allocate_cell(size_t nbytes, int device) {
  first_use::begin();
  device_state(device); // from here on the process uses the device
  Cell* cell = nullptr;
  c10::DataPtr data = make_cell(nbytes, device, &cell);
  cell->capture = Recorder::current_capture(device);
  return data;
}

void take_back_when_told(Cell& cell) {
  BufferRef buffer = cell.value ? cell.value->buffer() : nullptr;
  if (!buffer || buffer->state() != Buffer::State::kFailed || buffer->has_news()) {
    return;
  }
  PreviousRef good = cell.previous;
  while (good && !(good->buffer.get() && good->buffer.get()->may_have_value())) {
    good = good->before;
  }
  if (good) {
    cell.set_value(LazyValue::ready(good->buffer.get()));
    cell.dtype = good->dtype;
    cell.dims = good->dims;
    cell.strides = good->strides;
    cell.previous = good->before;
  }
}

PreviousRef keep_previous(Cell& cell) {
  if (!cell.value || !cell.value->buffer()) {
    return nullptr;
  }
  const BufferRef& buffer = cell.value->buffer();
  PreviousRef before = buffer->state() == Buffer::State::kReady ? nullptr : std::move(cell.previous);
  cell.previous = std::make_shared<Previous>(Previous{KeptBuffer(buffer), std::move(before), cell.dtype, cell.dims, cell.strides});
  return cell.previous;
}

int64_t live_cells() {
  return Cell::count_live();
}

} // namespace torch_xla
