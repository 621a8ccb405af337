// How a row of an op table is written. Further fields of struct Op follow by their names and in its order: .traits = kRandom.
#pragma once

#include "ir/builder.h"

// EXPRESSION is the scalar body, over the operands: a[0], a[1], ... POINTWISE_IN: with another layout than that of the operands, or the
// primitive that the row is.
#define POINTWISE(...) POINTWISE_IN(kOfOperands, kNone, __VA_ARGS__)
#define POINTWISE_IN(LAYOUT, PRIM, NAME, RULE, TRAITS, EXPRESSION, ...) \
  {.name = "aten::" NAME,                                               \
   .kind = OpKind::kPointwise,                                          \
   .rule = TypeRule::RULE,                                              \
   .prim = Prim::PRIM,                                                  \
   .body = [](const BodyArgs& a) -> Ex { return EXPRESSION; },          \
   .layout = ResultLayout::LAYOUT,                                      \
   .traits = TRAITS __VA_OPT__(, ) __VA_ARGS__}

#define COMPOSITE(NAME, INFER, EXPAND, ...) \
  {.name = "aten::" NAME, .kind = OpKind::kComposite, .infer = INFER, .expand = EXPAND __VA_OPT__(, ) __VA_ARGS__}

#define LIBRARY(NAME, INFER, ...) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .infer = INFER __VA_OPT__(, ) __VA_ARGS__}

// A library row that takes result types and strides from ATen's own shape rule; DTYPES are the types that its CPU kernel takes.
#define CALL(NAME, DTYPES, ...) CALL_OF("aten::" NAME, DTYPES __VA_OPT__(, ) __VA_ARGS__)
// The same for a library other than ATen (trait kOtherLibrary); NAME includes the library's name.
#define CALL_OF(NAME, DTYPES, ...) {.name = NAME, .kind = OpKind::kLibrary, .dtypes = DTYPES __VA_OPT__(, ) __VA_ARGS__}

// A library row with a shape rule of its own and no form for plugins: ATen has no shape rule for it, or a slow one.
#define SHAPED_CALL(NAME, INFER, DTYPES, ...) \
  {.name = "aten::" NAME, .kind = OpKind::kLibrary, .infer = INFER, .dtypes = DTYPES __VA_OPT__(, ) __VA_ARGS__}

// A library row of images: channels-last results for channels-last operands.
#define SPATIAL(NAME, INFER, ...) LIBRARY(NAME, INFER, .layout = ResultLayout::kChannelsLast __VA_OPT__(, ) __VA_ARGS__)
