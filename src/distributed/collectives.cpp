// Kernels of the collectives on CPU tensors, over the process groups of torch.distributed (gloo).
#include "distributed/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "distributed/group.h"

namespace torch_xla {
namespace {

// Sizes of the parts of an all_reduce. Halves, as gloo has two threads; smaller parts cost more than they gain.
constexpr int64_t kMinPartBytes = 4 << 20;
constexpr int64_t kMaxPartBytes = 25 << 20;

// ---- Types on the way ----

// How the group reduces: gloo has no kernels for Bool, int16 and complex numbers.
struct Reduction {
  c10::ScalarType type;
  c10d::ReduceOp op;
};

c10d::ReduceOp find_op(const std::string& name, bool is_bool) {
  using c10d::ReduceOp;
  if (is_bool && name != "xor") {
    bool any = name == "sum" || name == "or" || name == "max";
    return any ? ReduceOp::MAX : ReduceOp::MIN;
  }
  static const std::unordered_map<std::string, ReduceOp::RedOpType> ops{
      {"sum", ReduceOp::SUM},
      {"mul", ReduceOp::PRODUCT},
      {"min", ReduceOp::MIN},
      {"max", ReduceOp::MAX},
      {"and", ReduceOp::BAND},
      {"or", ReduceOp::BOR},
      {"xor", ReduceOp::BXOR}};
  auto found = ops.find(name);
  TORCH_CHECK_VALUE(found != ops.end(), "the reduction ", name, " is not known");
  return found->second;
}

Reduction find_reduction(const std::string& name, c10::ScalarType type) {
  bool is_bool = type == at::kBool;
  bool words = name == "and" || name == "or" || name == "xor";
  TORCH_CHECK_TYPE(is_bool || !words || c10::isIntegralType(type, false), "the reduction ", name, " of ", type, " is not defined");
  TORCH_CHECK_TYPE(!c10::isComplexType(type) || name == "sum", "the reduction ", name, " of complex numbers is not defined");
  c10::ScalarType on_the_way = is_bool ? at::kByte : type == at::kShort ? at::kInt : c10::toRealValueType(type);
  return {on_the_way, find_op(name, is_bool)};
}

at::Tensor as_real(const at::Tensor& input) {
  return input.is_complex() ? at::view_as_real(input.resolve_conj()) : input;
}

// Contiguous memory for a copy of the input that the group can reduce.
at::Tensor packed_like(const at::Tensor& real, c10::ScalarType type) {
  return at::empty(real.sizes(), real.options().dtype(type));
}

at::Tensor pack(const at::Tensor& input, c10::ScalarType type) {
  at::Tensor real = as_real(input);
  return packed_like(real, type).copy_(real);
}

// A result of the input's type and these sizes out of what the group gave.
at::Tensor unpack(const at::Tensor& packed, const at::Tensor& input) {
  if (input.is_complex()) {
    at::Tensor result = at::empty(packed.sizes().slice(0, packed.dim() - 1), input.options());
    at::view_as_real(result).copy_(packed);
    return result;
  }
  return packed.scalar_type() == input.scalar_type() ? packed : packed.to(input.scalar_type());
}

// The memory of a contiguous tensor, for tensors sent as they are. (The stride of a dim of size 1 has no effect, and may be 0.)
at::Tensor bytes_of(const at::Tensor& t) {
  return t.as_strided({t.numel()}, {1}).view(at::kByte);
}

// ---- The collectives ----

at::DimVector with_dim0(const at::Tensor& input, int64_t size) {
  at::DimVector sizes(input.sizes());
  sizes[0] = size;
  return sizes;
}

// Reduces the input into `out`, which is contiguous and may share the input's memory. Part by part: one is copied while earlier ones
// travel. The parts follow from the size of `out` alone, so that they are the same on all replicas.
void reduce_all(const at::Tensor& input, const at::Tensor& out, const Collective& collective, c10d::ReduceOp op, const std::string& group) {
  const bool copies = input.const_data_ptr() != out.const_data_ptr();
  at::Tensor to = out.view({-1}), from = copies ? input.reshape({-1}) : to;
  const int64_t size = to.numel(), element = static_cast<int64_t>(to.element_size());
  const int64_t part = std::clamp((size + 1) / 2, kMinPartBytes / element, kMaxPartBytes / element);
  run_on_group(group, collective, [&](c10d::Backend& backend) {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    std::vector<WorkRef> works;
    for (int64_t start = 0; start == 0 || start < size; start += part) {
      const int64_t count = std::min(part, size - start);
      std::vector<at::Tensor> tensors{to.narrow(0, start, count)};
      if (copies) {
        tensors[0].copy_(from.narrow(0, start, count));
      }
      works.push_back(backend.allreduce(tensors, options));
    }
    return works;
  });
}

at::Tensor all_reduce(const at::Tensor& input, const std::string& reduction, const std::string& group) {
  Reduction chosen = find_reduction(reduction, input.scalar_type());
  at::Tensor real = as_real(input), packed = packed_like(real, chosen.type);
  reduce_all(real, packed, {.name = "all_reduce", .input = input, .reduction = reduction}, chosen.op, group);
  return unpack(packed, input);
}

// `out` is contiguous; it may lie in the input's memory.
at::Tensor& all_reduce_out(const at::Tensor& input, const std::string& reduction, const std::string& group, at::Tensor& out) {
  Reduction chosen = find_reduction(reduction, input.scalar_type());
  if (chosen.type != input.scalar_type()) {
    return out.copy_(all_reduce(input, reduction, group));
  }
  reduce_all(input, out, {.name = "all_reduce", .input = input, .reduction = reduction}, chosen.op, group);
  return out;
}

at::Tensor all_gather(const at::Tensor& input, int64_t replicas, const std::string& group) {
  at::Tensor sent = input.contiguous();
  at::Tensor result = at::empty(with_dim0(input, input.size(0) * replicas), input.options());
  at::Tensor from = bytes_of(sent), to = bytes_of(result);
  run_on_group(group, {.name = "all_gather", .input = input}, [&](c10d::Backend& backend) {
    return std::vector{backend._allgather_base(to, from)};
  });
  return result;
}

at::Tensor reduce_scatter(const at::Tensor& input, const std::string& reduction, int64_t replicas, const std::string& group) {
  Reduction chosen = find_reduction(reduction, input.scalar_type());
  at::Tensor packed = pack(input, chosen.type);
  at::Tensor part = at::empty(with_dim0(packed, packed.size(0) / replicas), packed.options());
  run_on_group(group, {.name = "reduce_scatter", .input = input, .reduction = reduction}, [&](c10d::Backend& backend) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = chosen.op;
    return std::vector{backend._reduce_scatter_base(part, packed, options)};
  });
  return unpack(part, input);
}

// Exchanges rows of dim 0; the lists give the number to and from each replica.
at::Tensor all_to_all(const at::Tensor& input, at::IntArrayRef received, at::IntArrayRef sent, const std::string& group) {
  at::Tensor result = at::empty(with_dim0(input, c10::sum_integers(received)), input.options());
  at::Tensor from = bytes_of(input.contiguous()), to = bytes_of(result);
  int64_t row_bytes = c10::multiply_integers(input.sizes().slice(1)) * static_cast<int64_t>(input.element_size());
  auto in_bytes = [&](at::IntArrayRef counts) {
    std::vector<int64_t> bytes(counts.begin(), counts.end());
    for (int64_t& count : bytes) {
      count *= row_bytes;
    }
    return bytes;
  };
  std::vector<int64_t> to_splits = in_bytes(received), from_splits = in_bytes(sent);
  run_on_group(group, {.name = "all_to_all", .input = input, .received = received, .sent = sent}, [&](c10d::Backend& backend) {
    return std::vector{backend.alltoall_base(to, from, to_splits, from_splits)};
  });
  return result;
}

// Not a tag of send() and recv(): their messages may still be on the way.
constexpr int kPermuteTag = std::numeric_limits<int>::max();

// `pairs` holds source and target of each transfer, one after the other. Zeros for a replica that is no target.
at::Tensor collective_permute(const at::Tensor& input, at::IntArrayRef pairs, const std::string& group) {
  int64_t self = find_member(group).group->getRank();
  at::Tensor result = at::zeros(input.sizes(), input.options());
  std::vector<at::Tensor> from{bytes_of(input.contiguous())}, to{bytes_of(result)};
  run_on_group(
      group,
      {.name = "collective_permute", .input = input, .numbers = pairs, .meets = false, .is_transfers = true},
      [&](c10d::Backend& backend) {
        std::vector<WorkRef> works;
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
          if (pairs[i] == self && pairs[i + 1] == self) {
            to[0].copy_(from[0]);
          } else if (pairs[i] == self) {
            works.push_back(backend.send(from, static_cast<int>(pairs[i + 1]), kPermuteTag));
          } else if (pairs[i + 1] == self) {
            works.push_back(backend.recv(to, static_cast<int>(pairs[i]), kPermuteTag));
          }
        }
        return works;
      });
  return result;
}

