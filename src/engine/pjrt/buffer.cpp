// Values between the host's memory and the tiles on devices.
#include "engine/pjrt/buffer.h"

#include <algorithm>
#include <cstring>

namespace torch_xla::pjrt {
namespace {

Dims byte_strides(const Type& type, const Dims& strides) {
  Dims bytes = strides.empty() ? contiguous_strides(type.dims) : strides;
  for (int64_t& stride : bytes) {
    stride *= static_cast<int64_t>(item_size(type.dtype));
  }
  return bytes;
}

int64_t offset_of(const Dims& start, const Dims& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    offset += start[i] * strides[i];
  }
  return offset;
}

// A part of an array of bytes.
struct Part {
  char* data;
  const Dims& strides; // in bytes
};

// Copies `sizes` elements of `item` bytes.
void copy_part(Part to, Part from, const Dims& sizes, size_t item, size_t dim = 0) {
  if (dim == sizes.size()) {
    std::memcpy(to.data, from.data, item);
    return;
  }
  auto width = static_cast<int64_t>(item);
  if (dim + 1 == sizes.size() && to.strides[dim] == width && from.strides[dim] == width) {
    std::memcpy(to.data, from.data, item * static_cast<size_t>(sizes[dim]));
    return;
  }
  for (int64_t i = 0; i < sizes[dim]; ++i) {
    copy_part(to, from, sizes, item, dim + 1);
    to.data += to.strides[dim];
    from.data += from.strides[dim];
  }
}

// A device's tile of a value.
struct Tile {
  Type type; // with its padding
  Dims start;
  Dims sizes; // without its padding

  Tile(const Type& whole, const Sharding& sharding, int64_t device)
      : type{whole.dtype, sharding.tile_dims(whole.dims)}, start(sharding.tile_start(whole.dims, device)), sizes(type.dims) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      start[i] = std::min(start[i], whole.dims[i]);
      sizes[i] = std::min(sizes[i], whole.dims[i] - start[i]);
    }
  }
};

BufferHandle upload_tile(const Client& client, int device, const Type& type, const HostMemory& host, const ShardingRef& sharding) {
  if (!sharding) {
    return client.upload(device, type, host.strides, host.data);
  }
  const Tile tile(type, *sharding, device);
  const Dims strides = host.strides.empty() ? contiguous_strides(type.dims) : host.strides;
  const Dims bytes = byte_strides(type, strides);
  char* data = static_cast<char*>(const_cast<void*>(host.data)) + offset_of(tile.start, bytes);
  if (tile.sizes == tile.type.dims) {
    return client.upload(device, tile.type, strides, data);
  }
  std::vector<char> padded(static_cast<size_t>(tile.type.nbytes()), 0);
  copy_part({padded.data(), byte_strides(tile.type, {})}, {data, bytes}, tile.sizes, item_size(type.dtype));
  return client.upload(device, tile.type, {}, padded.data());
}

Tiles upload_tiles(const Client& client, int num_devices, const Type& type, const HostMemory& host, const ShardingRef& sharding) {
  Tiles tiles;
  for (int device = 0; device < num_devices; ++device) {
    tiles.push_back(upload_tile(client, device, type, host, sharding));
  }
  return tiles;
}

void download_tiles(const Client& client, const Tiles& tiles, const Type& type, const ShardingRef& sharding, void* data) {
  if (!sharding) {
    client.download(tiles[0], type, data);
    return;
  }
  const Dims strides = byte_strides(type, {});
  const auto copies = static_cast<size_t>(sharding->num_devices() / sharding->num_tiles());
  std::vector<char> memory;
  for (size_t i = 0; i < sharding->devices.size(); i += copies) { // one of the devices with the same tile
    const int64_t device = sharding->devices[i];
    const Tile tile(type, *sharding, device);
    memory.resize(static_cast<size_t>(tile.type.nbytes()));
    client.download(tiles[static_cast<size_t>(device)], tile.type, memory.data());
    if (num_elements(tile.sizes) > 0) {
      char* to = static_cast<char*>(data) + offset_of(tile.start, strides);
      copy_part({to, strides}, {memory.data(), byte_strides(tile.type, {})}, tile.sizes, item_size(type.dtype));
    }
  }
}

} // namespace

PjrtBuffer::PjrtBuffer(const Type& type, Tiles tiles, MemoryCounts& counts, int device, ShardingRef sharding)
    : EngineBuffer(type, contiguous_strides(type.dims), device, std::move(sharding)), counts_(counts), tiles_(std::move(tiles)) {
  count_tiles(1);
}

PjrtBuffer::PjrtBuffer(const Type& type, std::unique_ptr<HostMemory> host, MemoryCounts& counts)
    : EngineBuffer(type, contiguous_strides(type.dims), /*device=*/0), counts_(counts), host_(std::move(host)) {}

PjrtBuffer::~PjrtBuffer() {
  count_tiles(-1);
}

void PjrtBuffer::count_tiles(int64_t sign) const {
  const Dims dims = sharding() ? sharding()->tile_dims(type().dims) : type().dims;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    counts_[static_cast<size_t>(device()) + i].add(this, sign * Type{type().dtype, dims}.nbytes());
  }
}

const Tiles& PjrtBuffer::tiles(const Client& client, int num_devices) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (tiles_.size() == static_cast<size_t>(num_devices)) {
    return tiles_;
  }
  XLA_CHECK(
      tiles_.empty() || num_devices > 1,
      "a program of one device got a value that lies on ",
      tiles_.size(),
      ": it was made before use_spmd()");
  std::vector<char> memory;
  if (!host_) {
    memory.resize(static_cast<size_t>(type().nbytes()));
    client.download(tiles_[0], type(), memory.data());
    host_ = std::make_unique<HostMemory>(memory.data(), Dims(), [] {});
  }
  Tiles tiles = upload_tiles(client, num_devices, type(), *host_, nullptr);
  host_.reset();
  count_tiles(-1);
  tiles_ = std::move(tiles);
  count_tiles(1);
  return tiles_;
}

EngineBufferRef PjrtBuffer::place(const Client& client, ShardingRef sharding) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!host_) {
    return nullptr;
  }
  Tiles tiles = upload_tiles(client, client.num_devices(), type(), *host_, sharding);
  return std::make_shared<PjrtBuffer>(type(), std::move(tiles), counts_, 0, std::move(sharding));
}

void PjrtBuffer::download(const Client& client, void* data) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!host_) {
    download_tiles(client, tiles_, type(), sharding(), data);
    return;
  }
  const Dims strides = byte_strides(type(), {});
  char* from = static_cast<char*>(const_cast<void*>(host_->data));
  copy_part({static_cast<char*>(data), strides}, {from, byte_strides(type(), host_->strides)}, type().dims, item_size(type().dtype));
}

} // namespace torch_xla::pjrt
