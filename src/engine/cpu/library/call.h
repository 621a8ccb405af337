// One call of an ATen CPU kernel: as data, and prepared to run.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/library/parts.h"
#include "engine/cpu/memory/cpu_buffer.h"
#include "engine/cpu/place.h"
#include "engine/cpu/threads/leave.h"
#include "passes/passes.h"

namespace torch_xla::cpu {

// Memory of one result of a call: given by the caller, or adopted from what ATen allocated (then `block` owns it).
struct ResultMemory {
  void* data = nullptr;
  BlockRef block;
};

// A call as data: what it is prepared from.
struct CallSpec {
  struct Tensor {
    Type type; // DType::Undefined: an operand None, a missing result
    Dims strides;
  };
  std::string name; // ATen's: "aten::add.Tensor"
  std::string out_form; // the overload that writes into given memory; empty: do not call it
  Attrs attrs;
  std::vector<Tensor> operands;
  std::vector<Tensor> results;
  int32_t location = -1; // Node::location
  // mm and addmm: whether the last operand is a parameter that only library calls read, so no optimizer updates it in this program.
  bool weight_stays = false;
};

bool is_row_major(const CallSpec::Tensor& t);

// `may_write_into` false: results are adopted, unless no form of ATen's allocates them.
CallSpec make_call_spec(const LaidOutGraph& laid_out, const Node& node, bool may_write_into);
// True when the node's call writes its results into memory of the caller, else its results are adopted. Throws as LibraryCall's
// constructor.
bool writes_into(const LaidOutGraph& laid_out, const Node& node, bool may_write_into);
// Whether several calls of it are faster beside each other, on a thread each, than one after the other on all threads.
bool prefers_one_thread(const Node& node);
// For EngineRules::fuses, of a convolution of images. xla::fused_convolution's operands: input, weight, bias, a batch norm's running mean,
// variance, scale and shift, the other tensor of a sum; all but the first two may be None. Its attributes: those of aten::convolution, the
// norm's eps, the activation's Op::epilogue or "none" (a sum has "relu" or "none"), and oneDNN's name of its algorithm. Weight and bias may
// be float32 beside bfloat16 images.
ConvolutionFusion find_fusion(const Graph& graph, const Node& node);
// Defines xla::fused_convolution and xla::quantized_convolution for PyTorch's dispatcher. Once in a process, before calls of them.
void define_convolutions();
// PyTorch's switches that make_call_spec() and these functions depend on.
std::string call_settings();

// Constant operands as the call reads them fastest (packed.h).
struct Packed;
using PackedRef = std::shared_ptr<Packed>;

// Positions of operands: begin to end.
struct OperandRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// Not thread-safe: the operands' tensors are made once and get new addresses at each run.
class LibraryCall {
 public:
  // Throws InternalError when ATen has no such operation or the attributes do not fit its schema.
  explicit LibraryCall(const CallSpec& spec);
  ~LibraryCall();
  LibraryCall(LibraryCall&&) noexcept;

  // As the function above; then ResultMemory::data must be set for each result.
  bool writes_into() const;
  // `operands`: addresses of element 0, parallel to the node's operands; ignored for None. `results`: parallel to the node's; undefined
  // ones stay empty. ATen allocates from the pool. Throws StepError with ATen's message. `undo`, if not null, gets the undo of a partial
  // write. `packed`, if not null: the packed form of the operands packable().
  void run(
      Pool& pool,
      std::span<void* const> operands,
      std::span<ResultMemory> results,
      std::vector<Undo>* undo = nullptr,
      const PackedRef& packed = nullptr);

  const Work& work() const;
  // Whether share_out() computes it.
  bool shares_out() const;

  // The operands whose packed form makes the call faster, to the same bits.
  OperandRange packable() const;
  // Whether the packed form is all that the call reads of the first of them, the weight.
  bool reads_only_packed() const;
  // Hash of the packed order and of the operands' own.
  const Hash128& packing() const;
  int64_t packed_bytes() const;
  // Packs the operands at these addresses, parallel to the node's. Throws StepError as run().
  PackedRef pack(std::span<void* const> operands) const;
  // Writes the operand, as it lies at this address, again from its packed form, to the last bit; any thread may call it. Empty if the
  // packed form does not tell every bit.
  std::function<void(void* to)> find_unpack(const PackedRef& packed, const void* operand) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace torch_xla::cpu
