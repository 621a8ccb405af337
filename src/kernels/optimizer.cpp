// Fused optimizers and the gradient scaler: one node for each parameter, so its update is one pass over its memory.
#include <torch/library.h>

#include "aten/boxed_call.h"
#include "aten/fallback.h"
#include "aten/native_call.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "kernels/register.h"
#include "ops/registry.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

// The arguments of an update: lists with a tensor for each parameter, then arguments shared by all parameters.
class ListUpdate {
 public:
  // The first `written` lists are written.
  ListUpdate(c10::ArrayRef<c10::IValue> arguments, size_t written) {
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensorList()) {
        lists_.push_back({argument.toTensorVector(), lists_.size() < written});
      } else {
        shared_.push_back(argument);
      }
    }
  }

  // Null if the update can be recorded.
  const char* find_obstacle() const {
    for (const List& list : lists_) {
      if (!list.tensors.empty() && list.tensors.size() != lists_[0].tensors.size()) {
        return "lists of different lengths";
      }
      for (const at::Tensor& t : list.tensors) {
        if (!is_xla_tensor(t) || !is_float(to_dtype(t.scalar_type())) || (list.written && overlaps_itself(t))) {
          return "a tensor of a type or on a device that the row does not compute on";
        }
      }
    }
    for (size_t i = 0; i < lists_[0].tensors.size(); ++i) {
      for (const List& list : lists_) {
        if (!list.written || list.tensors.empty()) {
          continue;
        }
        const at::Tensor& t = list.tensors[i];
        const at::Tensor& parameter = lists_[0].tensors[i];
        if ((t.sizes() != parameter.sizes() && t.dim() > 0) || t.scalar_type() != parameter.scalar_type()) {
          return "tensors of different sizes or dtypes";
        }
      }
    }
    return nullptr;
  }

  void record(const Op& row) const {
    for (size_t i = 0; i < lists_[0].tensors.size(); ++i) {
      record_one(row, i);
    }
  }

 private:
  struct List {
    std::vector<at::Tensor> tensors; // may be empty
    bool written;
  };

  void record_one(const Op& row, size_t i) const {
    Recording recording(device_number(lists_[0].tensors[i]));
    InlineVec<ValueId, 4> operands;
    Attrs attrs;
    std::vector<Type> types;
    for (const List& list : lists_) {
      operands.push_back(list.tensors.empty() ? kNoValue : recording.read(list.tensors[i]));
      if (list.written && !list.tensors.empty()) {
        types.push_back(recording.type(operands.back()));
      }
    }
    for (const c10::IValue& value : shared_) {
      if (value.isBool()) {
        attrs.push_back(value.toBool());
      } else {
        operands.push_back(
            value.isNone()         ? kNoValue
                : value.isTensor() ? recording.read_operand(value.toTensor())
                                   : recording.scalar(value.toScalar()));
      }
    }
    ValueId result = recording.node(row, std::move(operands), std::move(attrs), types);
    for (const List& list : lists_) {
      if (list.written && !list.tensors.empty()) {
        recording.write(list.tensors[i], result++);
      }
    }
  }

  std::vector<List> lists_;
  std::vector<c10::IValue> shared_;
};

// A boxed kernel for one ATen operation.
class FusedOptimizer final : public c10::OperatorKernel {
 public:
  FusedOptimizer(const Op& row, size_t written) : row_(row), written_(written) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    size_t count = op.schema().arguments().size();
    ListUpdate update(torch::jit::last(*stack, count), written_);
    if (const char* obstacle = update.find_obstacle()) {
      run_fallback(op, stack, obstacle);
      return;
    }
    try {
      update.record(row_);
    } catch (const UserError& error) {
      throw_as_torch_error(error);
    }
    torch::jit::drop(*stack, count);
    metrics::find_or_create_counter("xla::" + op.schema().name().substr(6)).add();
  }

 private:
  const Op& row_;
  const size_t written_; // the number of written lists
};

void unscale(at::TensorList tensors, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  static const Op& op = get_op("xla::unscale");
  for (const at::Tensor& t : tensors) {
    TORCH_CHECK(
        is_xla_tensor(t) && is_float(to_dtype(t.scalar_type())),
        "gradients to be unscaled must be floating point tensors of the XLA device");
    Recording recording(device_number(t));
    InlineVec<ValueId, 4> operands{recording.read(t), recording.read(found_inf), recording.read_operand(inv_scale)};
    std::array types{recording.type(operands[0]), recording.type(operands[1])};
    ValueId first = recording.node(op, std::move(operands), {}, types);
    recording.write(t, first);
    recording.write(found_inf, first + 1);
  }
}

at::Tensor& update_scale(
    at::Tensor& scale,
    at::Tensor& growth_tracker,
    const at::Tensor& found_inf,
    double growth_factor,
    double backoff_factor,
    int64_t interval) {
  static const Op& op = get_op("xla::update_scale");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(scale.scalar_type() == at::kFloat && scale.numel() == 1, "current_scale must be a float tensor of one element.");
  Recording recording(device_number(scale));
  InlineVec<ValueId, 4> operands{
      recording.read(scale),
      recording.read(growth_tracker),
      recording.read_operand(found_inf),
      recording.scalar_double(growth_factor),
      recording.scalar_double(backoff_factor),
      recording.scalar_int(interval)};
  std::array types{recording.type(operands[0]), recording.type(operands[1])};
  ValueId first = recording.node(op, std::move(operands), {}, types);
  recording.write(scale, first);
  recording.write(growth_tracker, first + 1);
  return scale;
}

void register_fused(torch::Library& m, const std::string& base, const Op& row, size_t written) {
  for (const char* overload : {"", ".tensor_lr"}) {
    m.impl((base + overload).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<FusedOptimizer>(row, written)));
  }
}

} // namespace

void register_optimizers(torch::Library& m) {
  register_fused(m, "_fused_adam_", get_op("xla::fused_adam"), 5);
  register_fused(m, "_fused_adamw_", get_op("xla::fused_adamw"), 5);
  register_fused(m, "_fused_sgd_", get_op("xla::fused_sgd"), 3);
  register_fused(m, "_fused_adagrad_", get_op("xla::fused_adagrad"), 3);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(unscale));
  m.impl("_amp_update_scale_", TORCH_FN(update_scale));
}

} // namespace torch_xla
