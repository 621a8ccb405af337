// Composites: parts of a trace that users have marked, for compilers that know them by name.
#pragma once

namespace torch_xla {

// Attributes of xla::mark_tensor, by position. Its operands: the marked value, an input or output of a composite; of an output then the
// marked inputs of the composite, and last the numbers that are constants of the composite.
enum MarkAttr {
  kMarkName = 0, // of the composite
  kMarkPosition = 1, // of the value among the composite's inputs or outputs
  kMarkIsInput = 2,
  kMarkAttributes = 3, // of an output: the composite's attributes as an MLIR dictionary, "{eps = 1.0 : f32}"; empty: none
  kMarkNumbers = 4, // the bits of the last operands, as int64
};

// Attributes of xla::composite, by position. Operands and results are those of the computation.
enum CompositeAttr {
  kCompositeBody = 0, // ComputationRef: the decomposition
  kCompositeName = 1,
  kCompositeAttributes = 2, // as kMarkAttributes
};

// Attributes of xla::custom_call, by position: the arguments of its schema.
enum CustomCallAttr {
  kCallOperands = 0, // how many operands
  kCallTarget = 1,
  kCallShapes = 2, // of each result its rank, then its dims
  kCallTypes = 3, // the DType of each result
  kCallHasSideEffect = 4,
  kCallBackendConfig = 5,
  kCallApiVersion = 6,
  kCallFrontendAttributes = 7, // an MLIR dictionary of texts, "{a = \"b\"}"; empty: none
};

} // namespace torch_xla
