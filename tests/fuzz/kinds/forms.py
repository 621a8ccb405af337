"""Random out= and in-place forms: results of the right or another shape, dtype and layout, some that overlap."""

from tests.fuzz.draw import Draw

DTYPES = ["float32", "float32", "float64", "int64", "bool", "bfloat16"]
# Name, number of tensors, further arguments.
POINTWISE = [
    *(
        (name, 1, "")
        for name in ["exp", "abs", "neg", "sqrt", "sigmoid", "floor", "square", "sign", "isnan", "logical_not"]
    ),
    *(
        (name, 2, "")
        for name in ["add", "sub", "mul", "div", "maximum", "eq", "lt", "atan2", "fmod", "pow", "logical_or"]
    ),
    *((name, 1, ", 2") for name in ["add", "mul", "pow", "remainder", "clamp_min", "ge"]),
    ("clamp", 1, ", -1, 1"),
    ("addcmul", 3, ", value=2"),
    ("lerp", 2, ", 0.5"),
    ("where", 0, "{a} > 0, {a}, {b}"),
]
OTHERS = [
    ("cumsum", 1, ", 0"),
    ("sum", 1, ", 0"),
    ("mean", 1, ", 0"),
    ("prod", 1, ", 0"),
    ("amax", 1, ", 0"),
    ("any", 1, ", 0"),
    ("std", 1, ", 0"),
    ("argmax", 1, ", 0"),
    ("softmax", 1, ", 0"),
    ("mm", 2, ""),
    ("tril", 1, ""),
    ("cat", 0, "[{a}, {a}]"),
    ("stack", 0, "[{a}, {a}]"),
    ("index_select", 0, "{a}, 0, index([1, 0])"),
    ("gather", 0, "{a}, 0, torch.zeros_like({a}, dtype=torch.int64)"),
    ("addmm", 0, "{a}, {a}, {b}"),
]
# Several results.
PAIRS = [
    ("sort", ", 0"),
    ("max", ", 0"),
    ("min", ", 0, True"),
    ("topk", ", 1, 0"),
    ("kthvalue", ", 1, 0"),
    ("cummax", ", 0"),
]
INPLACE = ["add_", "mul_", "sub_", "div_", "copy_", "pow_", "eq_", "atan2_", "logical_and_", "clamp_min_", "remainder_"]
INPLACE_UNARY = [
    "exp_()",
    "neg_()",
    "zero_()",
    "fill_(2)",
    "clamp_(0, 1)",
    "tril_()",
    "t_()",
    "squeeze_()",
    "sigmoid_()",
]
INPLACE_UNARY += ["unsqueeze_(0)", "cumsum_(0)", "masked_fill_({b} > 0, 2)", "index_fill_(0, index([0]), 3)", "abs_()"]


def draw_out(draw: Draw, shape: tuple) -> str:
    """A tensor for the result, which a call that fails may have resized: so it has no name."""
    shape = draw.choice([shape, shape, shape, (0,), shape[1:], (7,)])
    return f"torch.ops.aten.alias({draw.tensor(shape, draw.choice(DTYPES))})"


def draw_out_call(draw: Draw, a: str, b: str, shape: tuple, i: int) -> None:
    """A call with out=, which may overlap itself and for pointwise functions be an operand."""
    if draw.maybe(0.2):
        name, arguments = draw.choice(PAIRS)
        draw.line(f"r{i} = torch.{name}({a}{arguments}, out=({draw_out(draw, shape)}, index([])))")
        return
    name, tensors, rest = draw.choice(POINTWISE + OTHERS)
    arguments = ", ".join([a, b, a][:tensors]) + rest.format(a=a, b=b)
    out = draw_out(draw, shape)
    if (name, tensors, rest) in POINTWISE and draw.maybe(0.4):
        out = draw.choice([a, f"{a}[:1].expand{shape}"])
    draw.line(f"r{i} = torch.{name}({arguments}, out={out})")


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("forms", seed)
    for i in range(3):
        shape = draw.choice([(3,), (2, 3), (3, 3), (2, 1, 4), (2, 2), (0, 3)])
        a = draw.tensor(shape, draw.choice(DTYPES))
        b = draw.tensor(draw.choice([shape, shape, shape[-1:], (1,)]), draw.choice(DTYPES))
        draw.line(f"a{i}, b{i} = {a}, {b}")
        if draw.maybe(0.6):
            draw_out_call(draw, f"a{i}", f"b{i}", shape, i)
        elif draw.maybe():
            draw.line(f"a{i}.{draw.choice(INPLACE)}({draw.choice([f'b{i}', draw.number()])})")
        else:
            draw.line(f"a{i}.{draw.choice(INPLACE_UNARY).format(b=f'b{i}')}")
    return draw.lines