at::Tensor broadcast(const at::Tensor& input, int64_t root, const std::string& group) {
  at::Tensor result = input.clone(at::MemoryFormat::Contiguous);
  std::vector<at::Tensor> data{bytes_of(result)};
  run_on_group(group, {.name = "broadcast", .input = input, .numbers = root, .meets = false}, [&](c10d::Backend& backend) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return std::vector{backend.broadcast(data, options)};
  });
  return result;
}

// Returns before the target has received it: the sent data is a copy.
at::Tensor send(const at::Tensor& input, int64_t target, int64_t tag, const std::string& group) {
  at::Tensor sent = input.clone(at::MemoryFormat::Contiguous);
  send_on_group(group, bytes_of(sent), static_cast<int>(target), static_cast<int>(tag));
  return input.clone(at::MemoryFormat::Contiguous);
}

at::Tensor recv(const at::Tensor& like, int64_t source, int64_t tag, const std::string& group) {
  at::Tensor result = at::empty(like.sizes(), like.options());
  std::vector<at::Tensor> data{bytes_of(result)};
  run_on_group(
      group, [&](c10d::Backend& backend) { return std::vector{backend.recv(data, static_cast<int>(source), static_cast<int>(tag))}; });
  return result;
}

// ---- Shape rules ----

at::Tensor like(const at::Tensor& input) {
  return at::empty(input.sizes(), input.options());
}

