"""Random indexing expressions, read and written: numbers, slices, None, lists, masks, device and CPU index tensors."""

from tests.fuzz.draw import Draw

SHAPES = [(5,), (3, 4), (2, 3, 4), (4, 1, 3), (2, 3, 2, 2), (0, 3), (6, 2)]


def draw_indices(draw: Draw, low: int, high: int, shape: tuple) -> str:
    """An index tensor, sometimes on the CPU; of a program with `risk`, sometimes with indices out of range."""
    if draw.risk and draw.maybe(0.2):
        high += 3
    on = ", on='cpu'" if draw.maybe(0.3) else ""
    dtype = draw.choice(["int64", "int64", "int64", "int32"])
    return f"make_index({draw.randrange(1 << 30)}, {shape}, {low}, {high}, {dtype!r}{on})"


def draw_mask(draw: Draw, shape: tuple) -> str:
    on = ", on='cpu'" if draw.maybe(0.3) else ""
    return (
        f"make_index({draw.randrange(1 << 30)}, {shape}, 0, 2, {draw.choice(['bool', 'bool', 'bool', 'uint8'])!r}{on})"
    )


def draw_slice(draw: Draw, size: int) -> str:
    bounds = [draw.choice(["", str(draw.randint(-size - 1, size + 1))]) for _ in range(2)]
    return ":".join([*bounds, draw.choice(["", "", "2", "3"])])


def draw_index(draw: Draw, shape: tuple) -> str:
    """What stands between the brackets for a tensor of this shape."""
    items, dim, advanced = [], 0, draw.shape(draw.randint(1, 2), 1, 3)
    while dim < len(shape) and draw.maybe(0.85):
        size, kind = shape[dim], draw.randrange(9)
        if kind == 0 and size:
            items.append(str(draw.randint(-size, size - 1)))
        elif kind <= 2:
            items.append(draw_slice(draw, size))
        elif kind == 3 and draw.maybe():
            items.append("None")
            continue
        elif kind == 4 and dim + 1 < len(shape):
            items.append(draw_mask(draw, shape[dim : dim + 2]))
            dim += 1
        elif kind == 5:
            items.append(draw_mask(draw, (size,)))
        elif kind == 6 and size:
            items.append(str([draw.randint(-size, size - 1) for _ in range(2)]))
        elif kind == 7 and "..." not in items:
            items.append("...")
            dim = max(dim, draw.randint(dim, len(shape)) - 1)
        elif size:
            items.append(draw_indices(draw, -size, size, draw.choice([advanced, advanced[-1:], (1,), ()])))
        dim += 1
    return ", ".join(items) or "..."


FUNCTIONS = [
    "{a}.index_select({d}, {i})",
    "{a}.index_add({d}, {i}, {s})",
    "{a}.index_copy({d}, {i}.unique(), {a}.index_select({d}, {i}.unique()) + 1)",
    "{a}.index_fill({d}, {i}, 2)",
    "{a}.index_reduce({d}, {i}, {s}, 'amax')",
    "{a}.take({i})",
    "{a}.clone().put_({i}, {s}.flatten()[:{n}])",
    "{a}.clone().put_({i}, {s}.flatten()[:{n}], accumulate=True)",
    "{a}.gather({d}, {g})",
    "{a}.scatter({d}, {g}, 2)",
    "{a}.scatter_add({d}, {g}, torch.ones_like({a}))",
    "{a}.scatter_reduce({d}, {g}, {a}, 'amax')",
    "{a}.scatter_reduce({d}, {g}, {a}, 'sum', include_self=False)",
    "torch.take_along_dim({a}, {g}, {d})",
    "{a}.masked_select({m})",
    "{a}.masked_fill({m}, 3)",
    "{a}.masked_scatter({m}, {a})",
    "{a}[{m}].sum()",
    "torch.where({m}, {a}, -{a})",
    "{m}.nonzero()",
    "torch.argwhere({m})",
    "{a}.flip({d})",
    "{a}.roll(1, {d})",
    "torch.index_put({a}, ({i},), {v}, accumulate=True)",
]


def draw_function(draw: Draw, a: str, shape: tuple) -> str:
    """A call of one of the indexing functions."""
    d = draw.randrange(len(shape))
    n, size = draw.randint(1, 4), shape[d]
    source = list(shape)
    source[d] = n
    device = lambda text: text.replace(", on='cpu'", "")  # noqa: E731 (these take no CPU indices)
    return draw.choice(FUNCTIONS).format(
        a=a,
        d=d,
        n=n,
        i=device(draw_indices(draw, 0, max(size, 1), (n,))),
        s=f"torch.ones({source}, device=device)",
        g=device(draw_indices(draw, 0, max(size, 1), shape)).replace("int32", "int64"),
        m=device(draw_mask(draw, shape)).replace("uint8", "bool"),
        v=f"torch.ones({list(shape[1:])}, device=device)",
    )


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("indexing", seed)
    draw.risk = draw.maybe(0.15)
    grad = draw.maybe(0.3)
    for i in range(3):
        shape = draw.choice(SHAPES)
        dtype = "float32" if grad or draw.maybe(0.7) else draw.choice(["int64", "bfloat16", "float64"])
        a = draw.tensor(shape, dtype, grad=grad)
        if draw.maybe(0.35):
            draw.line(f"y{i} = {draw_function(draw, a, shape)}")
            continue
        index = draw_index(draw, shape)
        draw.line(f"y{i} = {a}[{index}]")
        draw.line(f"z{i} = {a}.clone()")
        index = index.replace("uint8", "bool")  # deprecated; eager refuses some Byte masks in writes
        value = draw.choice(["2", "0.5", f"y{i}", f"y{i} * 2", "torch.ones((), device=device)", "torch.tensor(3.0)"])
        draw.line(f"z{i}[{index}] {draw.choice(['=', '=', '+=', '*='])} {value}")
    if grad:
        draw.line("backward()")
    return draw.lines
