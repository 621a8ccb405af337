// The boxed kernel of all rows without an unboxed one: takes a call apart by its schema into operands and attributes.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

#include "core/errors.h"
#include "ir/builder.h"
#include "ops/tables.h"
#include "tensor/api.h"
#include "tensor/call.h"
#include "tensor/errors.h"
#include "tensor/generator.h"
#include "tensor/pointwise.h"
#include "tensor/recorder.h"
#include "tensor/rows.h"

namespace torch_xla {
namespace {

constexpr int64_t kMaxRank = 64; // of TensorIterator

class BoxedRow final : public c10::OperatorKernel {
 public:
  explicit BoxedRow(const RowOverload& row) : row_(row) {
    const c10::FunctionSchema& schema = row.handle->schema();
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      roles_.push_back(role_of(schema.arguments()[i], *row.op));
      may_lie_on_host_.push_back(may_lie_on_host(schema, i));
    }
    std::string_view name = row.op->name;
    if (name.starts_with("aten::div.") && name.ends_with("_mode")) {
      true_division_ = &get_op(name == "aten::div.Tensor_mode" ? "aten::div.Tensor" : "aten::div.Scalar");
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    std::string reason;
    try {
      Call call = take_apart(*stack);
      if (find_obstacle(call, &reason)) {
        if (row_.op->kind == OpKind::kPointwise && row_.convention == Convention::kInplace) {
          check_apart(call.tensors[0], pointwise_args(call)); // the CPU sees copies, which are
        }
        run_fallback(op, stack, reason);
        return;
      }
      std::vector<at::Tensor> results = record(call);
      finish(stack, std::move(results));
      row_.counter->add();
    } catch (const UserError& error) {
      if (error.kind() != ErrorKind::NotImplemented) {
        throw_as_torch_error(error);
      }
      run_fallback(op, stack, error.what());
    }
  }

 private:
  Call take_apart(const torch::jit::Stack& stack) const {
    Call call;
    size_t base = stack.size() - roles_.size();
    for (size_t i = 0; i < roles_.size(); ++i) {
      size_t first = call.tensors.size();
      take_argument(stack[base + i], roles_[i], call);
      for (size_t t = first; may_lie_on_host_[i] && t < call.tensors.size(); ++t) {
        upload_operand(call.tensors[t]);
      }
    }
    return call;
  }

  // Numbers (0-d) become parameters of the program.
  static void upload_operand(at::Tensor& t) {
    if (t.defined() && !is_xla_tensor(t) && t.dim() > 0) {
      t = t.to(c10::DeviceType::PrivateUse1);
    }
  }

  bool find_obstacle(const Call& call, std::string* reason) const {
    bool any_device = false;
    for (const at::Tensor& t : call.tensors) {
      if (t.defined() && !(is_xla_tensor(t) ? is_native_tensor(t) : is_native(to_dtype(t.scalar_type())))) {
        *reason = str("no rows for dtype ", c10::toString(t.scalar_type()));
        return true;
      }
      if (t.defined() && t.dim() > kMaxRank) {
        *reason = "too many dims";
        return true;
      }
      any_device |= is_xla_tensor(t);
    }
    for (const c10::Scalar& s : call.numbers) {
      if (s.isComplex()) {
        *reason = "no rows for complex numbers";
        return true;
      }
    }
    for (const at::Tensor& t : call.outs) {
      if (!is_xla_tensor(t) || !is_native(to_dtype(t.scalar_type())) || overlaps_itself(t)) {
        *reason = "the out tensor cannot be written natively";
        return true;
      }
    }
    if (row_.convention == Convention::kInplace && overlaps_itself(call.tensors[0])) {
      *reason = "a tensor whose elements share memory cannot be written natively";
      return true;
    }
    if (row_.op->kind == OpKind::kPointwise && !is_native_call(row_of(call), pointwise_args(call))) {
      *reason = "an argument of a type or on a device that the row does not compute on";
      return true;
    }
    if (row_.op->kind == OpKind::kPointwise && !call.outs.empty() && !is_native_out(row_of(call), pointwise_args(call), call.outs[0])) {
      *reason = "an out tensor of another dtype than the result";
      return true;
    }
    if (!has_valid_parameters(row_.op->name, call)) {
      *reason = "ATen refuses these parameters";
      return true;
    }
    return !any_device && call.outs.empty();
  }

  std::vector<at::Tensor> record(Call& call) {
    return row_.op->kind == OpKind::kPointwise ? record_pointwise(call) : record_node(call);
  }

