// The table of the rows that another kernel computes in place of ATen's, that are checked before ATen's kernel runs, or run on one thread.
#include "engine/cpu/library/substitutes.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <iterator>

#include "engine/cpu/cost.h"
#include "engine/cpu/library/attention.h"
#include "engine/cpu/library/division.h"
#include "engine/cpu/library/products.h"
#include "engine/cpu/library/quantized.h"
#include "engine/cpu/library/rows.h"
#include "engine/cpu/library/scans.h"
#include "engine/engine.h"

namespace torch_xla {
namespace cpu {
namespace {

CallKernel choose_product(const CallSpec& call) {
  return is_small_product(call) ? multiply_small
      : has_few_rows(call)      ? multiply_few_rows
      : call.weight_stays       ? multiply_packing
      : prefers_onednn(call)    ? multiply_by_onednn
      : prefers_parts(call)     ? multiply_parts
                                : nullptr;
}

CallKernel choose_batch_product(const CallSpec& call) {
  return is_widened(call) ? multiply_widened : nullptr;
}

CallKernel choose_vector(const CallSpec& call) {
  return has_vector(call) ? multiply_vector : nullptr;
}

CallKernel choose_int8(const CallSpec& call) {
  return is_int8_product(call) ? multiply_int8 : nullptr;
}

CallKernel choose_int4(const CallSpec& call) {
  return is_int4_product(call) ? multiply_int4 : nullptr;
}

CallKernel choose_attention(const CallSpec& call) {
  return has_few_queries(call) ? attend_by_few : has_many_queries(call) ? attend_to_many : nullptr;
}

// Whether oneDNN's product and its remainder have the same values on any number of threads.
bool is_same_by_onednn(const CallSpec& call) {
  const bool is_rest_cut = is_whole_for_onednn(call) || call.results[0].type.dims[1] > kPartUnit;
  return is_rest_cut && has_uncut_sums(call.operands.back().type.dims[0]);
}

// The work of a kernel chosen by the functions above. MKL cuts products that we do not cut; oneDNN cuts long sums.
Work work_of_product(CallKernel kernel, const CallSpec& call) {
  if (kernel == multiply_small) {
    return 0;
  }
  if (kernel == multiply_few_rows || kernel == multiply_vector) {
    return (kernel == multiply_vector ? call.operands.front() : call.operands.back()).type.numel() / kNumbersPerThread;
  }
  const bool is_same = (kernel == multiply_parts && is_cut(call)) || (kernel == multiply_by_onednn && is_same_by_onednn(call)) ||
      (kernel == multiply_packing && has_uncut_sums(call.operands.back().type.dims[0]));
  return is_same ? Work(num_products(call) / kProductsPerThread) : std::nullopt;
}

CallKernel choose_groups(const CallSpec&) {
  return multiply_groups;
}

// Of a barrier.
void hand_on(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs) {
  for (size_t i = 0; i < outs.size(); ++i) {
    if (outs[i].const_data_ptr() != operands[i].const_data_ptr()) {
      outs[i].copy_(operands[i]);
    }
  }
}

CallKernel choose_barrier(const CallSpec&) {
  return hand_on;
}

bool is_along_rows(const CallSpec& call) {
  return std::get<int64_t>(call.attrs[0]) == 0;
}

bool adds_once(const CallSpec& call) {
  const auto* factor = std::get_if<int64_t>(&call.attrs[1]);
  return factor && *factor == 1;
}

CallKernel choose_taken(const CallSpec& call) {
  return takes_rows(call) ? take_rows : nullptr;
}

CallKernel choose_selected(const CallSpec& call) {
  return is_along_rows(call) ? choose_taken(call) : nullptr;
}

CallKernel choose_put(const CallSpec& call) {
  return !std::get<bool>(call.attrs[1]) ? (writes_rows(call) ? write_rows : nullptr) : adds_rows(call) ? add_rows : nullptr;
}

CallKernel choose_copied(const CallSpec& call) {
  return is_along_rows(call) && writes_rows(call) ? write_rows : nullptr;
}

// ATen's kernels add 16-bit numbers in float32.
bool adds_as_stored(const CallSpec& call) {
  return item_size(call.results[0].type.dtype) >= item_size(DType::F32);
}

CallKernel choose_added(const CallSpec& call) {
  return is_along_rows(call) && adds_as_stored(call) && adds_once(call) && adds_rows(call) ? add_rows : nullptr;
}

CallKernel choose_scattered(const CallSpec& call) {
  return is_along_rows(call) && adds_as_stored(call) && adds_expanded_rows(call) ? add_expanded_rows : nullptr;
}

// For calls without padding index and without scaling by frequency.
CallKernel choose_embedding_backward(const CallSpec& call) {
  const bool is_plain = std::get<int64_t>(call.attrs[1]) < 0 && !std::get<bool>(call.attrs[2]);
  return is_plain && adds_embedding_rows(call) ? add_embedding_rows : nullptr;
}

// ATen's backward ignores indices out of range, as its forward refuses them; here the forward may not have run.
void check_embedding_indices(torch::jit::Stack& arguments) {
  const at::Tensor& indices = arguments[1].toTensor();
  if (indices.numel() == 0) {
    return;
  }
  auto [low, high] = at::aminmax(indices);
  TORCH_CHECK_INDEX(low.item().toLong() >= 0 && high.item().toLong() < arguments[2].toInt(), "index out of range in self");
}

// LAPACK reads foreign memory for matrices that are not finite. With the error of ATen's linalg.eig.
void check_finite(torch::jit::Stack& arguments) {
  const bool finite = arguments[0].toTensor().isfinite().all().item<bool>();
  TORCH_CHECK(finite, "torch.linalg.eigvals: input tensor should not contain infs or NaNs.");
}

// ATen's fast kernels for sums detect bags out of order only with some numbers of threads, and leave results unset with others.
void check_bags(torch::jit::Stack& arguments) {
  constexpr int64_t kMax = 2;
  const at::Tensor& starts = arguments[2].toTensor();
  const bool is_fast = arguments[0].toTensor().scalar_type() != c10::ScalarType::Double && arguments[8].toInt() < 0;
  if (is_fast && arguments[4].toInt() != kMax && starts.dim() == 1 && starts.size(0) > 1) {
    const bool ascend = starts.diff().ge(0).all().item<bool>();
    TORCH_CHECK(ascend, "embedding_bag: each of the offsets must be at least the one before it, as bags follow each other");
  }
}

// The gradient of a weight of 1 x 1 that leaves out pixels: without AVX-512, oneDNN's kernel accesses memory beyond channels-last images
// with fewer channels than a vector has numbers, or never ends. ATen uses channels-last if the images or the weight have that order.
void order_misread_images(torch::jit::Stack& arguments) {
  constexpr int64_t kChannels = 8;
  const at::Tensor input = arguments[1].toTensor();
  const at::Tensor weight = arguments[2].toTensor();
  const std::vector<int64_t> stride = arguments[4].toIntVector();
  const bool leaves_out = std::any_of(stride.begin(), stride.end(), [](int64_t step) { return step > 1; });
  if (input.dim() != 4 || input.size(1) >= kChannels || weight.size(2) * weight.size(3) != 1 || !leaves_out) {
    return;
  }
  auto is_channels_last = [](const at::Tensor& t) { return t.suggest_memory_format() == at::MemoryFormat::ChannelsLast; };
  if (is_channels_last(input) || is_channels_last(weight)) {
    arguments[1] = input.clone(at::MemoryFormat::Contiguous);
    arguments[2] = weight.clone(at::MemoryFormat::Contiguous); // in its dims of size 1, too
  }
}

// _int_mm reads an expanded matrix beyond its memory.
void copy_expanded_matrices(torch::jit::Stack& arguments) {
  for (size_t i = 0; i < 2; ++i) {
    const at::Tensor t = arguments[i].toTensor();
    if (std::any_of(t.strides().begin(), t.strides().end(), [](int64_t stride) { return stride == 0; })) {
      arguments[i] = t.contiguous();
    }
  }
}

bool trains_layer(const CallSpec& call) {
  constexpr size_t kTrain = 8;
  return std::get<bool>(call.attrs[kTrain]);
}

// oneDNN's LSTM opens regions for each time step. Operand 0 is the input [T, N, C], 2 the weights [4H, H].
bool has_short_steps(const CallSpec& call) {
  const Dims& weights = call.operands[2].type.dims;
  return 2 * call.operands[0].type.dims[1] * weights[0] * weights[1] <= kMaxShortFlops;
}

// Operands: query, key, value of [N, H, L or S, E]. Flash attention computes each block of queries by itself, with the same values on any
// number of threads, except for a single block (MKL shares out its products), long heads (MKL cuts their sums) and float16 (products are
// packed by the number of threads). The gradient's values always depend on it, so it has no row below.
Work work_of_attention(const CallSpec& call) {
  const Type& query = call.operands[0].type;
  const int64_t queries = query.dims[2];
  const int64_t block = queries >= 768 ? 256 : queries >= 192 ? 64 : 32; // ATen's
  const bool is_one_block = query.dims[0] * query.dims[1] == 1 && queries <= block;
  if (is_one_block || query.dims[3] > kLongestUncutHead || query.dtype == DType::F16) {
    return std::nullopt;
  }
  return 2 * query.numel() * call.operands[1].type.dims[2] / kProductsPerThread;
}

Work work_of_own_attention(CallKernel kernel, const CallSpec& call) {
  const int64_t keys = call.operands[1].type.dims[2];
  return kernel == attend_by_few ? work_of_few_queries(call) : 2 * call.operands[0].type.numel() * keys / kProductsPerThread;
}

Work work_of_quantized(CallKernel /*kernel*/, const CallSpec& call) {
  return work_of_weights(call);
}

// Copies, and sums of rows with columns or rows of the result divided among threads.
Work work_of_moves(const CallSpec& call) {
  return std::max(call.operands[0].type.numel(), call.results[0].type.numel()) / kMovedPerThread;
}

// As these kernels share it out.
Work work_of_rows(CallKernel kernel, const CallSpec& call) {
  return (kernel == take_rows                ? call.results[0]
              : kernel == add_embedding_rows ? call.operands[0]
                                             : call.operands.back())
             .type.numel() /
      kMovedPerThread;
}

// ATen sums a mean or sum reduction on one thread.
Work work_of_losses(const CallSpec& call) {
  return call.operands[0].type.numel() / kMovedPerThread;
}

constexpr Substitute product(const char* row) {
  return {
      .row = row,
      .choose = choose_product,
      .work_of_kernel = work_of_product,
      .is_faster_only = true,
      .reads_halves = has_few_rows,
      .is_short = is_short_product,
      .packing = &kPackedMatrix};
}

constexpr Substitute rows(
    const char* row,
    CallKernel (*choose)(const CallSpec& call),
    bool (*suits)(const std::vector<at::Tensor>& operands),
    Work (*work)(const CallSpec& call) = nullptr) {
  return {.row = row, .choose = choose, .suits = suits, .work_of_kernel = work_of_rows, .is_faster_only = true, .work = work};
}

constexpr Substitute scan(const char* row, CallKernel (*choose)(const CallSpec& call)) {
  return {.row = row, .choose = choose, .work_of_kernel = work_of_scan, .is_faster_only = true};
}

constexpr Substitute kSubstitutes[] = {
    rows("aten::embedding", choose_taken, are_rows, work_of_moves),
    rows("aten::index_select", choose_selected, are_rows, work_of_moves),
    rows("aten::index.Tensor", choose_taken, are_rows_from_both_ends, work_of_moves),
    rows("aten::index_add", choose_added, are_rows),
    rows("aten::index_copy", choose_copied, are_rows),
    rows("aten::index_put", choose_put, are_rows_from_both_ends),
    rows("aten::_index_put_impl_", choose_put, are_rows_from_both_ends),
    {.row = "aten::cat", .work = work_of_moves},
    {.row = "aten::div.Tensor_mode", .prepare = wrap_quotients},
    {.row = "aten::floor_divide", .prepare = wrap_quotients},
    {.row = "aten::remainder.Tensor", .prepare = wrap_quotients},
    {.row = "aten::fmod.Tensor", .prepare = wrap_quotients},
    {.row = "aten::lcm", .prepare = wrap_multiples},
    {.row = "aten::nll_loss_forward", .work = work_of_losses},
    product("aten::mm"),
    product("aten::addmm"),
    scan("aten::cumsum", choose_running_sum),
    scan("aten::cumprod", choose_running_product),
    {.row = "aten::sort", .outside_pool = true},
    {.row = "aten::sort.stable", .outside_pool = true},
    {.row = "aten::bmm", .choose = choose_batch_product},
    {.row = "aten::mv", .choose = choose_vector, .work_of_kernel = work_of_product, .is_faster_only = true},
    {.row = "aten::_embedding_bag", .prepare = check_bags},
    {.row = "aten::_embedding_bag_forward_only", .prepare = check_bags},
    {.row = "aten::_linalg_eigvals", .prepare = check_finite},
    {.row = "xla::fused_convolution", .packing = &kPackedConvolution},
    {.row = "xla::quantized_convolution", .packing = &kPackedIntegers},
    {.row = "aten::convolution_backward", .prepare = order_misread_images},
    {.row = "aten::_weight_int8pack_mm", .choose = choose_int8, .work_of_kernel = work_of_quantized, .is_faster_only = true},
    {.row = "aten::_weight_int4pack_mm_for_cpu", .choose = choose_int4, .work_of_kernel = work_of_quantized, .is_faster_only = true},
    {.row = "aten::_int_mm", .prepare = copy_expanded_matrices, .work = work_of_weights},
    {.row = "aten::_scaled_dot_product_flash_attention_for_cpu",
     .choose = choose_attention,
     .work_of_kernel = work_of_own_attention,
     .is_faster_only = true,
     .reads_halves = has_few_queries,
     .work = work_of_attention},
    {.row = "aten::_grouped_mm", .choose = choose_groups},
    {.row = "xla::optimization_barrier", .choose = choose_barrier},
    {.row = "aten::embedding_dense_backward",
     .choose = choose_embedding_backward,
     .work_of_kernel = work_of_rows,
     .is_faster_only = true,
     .prepare = check_embedding_indices,
     .work = work_of_moves},
    rows("aten::scatter_add", choose_scattered, are_expanded_rows),
    {.row = "aten::mkldnn_rnn_layer", .trains = trains_layer, .is_short = has_short_steps, .one_thread = true},
    {.row = "aten::mkldnn_rnn_layer_backward", .is_short = has_short_steps},
};

} // namespace

CallSpec::Tensor as_spec(const at::Tensor& t) {
  auto dims = [](c10::IntArrayRef numbers) { return Dims(numbers.data(), numbers.size()); };
  return t.defined() ? CallSpec::Tensor{{static_cast<DType>(t.scalar_type()), dims(t.sizes())}, dims(t.strides())}
                     : CallSpec::Tensor{{DType::Undefined, {}}, {}};
}

Substitute find_substitute(std::string_view row) {
  auto found = std::find_if(std::begin(kSubstitutes), std::end(kSubstitutes), [&](const Substitute& s) { return row == s.row; });
  return found == std::end(kSubstitutes) ? Substitute() : *found;
}

} // namespace cpu

bool prepare_call(std::string_view row, torch::jit::Stack& arguments) {
  const auto prepare = cpu::find_substitute(row).prepare;
  if (prepare) {
    prepare(arguments);
  }
  return prepare != nullptr;
}

} // namespace torch_xla
