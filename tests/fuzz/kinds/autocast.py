"""Random programs under torch.autocast: nested, switched off, with views that are written in place, and with autograd.

Only operations that CPU and device cast alike are drawn, and those that PyTorch's common lists name: see
src/device/autocast.cpp for what differs.
"""

from tests.fuzz.draw import Draw

# Over matrices of (4, 4), of any float.
LOWER = [
    "{a} @ {b}",
    "torch.mm({a}, {b})",
    "F.linear({a}, {b})",
    "F.linear({a}, {b}, {a}[0])",
    "torch.addmm({a}, {b}, {a})",
    "torch.bmm({a}.unsqueeze(0), {b}.unsqueeze(0))[0]",
    "torch.matmul({a}, {b}[0]).unsqueeze(0).expand(4, 4)",
    "torch.einsum('ij,kj->ik', {a}, {b})",
    "torch.baddbmm({a}.unsqueeze(0), {b}.unsqueeze(0), {a}.unsqueeze(0))[0]",
    "torch.addbmm({a}, {b}.unsqueeze(0), {a}.unsqueeze(0))",
    "F.conv2d({a}.view(1, 1, 4, 4), {b}.view(1, 1, 4, 4)[..., :3, :3], padding=1).view(4, 4)",
    "F.conv1d({a}.unsqueeze(0), {b}.unsqueeze(2)).squeeze(0)",
    "F.conv_transpose1d({a}.unsqueeze(0), {b}.unsqueeze(2)).squeeze(0)",
    "F.scaled_dot_product_attention({a}[None], {b}[None], {a}[None])[0]",
    "m({a}.to(m.weight.dtype))",
]
ALIKE = [
    "{a} + {b}",
    "{a} * {b}",
    "{a} * 0.5",
    "{a}.relu()",
    "{a}.tanh()",
    "{a}.sigmoid()",
    "{a}.t()",
    "{a}.clone()",
    "{a}.float()",
    "{a}.to(torch.{dtype})",
    "torch.where({a} > 0, {a}, {b}.to({a}.dtype))",
    "{a}.flip(0)",
    "F.gelu({a})",
    "torch.maximum({a}, {b}.to({a}.dtype))",
    "{a}.masked_fill({b} > 0, 1)",
    "{a}.detach()",
    "torch.zeros_like({a}).copy_({b})",
    "{a}.abs().sqrt()",
    "torch.cat([{a}[:2].float(), {b}[2:].float()])",
    "torch.stack([{a}.float(), {b}.float()])[1]",
    "torch.stack([{a}.float(), {b}.float()], -1).select(-1, 0)",
    "F.mse_loss({a}, {b}.to({a}.dtype), reduction='none')",
    "F.dropout({a}, 0.0)",
    "torch.nn.functional.silu({a})",
]
VIEWS = [".t()", "[1:]", "[:, ::2]", ".chunk(2)[1]", ".view(2, 8)", ".transpose(0, 1)[:2]", ".diagonal()", "[1]", ""]
VIEWS += [".split(1)[2]", ".unbind(1)[0]", ".narrow(0, 1, 2)", ".flatten()", ".unsqueeze(0)", ".expand(4, 4)"]
WRITES = [
    "{v}.add_(1)",
    "{v}.mul_(0.5)",
    "{v}.copy_({w}.float())",
    "{v}.copy_({w})",
    "{v}.add_({w})",
    "{v}.sub_({w}, alpha=0.5)",
    "{v}.zero_()",
    "{v}.clamp_(-1, 1)",
    "{v}.relu_()",
    "{v}.masked_fill_({w} > 0, 0.5)",
    "{v}[...] = {w} * 2",
    "{v}.lerp_({w}.to({v}.dtype), 0.5)",
]
PRODUCT_WRITES = [  # eager's kernels read what they have written, where an operand is the result
    "{a}.addmm_({b}.clone(), {b}.clone())",
    "torch.mm({b}.clone(), {b}.clone(), out={a})",
    "{a}.unsqueeze(0).baddbmm_({b}[None].clone(), {b}[None].clone())",
]


def draw_context(draw: Draw) -> str:
    """The head of a with statement."""
    dtype = draw.choice(["bfloat16", "bfloat16", "float16"])
    options = draw.choice(["", "", "", ", enabled=False", ", cache_enabled=False"])
    return f"with torch.autocast(torch.device(device).type, torch.{dtype}{options}):"


def draw_statement(draw: Draw, names: list[str], new: str) -> str:
    """One statement; those that begin with `new` make a tensor."""
    a, b = draw.choice(names), draw.choice(names)
    kind = draw.random()
    if kind < 0.35:
        return f"{new} = {draw.choice(LOWER).format(a=a, b=b)}"
    if kind < 0.65:
        return f"{new} = {draw.choice(ALIKE).format(a=a, b=b, dtype=draw.choice(['float32', 'bfloat16', 'float16']))}"
    if kind < 0.7:
        return draw.choice(PRODUCT_WRITES).format(a=a, b=b)
    view = draw.choice(VIEWS)
    return draw.choice(WRITES).format(v=a + view, w=f"{b}{view}.detach().clone()")


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("autocast", seed)
    grad = draw.maybe(0.5)
    draw.line(f"m = make_module({draw.randrange(1000)}, 'nn.Linear(4, 4)', 'float32')")
    names = []
    for i in range(3):
        x = draw.tensor((4, 4), draw.choice(["float32", "float32", "float32", "bfloat16", "float64"]), grad=grad)
        draw.line(f"a{i} = {x} * 1")
        names.append(f"a{i}")
    count = 3
    for _ in range(draw.randint(1, 3)):
        text, indent = draw_context(draw), "    "
        for _ in range(draw.randint(1, 6)):
            if draw.maybe(0.15) and len(indent) < 12:
                text += f"\n{indent}{draw_context(draw)}"
                indent += "    "
            statement = draw_statement(draw, names, f"a{count}")
            if statement.startswith(f"a{count} ="):
                names.append(f"a{count}")
                count += 1
            text += f"\n{indent}{statement}"
        draw.line(text)
    if grad:
        draw.line("backward()")
    return draw.lines