  static std::vector<PointwiseArg> pointwise_args(const Call& call) {
    std::vector<PointwiseArg> args;
    for (int operand : call.order) {
      if (operand < 0) {
        args.emplace_back(call.numbers[static_cast<size_t>(-1 - operand)]);
      } else if (call.tensors[static_cast<size_t>(operand)].defined()) {
        args.emplace_back(call.tensors[static_cast<size_t>(operand)]);
      } else {
        args.emplace_back();
      }
    }
    return args;
  }

  // div with rounding_mode None is true division.
  const Op& row_of(const Call& call) const {
    bool plain = true_division_ && std::holds_alternative<std::monostate>(call.attrs[0]);
    return plain ? *true_division_ : *row_.op;
  }

  std::vector<at::Tensor> record_pointwise(Call& call) {
    std::vector<PointwiseArg> args = pointwise_args(call);
    const Op& op = row_of(call);
    switch (row_.convention) {
      case Convention::kFunctional:
        return {record_functional(op, args, std::move(call.attrs))};
      case Convention::kInplace:
        record_inplace(op, call.tensors[0], args, std::move(call.attrs));
        return {call.tensors[0]};
      case Convention::kOut:
        record_out(op, call.outs[0], args, std::move(call.attrs));
        return {call.outs[0]};
    }
    return {};
  }

  std::vector<at::Tensor> record_node(Call& call) {
    std::pair<uint64_t, uint64_t> philox;
    bool random = row_.op->traits & kRandom;
    if (random) {
      philox = next_philox(call.generator, 1);
    }
    auto read = [&](Recording& recording) {
      InlineVec<ValueId, 4> operands = read_operands(recording, call);
      if (is_lifted(call)) {
        operands[0] = recording.convert(operands[0], to_dtype(c10::get_default_dtype_as_scalartype()));
      }
      if (random) {
        operands.push_back(recording.scalar_int(static_cast<int64_t>(philox.first)));
        operands.push_back(recording.scalar_int(static_cast<int64_t>(philox.second)));
      }
      return operands;
    };
    std::optional<Recording> recording(std::in_place);
    InlineVec<ValueId, 4> operands = read(*recording);
    std::vector<Type> types = infer(operands, call.attrs);
    if (row_.convention == Convention::kOut) {
      recording.reset();
      check_outs(call, types);
      resize_outs(call, types);
      recording.emplace();
      // Resizing may have cut the trace, so the operands are read again.
      operands = read(*recording);
    } else if (row_.convention == Convention::kInplace) {
      check_inplace(call, types[0]);
    }
    ValueId first = recording->node(*row_.op, std::move(operands), std::move(call.attrs), types);
    return deliver(*recording, call, first, types);
  }

  // The program's default dtype is unknown to the trace.
  bool is_lifted(const Call& call) const {
    return (row_.op->traits & kLiftedByNumber) && c10::isIntegralType(call.tensors[0].scalar_type(), true) &&
        std::holds_alternative<double>(call.attrs[0]);
  }

  static InlineVec<ValueId, 4> read_operands(Recording& recording, const Call& call) {
    InlineVec<ValueId, 4> operands;
    for (int operand : call.order) {
      if (operand < 0) {
        operands.push_back(recording.scalar(call.numbers[static_cast<size_t>(-1 - operand)]));
      } else {
        const at::Tensor& t = call.tensors[static_cast<size_t>(operand)];
        operands.push_back(t.defined() ? recording.read_operand(t) : kNoValue);
      }
    }
    return operands;
  }

  std::vector<Type> infer(const InlineVec<ValueId, 4>& operands, const Attrs& attrs) const {
    InferContext context(recorder().trace.graph(), std::span(operands.begin(), operands.size()), attrs);
    row_.op->infer(context);
    return std::move(context.results());
  }

  // Which conversions of the result and which operands as out are allowed differs among ATen's operations: the CPU decides.
  void check_outs(const Call& call, const std::vector<Type>& types) const {
    for (size_t i = 0; i < call.outs.size(); ++i) {
      const at::Tensor& out = call.outs[i];
      if (to_dtype(out.scalar_type()) != types[i].dtype) {
        throw UserError(ErrorKind::NotImplemented, "an out tensor of another dtype than the result");
      }
      auto is_out = [&](const at::Tensor& t) { return t.is_same(out); };
      if (reads_while_writing() && std::any_of(call.tensors.begin(), call.tensors.end(), is_out)) {
        throw UserError(ErrorKind::NotImplemented, "an out tensor that is an operand");
      }
    }
  }

  void resize_outs(const Call& call, const std::vector<Type>& types) const {
    for (size_t i = 0; i < call.outs.size(); ++i) {
      at::native::resize_output(call.outs[i], to_ref(types[i].dims));
      if (reads_while_writing()) {
        check_separate(call.outs[i], call.tensors);
      }
    }
  }

