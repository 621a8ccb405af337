"""Random calls of the `torch._foreach_*` family: lists of mixed shapes and dtypes, numbers, lists of them, tensors."""

from tests.fuzz.draw import Draw

UNARY = ["abs", "neg", "sqrt", "exp", "tanh", "sigmoid", "reciprocal", "sign", "floor", "erf", "zero", "rsqrt", "log1p"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"]
TERNARY = ["addcmul", "addcdiv", "lerp"]


def draw_call(draw: Draw, names: list[str], others: list[str]) -> str:
    """A call's name and arguments; the name lacks its trailing underscore."""
    a, b, count = f"[{', '.join(names)}]", f"[{', '.join(others)}]", len(names)
    numbers = str([float(draw.randint(1, 3)) for _ in range(count)])
    kind = draw.randrange(6)
    if kind == 0:
        return f"{draw.choice(UNARY)}|{a}"
    if kind == 1:
        alpha = ", alpha=2" if draw.maybe(0.3) else ""
        op = draw.choice(["add", "sub"]) if alpha else draw.choice(BINARY)
        return f"{op}|{a}, {b}{alpha}"
    if kind == 2:
        return f"{draw.choice(BINARY)}|{a}, {draw.choice([draw.number(), numbers])}"
    if kind == 3:
        op = draw.choice(TERNARY)
        last = draw.choice(["0.5", f"[{', '.join(others)}]"]) if op == "lerp" else draw.choice(["0.5", numbers])
        return f"{op}|{a}, {b}, {last}" if op == "lerp" else f"{op}|{a}, {b}, [{', '.join(names)}], {last}"
    if kind == 4:
        return f"mul|{a}, torch.tensor(2.0, device=device)"
    return f"copy|{a}, {b}"


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("foreach", seed)
    shapes = [draw.shape(draw.randint(0, 3)) for _ in range(draw.randint(1, 4))]
    mixed = draw.maybe(0.3)
    dtypes = [draw.choice(["float32", "float64", "bfloat16", "int64"]) if mixed else "float32" for _ in shapes]
    for i, (shape, dtype) in enumerate(zip(shapes, dtypes)):
        draw.line(f"a{i} = {draw.tensor(shape, dtype)}.abs() + 1")
        draw.line(f"b{i} = {draw.tensor(shape, dtype)}.abs() + 1")
    names, others = [f"a{i}" for i in range(len(shapes))], [f"b{i}" for i in range(len(shapes))]
    for i in range(3):
        op, arguments = draw_call(draw, names, others).split("|")
        inplace = op in ("copy", "zero") or draw.maybe()
        draw.line(f"{'' if inplace else f'y{i} = '}torch._foreach_{op}{'_' if inplace else ''}({arguments})")
    draw.line(f"norms = torch._foreach_norm([{', '.join(names)}])")
    if draw.maybe(0.3):
        draw.line(f"largest = torch._foreach_max([{', '.join(names)}])")
    return draw.lines
