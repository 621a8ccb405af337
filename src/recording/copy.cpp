// Upload, download and materialization.
#include "recording/copy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "core/errors.h"
#include "core/observer.h"
#include "engine/engine.h"
#include "program/sync.h"
#include "recording/capture.h"
#include "recording/recording.h"
#include "recording/transfer.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"
#include "trace/source_line.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

// A storage's content; no run may take its buffer while this lives.
struct Source {
  BufferReader buffer;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  Dims dims;
  Dims strides;
};

// The buffer of a cell with a value, after a sync if it is pending. The caller holds the recording lock.
Source source_locked(Cell& cell) {
  Trace* trace = cell.value->trace();
  BufferRef buffer = trace && trace->is_captured() ? trace->buffer_of(cell.value->id()) : nullptr; // a capture has only read it
  if (!buffer) {
    if (trace) {
      sync_locked(*trace, SyncCause::kRead);
    }
    take_back_when_told(cell);
    buffer = cell.value->buffer();
  }
  return {BufferReader(std::move(buffer)), to_scalar_type(cell.dtype), cell.dims, cell.strides};
}

// Nullopt for uninitialized storage.
std::optional<Source> find_source(Cell* cell) {
  TORCH_CHECK(cell, kNoCell);
  return interrupt::retry([&]() -> std::optional<Source> {
    auto lock = lock_recorder(cell->device);
    Cell& shown = shown_cell(*cell);
    return shown.value ? std::optional(source_locked(shown)) : std::nullopt;
  });
}

// The storage's content in the cell's memory order, for any order of the engine. `payload`: of the source's buffer.
at::Tensor storage_on_cpu(Source source, EngineBufferRef payload) {
  Dims dims = source.dims;
  Dims strides = source.strides;
  at::Tensor whole = payload_on_cpu(std::move(source.buffer), payload, source.dtype);
  if (payload->strides() == strides) {
    return whole;
  }
  return at::empty_strided(to_ref(dims), to_ref(strides), whole.options()).copy_(whole);
}

at::Tensor uninitialized_on_cpu(const at::Tensor& t) {
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU)).zero_();
}

// Resolves a pending conjugation or negation.
at::Tensor resolved(const at::Tensor& t) {
  if (t._is_zerotensor()) {
    return at::zeros(t.sizes(), t.options());
  }
  return has_bits(t) ? t.resolve_conj().resolve_neg() : t;
}

// The elements to store so that `destination`, which may have these bits, shows `source`.
at::Tensor stored_form(const at::Tensor& destination, const at::Tensor& source) {
  at::Tensor stored = destination.is_conj() ? source.conj() : source;
  return resolved(destination.is_neg() ? stored.neg() : stored);
}

// The form of a CPU tensor for the upload: in its memory order if that is dense.
at::Tensor dense_form(const at::Tensor& tensor) {
  at::Tensor cpu = resolved(tensor);
  return cpu.is_non_overlapping_and_dense() ? cpu : cpu.contiguous();
}

// For who reads the tensor: throws where the device computes no values.
void check_has_values() {
  if (std::string why = engine().why_no_values(); !why.empty()) {
    const std::string line = location_text(current_location());
    throw UserError(ErrorKind::Runtime, line.empty() ? why : str(why, "\nat ", line));
  }
}

observer::Span download_span(int device, std::string_view use) {
  constexpr observer::Phase phase = observer::Phase::kDownload;
  return {phase, device, use, observed_location(phase), observed_call(phase)};
}

enum class CopyOf { kValue, kStored }; // kStored: the bytes in memory, for any conjugation and negation bits

void record_copy(const at::Tensor& destination, const at::Tensor& source, CopyOf what) {
  bool value = what == CopyOf::kValue;
  bool conjugated = value && destination.is_complex() && source.is_complex() && destination.is_conj() != source.is_conj();
  bool negated = value && destination.is_neg() != source.is_neg();
  Recording recording(device_number(destination));
  if (!conjugated && !negated && recording.share(destination, source)) {
    return;
  }
  ValueId v = recording.read(source);
  v = conjugated ? recording.conjugate(v) : v;
  recording.write_converted(destination, negated ? recording.negate(v) : v);
}

// Writes a part of a storage through a copy of the whole, for elements without rows.
void write_part_on_cpu(const at::Tensor& destination, const at::Tensor& source) {
  check_bounds(destination, destination.storage().nbytes());
  at::Tensor bytes = at::empty({0}, destination.options().dtype(at::kByte)).set_(destination.storage());
  at::Tensor whole = read_on_cpu(bytes).clone();
  at::Tensor part = at::empty({0}, source.options());
  part.set_(whole.storage(), destination.storage_offset(), destination.sizes(), destination.strides()).copy_(source);
  write_buffer(bytes, upload_dense(device_number(destination), dense_form(whole)));
}