  // ATen's kernels read operands after they began to write, so that it refuses memory in common.
  bool reads_while_writing() const {
    return is_row_of(index_ops()) || is_row_of(order_ops()) || is_row_of(join_ops());
  }

  static void check_separate(const at::Tensor& written, std::span<const at::Tensor> operands) {
    for (const at::Tensor& t : operands) {
      if (is_xla_tensor(t)) {
        at::assert_no_overlap(written, t);
      }
    }
  }

  void check_inplace(const Call& call, const Type& type) const {
    const at::Tensor& self = call.tensors[0];
    TORCH_CHECK(
        to_ref(type.dims) == self.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ", to_ref(type.dims));
    c10::ScalarType from = to_scalar_type(type.dtype);
    TORCH_CHECK(
        c10::canCast(from, self.scalar_type()), "result type ", from, " can't be cast to the desired output type ", self.scalar_type());
    if (is_row_of(index_ops())) {
      check_separate(self, std::span(call.tensors).subspan(1));
    }
  }

  std::vector<at::Tensor> deliver(Recording& recording, const Call& call, ValueId first, const std::vector<Type>& types) const {
    std::vector<at::Tensor> results;
    if (row_.convention == Convention::kInplace) {
      recording.write_converted(call.tensors[0], first);
      return {call.tensors[0]};
    }
    for (size_t i = 0; i < types.size(); ++i) {
      ValueId value = first + static_cast<ValueId>(i);
      if (row_.convention == Convention::kOut) {
        recording.write_converted(call.outs[i], value);
        results.push_back(call.outs[i]);
      } else if (types[i].dtype == DType::Undefined) {
        results.emplace_back();
      } else {
        results.push_back(recording.wrap(value, result_strides(call, types[i], i)));
      }
    }
    return results;
  }

  bool is_row_of(std::span<const Op> family) const {
    return row_.op >= family.data() && row_.op < family.data() + family.size();
  }

  // The operand that says in which order result i lies in memory, or null.
  const at::Tensor* find_order(const Call& call, const Type& type, size_t i) const {
    size_t operand = static_cast<size_t>(row_.op->order_of) + i;
    bool given = row_.op->order_of >= 0 && operand < call.tensors.size() && call.tensors[operand].sizes() == to_ref(type.dims);
    return given ? &call.tensors[operand] : nullptr;
  }

  // Convolutions and pools give channels-last results for channels-last inputs, as eager's do.
  Dims result_strides(const Call& call, const Type& type, size_t i) const {
    if (const at::Tensor* order = find_order(call, type, i)) {
      return iterator_strides(type.dims, std::array{PointwiseArg(*order)});
    }
    if (row_.op->traits & kKeepsOrder) {
      std::vector<PointwiseArg> args(call.tensors.begin(), call.tensors.end());
      return iterator_strides(type.dims, args);
    }
    bool follows_one = is_row_of(conv_ops()) || is_row_of(pad_ops());
    bool follows_all = row_.op->traits & kFormatOfAll;
    if ((!follows_one && !follows_all) || (type.dims.size() != 4 && type.dims.size() != 5)) {
      return {};
    }
    auto format = type.dims.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    auto has_format = [&](const at::Tensor& t) {
      return t.defined() && t.dim() == static_cast<int64_t>(type.dims.size()) && t.suggest_memory_format() == format;
    };
    bool all = std::all_of(call.tensors.begin(), call.tensors.end(), has_format);
    if (!all && !(follows_one && std::any_of(call.tensors.begin(), call.tensors.end(), has_format))) {
      return {};
    }
    return type.dims.size() == 4 ? to_dims(c10::get_channels_last_strides_2d(to_ref(type.dims)))
                                 : to_dims(c10::get_channels_last_strides_3d(to_ref(type.dims)));
  }

  void finish(torch::jit::Stack* stack, std::vector<at::Tensor> results) const {
    torch::jit::drop(*stack, roles_.size());
    size_t returns = row_.handle->schema().returns().size();
    for (size_t i = 0; i < returns; ++i) {
      stack->emplace_back(std::move(results[i]));
    }
  }

  RowOverload row_;
  std::vector<ArgumentRole> roles_;
  std::vector<bool> may_lie_on_host_; // parallel to roles_
  const Op* true_division_ = nullptr; // for the rows div.*_mode
};

} // namespace

void register_boxed(torch::Library& library, const RowOverload& row) {
  library.impl(
      c10::toString(row.handle->operator_name()).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedRow>(row)));
}

} // namespace torch_xla
