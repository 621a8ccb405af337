"""Random out= and in-place forms: results of the right or another shape, dtype and layout, some that overlap."""

from tests.fuzz.draw import Draw, without_zeros

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


def draw_out(draw: Draw, shape: tuple, dense: bool = False) -> tuple[str, str]:
    """A tensor for the result, and the input that it shows: not compared, as a call that fails may have written it."""
    shape = draw.choice([shape, shape, shape, (0,), shape[1:], (7,)])
    text = draw.tensor(shape, draw.choice(DTYPES), prefix="_x", dense=dense)
    return f"torch.ops.aten.alias({text})", draw.lines[-1].split()[0]


def draw_out_call(draw: Draw, a: str, b: str, shape: tuple, i: int) -> None:
    """A call with out=, which may overlap itself and for pointwise functions be an operand."""
    if draw.maybe(0.2):
        name, arguments = draw.choice(PAIRS)
        out, shown = draw_out(draw, shape)
        draw.line(f"r{i} = torch.{name}({a}{arguments}, out=({out}, index([]))); w{i} = {shown}")
        return
    name, tensors, rest = draw.choice(POINTWISE + OTHERS)
    b = without_zeros(b) if name == "fmod" else b
    arguments = ", ".join([a, b, a][:tensors]) + rest.format(a=a, b=b)
    out, shown = draw_out(draw, shape, dense=name == "tril")  # eager's threads race for places that elements share
    if (name, tensors, rest) in POINTWISE and draw.maybe(0.4):
        out = draw.choice([a, f"{a}[:1].expand{shape}"])
    draw.line(f"r{i} = torch.{name}({arguments}, out={out}); w{i} = {shown}")


def draw_inplace_call(draw: Draw, a: str, b: str, shape: tuple) -> None:
    """A call that writes into a."""
    if draw.maybe():
        name, argument = draw.choice(INPLACE), draw.choice([b, draw.number()])
        draw.line(f"{a}.{name}({without_zeros(argument) if name == 'remainder_' else argument})")
        return
    name = draw.choice(INPLACE_UNARY).format(b=b)
    if name.startswith("index_fill_") and 0 in shape:
        return  # eager's class of error depends on the room in the storage
    draw.line(f"{a}.{name}")


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
        else:
            draw_inplace_call(draw, f"a{i}", f"b{i}", shape)
    return draw.lines