// As find_source(), but waits for the value. Throws the error of its run; after that the tensor shows its previous content.
std::optional<Source> wait_for_source(Cell* cell) {
  TORCH_CHECK(cell, kNoCell);
  try {
    for (Buffer* failed = nullptr;;) {
      auto run_here = std::make_optional<Executor::ShortRuns>(cell->device);
      std::optional<Source> source = find_source(cell);
      run_here.reset();
      Executor::get(cell->device).wait_for_room();
      if (!source) {
        return source;
      }
      Buffer* buffer = source->buffer.operator->();
      if (buffer->wait_for_end() != Buffer::State::kFailed || buffer->has_news() || buffer == failed) {
        buffer->wait();
        return source;
      }
      failed = buffer; // the cell may get its previous content back
    }
  } catch (...) {
    settle_after_error(cell->device);
    throw;
  }
}

// A storage's elements in memory of the host, in the cell's order, while this lives.
struct HostElements {
  explicit HostElements(Source source) {
    payload = source.buffer->wait();
    const bool is_as_stored = payload->type().dtype == to_dtype(source.dtype) && payload->strides() == source.strides;
    if (void* memory = is_as_stored ? payload->host_pointer() : nullptr) {
      reader.emplace(std::move(source.buffer));
      data = static_cast<char*>(memory);
    } else {
      copy = storage_on_cpu(std::move(source), std::exchange(payload, nullptr));
      data = static_cast<char*>(const_cast<void*>(copy.const_data_ptr()));
    }
  }
  // The first element that a tensor with this storage shows.
  void* of(const at::Tensor& t) const {
    return data + t.storage_offset() * static_cast<int64_t>(t.element_size());
  }

  std::optional<BufferReader> reader; // of the payload,
  EngineBufferRef payload;
  at::Tensor copy; // or a copy
  char* data = nullptr;
};

// The storage's elements, after a wait for the tensor's value; nullopt: the tensor shows no written memory.
std::optional<HostElements> wait_for_elements(const at::Tensor& t) {
  if (t.numel() == 0) {
    return std::nullopt;
  }
  check_has_values();
  check_bounds(t, t.storage().nbytes());
  std::optional<Source> source = wait_for_source(find_cell(t));
  return source ? std::make_optional<HostElements>(*std::move(source)) : std::nullopt;
}

// As read_on_cpu(), within a transfer that the caller reports.
at::Tensor show_on_cpu(const at::Tensor& t) {
  std::optional<HostElements> elements = wait_for_elements(t);
  if (!elements) {
    return uninitialized_on_cpu(t);
  }
  void* data = elements->of(t);
  at::Tensor result =
      at::for_blob(data, t.sizes())
          .strides(t.strides())
          .context(new HostElements(*std::move(elements)), [](void* context) { delete static_cast<HostElements*>(context); })
          .options(at::TensorOptions().dtype(t.scalar_type()).device(at::kCPU))
          .make_tensor();
  if (t.is_conj()) {
    result._set_conj(true);
  }
  if (t.is_neg()) {
    result._set_neg(true);
  }
  return result;
}

} // namespace

void download(const at::Tensor& destination, const at::Tensor& source) {
  observer::Span span = download_span(device_number(source), "copy");
  destination.copy_(show_on_cpu(source));
  span.set_bytes(num_bytes(source));
}

at::Tensor read_on_cpu(const at::Tensor& t, std::string_view use) {
  observer::Span span = download_span(device_number(t), use);
  at::Tensor cpu = show_on_cpu(t);
  span.set_bytes(num_bytes(t));
  return cpu;
}

at::Scalar read_number(const at::Tensor& t, std::string_view use) {
  if (t.numel() != 1 || has_bits(t)) {
    return read_on_cpu(t, use).item();
  }
  observer::Span span = download_span(device_number(t), use);
  const std::optional<HostElements> elements = wait_for_elements(t);
  const at::Scalar number = elements ? number_at(elements->of(t), t.scalar_type()) : uninitialized_on_cpu(t).item();
  span.set_bytes(num_bytes(t));
  return number;
}

void record_copy(const at::Tensor& destination, const at::Tensor& source) {
  record_copy(destination, source, CopyOf::kValue);
}

