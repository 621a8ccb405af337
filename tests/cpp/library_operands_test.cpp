// Every library row computes the same of operands that lie in memory in other ways: permuted, with gaps, from an offset on, expanded.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "random_views.h"
#include "row_cases.h"

namespace torch_xla {
namespace {

using testing::HostTensor;
using testing::RowCase;

// A parameter and the view of it that is the operand.
struct Operand {
  HostTensor memory;
  ViewGeometry view;
};

Operand as_it_is(const HostTensor& t) {
  return {t, {t.type.dims, contiguous_strides(t.type.dims), t.type.dims, contiguous_strides(t.type.dims), 0}};
}

// The operand's memory has the dims in reversed order, each with an element before the first.
Operand reversed_with_gaps(const HostTensor& t) {
  const Dims& dims = t.type.dims;
  Operand result;
  Dims strides(dims.size(), 0);
  int64_t step = 1;
  Dims reversed;
  for (size_t d = 0; d < dims.size(); ++d) {
    strides[d] = step;
    result.view.offset += step;
    step *= dims[d] + 1;
  }
  for (size_t d = dims.size(); d-- > 0;) {
    reversed.push_back(dims[d] + 1);
  }
  int64_t offset = result.view.offset;
  result.view = {reversed, contiguous_strides(reversed), dims, strides, offset};
  result.memory.type = {t.type.dtype, reversed};
  result.memory.data.resize(static_cast<size_t>(result.memory.type.nbytes()));
  return result;
}

// Stride 0 in dim d; the elements are the first ones of `t` there.
Operand expanded(const HostTensor& t, size_t d) {
  Operand result = as_it_is(t);
  Dims base = t.type.dims;
  base[d] = 1;
  result.view.base_dims = base;
  result.view.base_strides = contiguous_strides(base);
  result.view.strides = contiguous_strides(base);
  result.view.strides[d] = 0;
  result.memory.type.dims = base;
  result.memory.data.resize(static_cast<size_t>(result.memory.type.nbytes()));
  return result;
}

// Copies the elements of `t` to where the view shows them, or back.
void fill(Operand& operand, const HostTensor& t) {
  std::vector<int64_t> places = testing::addresses(operand.view);
  for (size_t i = 0; i < static_cast<size_t>(t.type.numel()); ++i) {
    testing::write_element(operand.memory, static_cast<size_t>(places[i]), testing::read_element(t, i));
  }
}

HostTensor shown(const Operand& operand) {
  HostTensor t{{operand.memory.type.dtype, operand.view.dims}, {}};
  t.data.resize(static_cast<size_t>(t.type.nbytes()));
  std::vector<int64_t> places = testing::addresses(operand.view);
  for (size_t i = 0; i < static_cast<size_t>(t.type.numel()); ++i) {
    testing::write_element(t, i, testing::read_element(operand.memory, static_cast<size_t>(places[i])));
  }
  return t;
}

// The case's node over views of the operands' memory.
Graph make_graph(const RowCase& c, const std::vector<Operand>& operands) {
  Graph graph;
  Builder builder(graph);
  std::vector<ValueId> map(c.trace.values.size(), kNoValue);
  for (size_t i = 0; i < operands.size(); ++i) {
    const ViewGeometry& view = operands[i].view;
    ValueId memory = graph.add_parameter(operands[i].memory.type);
    map[c.trace.parameters[i]] = builder.view(memory, view.base_strides, view.dims, view.strides, view.offset);
  }
  for (ValueId v : c.trace.scalars) {
    map[v] = graph.add_scalar(c.trace.type(v).dtype);
  }
  const Node& node = c.trace.nodes.back();
  InlineVec<ValueId, 4> ids;
  for (ValueId v : node.operands) {
    ids.push_back(v == kNoValue ? kNoValue : map[v]);
  }
  std::vector<Type> types;
  for (int32_t i = 0; i < node.num_results; ++i) {
    types.push_back(c.trace.type(node.result(i)));
  }
  ValueId first = graph.add_node(*node.op, std::move(ids), node.attrs, types);
  for (ValueId v : c.trace.outputs) {
    graph.outputs.push_back(first + (v - node.result(0)));
  }
  return graph;
}

std::vector<HostTensor> run(const RowCase& c, const std::vector<Operand>& operands) {
  auto executable = cpu_engine().compile_trace(make_graph(c, operands));
  RunArgs args;
  for (const Operand& operand : operands) {
    args.inputs.push_back(cpu_engine().upload(0, operand.memory.type, {}, operand.memory.data.data()));
  }
  args.donated.assign(operands.size(), false);
  args.scalars = c.scalars;
  executable->run(args);
  std::vector<HostTensor> outputs;
  for (const EngineBufferRef& buffer : args.outputs) { // outputs are row-major
    HostTensor t{buffer->type(), std::vector<std::byte>(static_cast<size_t>(buffer->type().nbytes()))};
    cpu_engine().download(*buffer, t.data.data());
    outputs.push_back(std::move(t));
  }
  return outputs;
}

void expect_same(const RowCase& c, const std::vector<Operand>& dense, const std::vector<Operand>& strided, const char* how) {
  std::vector<HostTensor> want = run(c, dense);
  std::vector<HostTensor> got = run(c, strided);
  for (size_t k = 0; k < want.size(); ++k) {
    for (size_t i = 0; i < static_cast<size_t>(want[k].type.numel()); ++i) {
      double w = testing::read_element(want[k], i);
      double g = testing::read_element(got[k], i);
      bool same = g == w || (std::isnan(g) && std::isnan(w)) || std::fabs(g - w) <= c.tolerance * (1 + std::fabs(w));
      ASSERT_TRUE(same) << how << ": result " << k << ", element " << i << ": " << g << ", not " << w;
    }
  }
}

// False for numbers that the row refuses wherever they lie: a mask with another count of places.
bool is_valid(const RowCase& c, const std::vector<Operand>& operands) {
  try {
    run(c, operands);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

bool is_empty(const HostTensor& t) {
  return t.type.numel() == 0;
}

class LibraryOperands : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  static void check(const RowCase& c) {
    std::vector<Operand> dense;
    std::vector<Operand> strided;
    for (const HostTensor& t : c.inputs) {
      dense.push_back(as_it_is(t));
      strided.push_back(reversed_with_gaps(t));
      fill(strided.back(), t);
    }
    expect_same(c, dense, strided, "reversed, with gaps");
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const Dims& dims = c.inputs[i].type.dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        std::vector<Operand> one = dense;
        one[i] = expanded(c.inputs[i], d);
        std::vector<Operand> copied = dense;
        copied[i] = as_it_is(shown(one[i]));
        if (is_valid(c, copied)) {
          expect_same(c, copied, one, str("operand ", i, " expanded in dim ", d).c_str());
        }
      }
    }
  }
};

TEST_P(LibraryOperands, MayLieInAnyOrder) {
  for (const RowCase& c : testing::read_row_cases(GetParam())) {
    if (c.trace.nodes.back().op->kind != OpKind::kLibrary || std::any_of(c.inputs.begin(), c.inputs.end(), is_empty)) {
      continue;
    }
    SCOPED_TRACE(c.line);
    try {
      check(c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, LibraryOperands, ::testing::ValuesIn(testing::row_case_files()), [](const auto& info) {
  return info.param.stem().string();
});

} // namespace
} // namespace torch_xla
