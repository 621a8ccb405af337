// Batch norm, which writes more than it returns: the running statistics.
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/result_strides.h"
#include "core/metrics.h"
#include "ir/builder.h"
#include "kernels/register.h"
#include "ops/registry.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

ValueId read_optional(Recording& recording, const OptionalTensor& t) {
  return t && t->defined() ? recording.read_operand(*t) : kNoValue;
}

// By the overload with the running statistics as written arguments, if there are any.
std::tuple<at::Tensor, at::Tensor, at::Tensor> fallback_batch_norm(torch::jit::Stack stack, const std::string& reason) {
  bool running = !stack[3].isNone() && !stack[4].isNone();
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  run_fallback(
      running ? dispatcher.findSchemaOrThrow("aten::_native_batch_norm_legit", "")
              : dispatcher.findSchemaOrThrow("aten::native_batch_norm", ""),
      &stack,
      reason);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

// The row returns the new running statistics as two more results.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double momentum,
    double eps) {
  static const Op& op = get_op("aten::native_batch_norm");
  static metrics::Counter& count = metrics::find_or_create_counter("xla::native_batch_norm");
  try {
    if (!is_xla_tensor(input) || !is_native_tensor(input)) {
      throw UserError(ErrorKind::NotImplemented, "no rows for this dtype");
    }
    Recording recording(device_number(input));
    InlineVec<ValueId, 4> operands{
        recording.read(input),
        read_optional(recording, weight),
        read_optional(recording, bias),
        read_optional(recording, running_mean),
        read_optional(recording, running_var)};
    Attrs attrs{training, momentum, eps};
    InferContext context(recording.graph(), std::span(operands.begin(), operands.size()), attrs);
    op.infer(context);
    std::vector<Type> types = context.results();
    BoxedCall call;
    call.tensors = {input};
    Dims strides = result_strides(op, call, attrs, types[0], 0);
    ValueId first = recording.node(op, operands, std::move(attrs), types);
    count.add();
    if (training && running_mean && running_mean->defined()) {
      recording.write_converted(*running_mean, first + 3);
      recording.write_converted(*running_var, first + 4);
    }
    return {recording.wrap(first, strides), recording.wrap(first + 1), recording.wrap(first + 2)};
  } catch (const UserError& error) {
    if (error.kind() != ErrorKind::NotImplemented) {
      throw_as_torch_error(error);
    }
    return fallback_batch_norm({input, weight, bias, running_mean, running_var, training, momentum, eps}, error.what());
  }
}

} // namespace

void register_batch_norm(torch::Library& m) {
  m.impl("native_batch_norm", TORCH_FN(native_batch_norm));
}

} // namespace torch_xla
