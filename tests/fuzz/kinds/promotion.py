"""Random arithmetic over all dtypes, 0-d tensors and Python numbers, under every default dtype."""

from tests.fuzz.draw import Draw, FLOATS, INTEGERS, without_zeros

DTYPES = [*FLOATS, "float32", *INTEGERS, "bool"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "fmod", "remainder", "floor_divide", "atan2", "hypot"]
BINARY += [
    "eq",
    "lt",
    "ge",
    "logical_and",
    "bitwise_xor",
    "pow",
    "float_power",
    "copysign",
    "xlogy",
    "logaddexp",
    "rsub",
]
DIVISIONS = ("fmod", "remainder", "floor_divide")  # of integers, a zero is an error
INPLACE = ["add_", "sub_", "mul_", "div_", "copy_", "remainder_", "eq_", "clamp_min_", "logical_or_", "pow_"]
UNARY = ["sqrt", "exp", "sigmoid", "abs", "neg", "sin", "floor", "sign", "square", "reciprocal", "isnan", "logical_not"]
REDUCE = [
    "sum()",
    "mean()",
    "prod()",
    "cumsum(0)",
    "std()",
    "any()",
    "amax()",
    "argmax()",
    "norm()",
    "sum(dtype=torch.int32)",
]
CREATE = [
    "torch.arange({n}, device=device)",
    "torch.full((3,), {n}, device=device)",
    "torch.tensor({n}, device=device)",
    "torch.linspace(0, {n}, 4, device=device)",
    "torch.scalar_tensor({n}, device=device)",
    "torch.ones(3, device=device)",
    "torch.full_like({a}, {n})",
    "torch.as_tensor([{n}, {m}], device=device)",
]
MIXED = [
    "torch.where({a} > 0, {a}, {b})",
    "torch.where({a} > 0, {a}, {n})",
    "torch.where({a} > 0, {n}, {m})",
    "torch.clamp({a}, {n}, {m})",
    "torch.clamp({a}, {b}, {a})",
    "torch.lerp({a}, {b}, 0.5)",
    "torch.addcmul({a}, {b}, {a}, value={n})",
    "torch.add({a}, {b}, alpha={n})",
    "torch.sub({a}, {b}, alpha={n})",
    "torch.cat([{a}.reshape(-1), {b}.reshape(-1)])",
    "torch.stack([{a}.sum(), {b}.sum()])",
    "torch.result_type({a}, {n})",
    "{a}.masked_fill({a} > 0, {n})",
    "torch.isclose({a}, {b})",
    "torch.matmul({a}, {b})",
]


def pick_pair(draw: Draw) -> tuple[str, str]:
    """Two tensors that broadcast."""
    shape = draw.choice([(3,), (2, 3), (), (1,), (4, 1), (17,)])
    other = draw.choice([shape, shape, (), (1,), shape[-1:]])
    return draw.tensor(shape, draw.choice(DTYPES)), draw.tensor(other, draw.choice(DTYPES))


def draw_expression(draw: Draw, a: str, b: str) -> str:
    n, m = draw.number(), draw.number()
    kind = draw.randrange(6)
    if kind == 0:
        name = draw.choice(BINARY)
        return f"torch.{name}({a}, {without_zeros(b) if name in DIVISIONS else b})"
    if kind == 1:
        return f"torch.{draw.choice(BINARY)}({a}, {n})"
    if kind == 2:
        return draw.choice(
            [
                f"torch.{draw.choice(UNARY)}({a})",
                f"{n} - {a}",
                f"{n} / {a}",
                f"{n} // {without_zeros(a)}",
                f"{n} ** {a}",
            ]
        )
    if kind == 3:
        return f"{a}.{draw.choice(REDUCE)}"
    if kind == 4:
        return draw.choice(CREATE).format(a=a, n=n, m=m)
    return draw.choice(MIXED).format(a=a, b=b, n=n, m=m)


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("promotion", seed)
    default = draw.choice(["float32", "float32", "float64", "float16", "bfloat16"])
    draw.line(f"torch.set_default_dtype(torch.{default})")
    for i in range(4):
        a, b = pick_pair(draw)
        draw.line(f"y{i} = {draw_expression(draw, a, b)}")
        if draw.maybe():
            draw.line(f"z{i} = {a}.clone()")
            name, argument = draw.choice(INPLACE), draw.choice([b, draw.number()])
            draw.line(f"z{i}.{name}({without_zeros(argument) if name == 'remainder_' else argument})")
    return draw.lines