at::Tensor all_reduce_meta(const at::Tensor& input, const std::string&, const std::string&) {
  return like(input);
}

at::Tensor all_gather_meta(const at::Tensor& input, int64_t replicas, const std::string&) {
  TORCH_CHECK_VALUE(input.dim() > 0, "all_gather joins along a dim, and the tensor has none");
  return at::empty(with_dim0(input, input.size(0) * replicas), input.options());
}

at::Tensor reduce_scatter_meta(const at::Tensor& input, const std::string&, int64_t replicas, const std::string&) {
  TORCH_CHECK_VALUE(
      input.dim() > 0 && input.size(0) % replicas == 0, "reduce_scatter cannot cut sizes ", input.sizes(), " into ", replicas);
  return at::empty(with_dim0(input, input.size(0) / replicas), input.options());
}

at::Tensor all_to_all_meta(const at::Tensor& input, at::IntArrayRef received, at::IntArrayRef, const std::string&) {
  return at::empty(with_dim0(input, c10::sum_integers(received)), input.options());
}

at::Tensor collective_permute_meta(const at::Tensor& input, at::IntArrayRef, const std::string&) {
  return like(input);
}

at::Tensor broadcast_meta(const at::Tensor& input, int64_t, const std::string&) {
  return like(input);
}

at::Tensor transfer_meta(const at::Tensor& input, int64_t, int64_t, const std::string&) {
  return like(input);
}

// Groups, and forms that only programs call.
void define_others(torch::Library& definitions, torch::Library& cpu) {
  definitions.def("_add_group", &add_group);
  definitions.def("_remove_group", &remove_group);
  definitions.def("_is_sending", &is_sending);
  definitions.def("_start_heartbeat", [](const GroupRef& own, int64_t replica) { start_heartbeat(own->getStore(), replica); });
  definitions.def("_stop_heartbeat", &stop_heartbeat);
  definitions.def("_find_silent", &find_silent);
  definitions.def("all_reduce.out(Tensor input, str reduction, str group, *, Tensor(a!) out) -> Tensor(a!)");
  cpu.impl("all_reduce.out", torch::CppFunction(&all_reduce_out));
}

} // namespace

void register_collectives() {
  // Never destroyed, as the kernels of the device.
  static auto* definitions = new torch::Library(torch::Library::DEF, "xla", std::nullopt, __FILE__, __LINE__);
  static auto* cpu = new torch::Library(torch::Library::IMPL, "xla", c10::DispatchKey::CPU, __FILE__, __LINE__);
  static auto* meta = new torch::Library(torch::Library::IMPL, "xla", c10::DispatchKey::Meta, __FILE__, __LINE__);
  auto define = [](const char* schema, const char* name, torch::CppFunction kernel, torch::CppFunction shape_rule) {
    definitions->def(schema);
    cpu->impl(name, std::move(kernel));
    meta->impl(name, std::move(shape_rule));
  };
  define_others(*definitions, *cpu);
  define(
      "all_reduce(Tensor input, str reduction, str group) -> Tensor",
      "all_reduce",
      torch::CppFunction(&all_reduce),
      torch::CppFunction(&all_reduce_meta));
  define(
      "all_gather(Tensor input, int replicas, str group) -> Tensor",
      "all_gather",
      torch::CppFunction(&all_gather),
      torch::CppFunction(&all_gather_meta));
  define(
      "reduce_scatter(Tensor input, str reduction, int replicas, str group) -> Tensor",
      "reduce_scatter",
      torch::CppFunction(&reduce_scatter),
      torch::CppFunction(&reduce_scatter_meta));
  define(
      "all_to_all(Tensor input, int[] received, int[] sent, str group) -> Tensor",
      "all_to_all",
      torch::CppFunction(&all_to_all),
      torch::CppFunction(&all_to_all_meta));
  define(
      "collective_permute(Tensor input, int[] pairs, str group) -> Tensor",
      "collective_permute",
      torch::CppFunction(&collective_permute),
      torch::CppFunction(&collective_permute_meta));
  define(
      "broadcast(Tensor input, int root, str group) -> Tensor",
      "broadcast",
      torch::CppFunction(&broadcast),
      torch::CppFunction(&broadcast_meta));
  define(
      "send(Tensor input, int target, int tag, str group) -> Tensor",
      "send",
      torch::CppFunction(&send),
      torch::CppFunction(&transfer_meta));
  define(
      "recv(Tensor like, int source, int tag, str group) -> Tensor", "recv", torch::CppFunction(&recv), torch::CppFunction(&transfer_meta));
}

} // namespace torch_xla