void wait_for_value(const at::Tensor& t) {
  const int device = device_number(t);
  {
    auto lock = lock_recorder(device);
    const Recorder& recorder = Recorder::current();
    if (Capture* capture = recorder.capture(device)) {
      capture->is_told_at_call = true;
    }
    if (recorder.capture(device) || recorder.records_one_program) {
      return;
    }
  }
  observer::Span span = download_span(device, {});
  wait_for_source(find_cell(t));
}

bool has_bits(const at::Tensor& t) {
  return t.defined() && (t.is_conj() || t.is_neg());
}

std::vector<at::Tensor> without_bits(std::vector<at::Tensor> tensors) {
  for (at::Tensor& t : tensors) {
    if (has_bits(t)) {
      t = t.resolve_conj().resolve_neg();
    }
  }
  return tensors;
}

at::Tensor upload_adopted(int device, const at::Tensor& cpu) {
  if (cpu._is_zerotensor() || cpu.is_conj() || cpu.is_neg() || !cpu.is_non_overlapping_and_dense() || cpu.storage_offset() != 0 ||
      cpu.storage().use_count() != 1 || cpu.numel() == 0 ||
      item_size(to_dtype(cpu.scalar_type())) != static_cast<size_t>(cpu.element_size())) {
    at::Tensor dense = dense_form(cpu);
    return wrap_buffer(upload_dense(device, dense), engine_strides(dense));
  }
  observer::Span span(observer::Phase::kUpload, device, {}, observed_location(observer::Phase::kUpload));
  span.set_bytes(num_bytes(cpu));
  return wrap_buffer(adopt_dense(device, cpu), engine_strides(cpu));
}

void write_from_cpu(const at::Tensor& destination, const at::Tensor& cpu) {
  if (destination.numel() == 0) {
    return;
  }
  int device = device_number(destination);
  at::Tensor source = cpu.scalar_type() == destination.scalar_type() ? cpu : cpu.to(destination.scalar_type());
  source = stored_form(destination, source.sizes() == destination.sizes() ? source : source.expand(destination.sizes()));
  if (!fills_storage(destination, destination.storage().nbytes())) {
    if (is_recordable(to_dtype(destination.scalar_type()))) {
      record_copy(destination, upload_adopted(device, source.is_same(cpu) ? source.clone() : source), CopyOf::kStored);
    } else {
      write_part_on_cpu(destination, source);
    }
    return;
  }
  // In the destination's memory order: its geometry and the buffer's must agree.
  if (source.strides() != destination.strides()) {
    source = at::empty_strided(destination.sizes(), destination.strides(), source.options()).copy_(source);
  }
  write_buffer(destination, upload_dense(device, dense_form(source)));
}

void reinterpret_buffer_locked(Cell& cell, const Type& type) {
  XLA_ASSERT(cell.value->buffer(), "a pending value of a dtype without rows");
  Source source = source_locked(cell);
  EngineBufferRef payload = source.buffer->wait_uninterrupted();
  bool transfers = !payload->host_pointer(); // else it is the same memory
  std::optional<observer::Span> span;
  if (transfers) {
    span.emplace(observer::Phase::kDownload, cell.device, std::string_view(), observed_location(observer::Phase::kDownload));
  }
  at::Tensor whole = storage_on_cpu(std::move(source), std::move(payload));
  if (transfers) {
    span->set_bytes(num_bytes(whole));
    span.emplace(observer::Phase::kUpload, cell.device, std::string_view(), observed_location(observer::Phase::kUpload));
  }
  at::Tensor seen = at::for_blob(const_cast<void*>(whole.const_data_ptr()), to_ref(type.dims))
                        .deleter([whole](void*) {})
                        .options(whole.options().dtype(to_scalar_type(type.dtype)))
                        .make_tensor();
  BufferRef alias = adopt_dense(cell.device, seen);
  if (transfers) {
    span->set_bytes(type.nbytes());
  }
  alias->owners.fetch_add(1); // shares the memory: never donate it
  cell.set_value(LazyValue::ready(std::move(alias)));
  cell.previous = nullptr;
}

uintptr_t storage_address(const at::Tensor& tensor) {
  std::optional<Source> source = find_source(find_cell(tensor));
  XLA_CHECK_KIND(Value, source, "nobody has written the tensor: it has no memory yet");
  void* address = source->buffer->wait()->host_pointer();
  XLA_CHECK_KIND(NotImplemented, address, "the host cannot read the memory of this device");
  return reinterpret_cast<uintptr_t>(address);
}

} // namespace torch_xla
