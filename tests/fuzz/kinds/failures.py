"""Random programs that catch what calls raise, at once or when they run, and go on (docs/errors.md)."""

from tests.fuzz.draw import Draw

# Raise where they are called, over x of (3, 6) and y of (3, 6), the module m and the optimizer o.
AT_ONCE = [
    "_t = {x} @ {y}",
    "{x}.add_({y}[:, :4])",
    "{x}.copy_({y}[:, :5])",
    "{x}.view(5, 5)",
    "torch.cat([{x}, {y}[:, 1:]])",
    "{x}.narrow(0, 2, 5)",
    "{x}[5]",
    "{x}[0, 0, 0] = 1",
    "torch.add({x}, {y}, out=torch.empty(18, dtype=torch.int64, device=device))",
    "{x}.to(torch.int64).div_(2)",
    "_m(x0[:, :3])",
    "F.cross_entropy({x}, {y}[0].long())",
    "m.load_state_dict({{'0.weight': torch.ones(2, 2)}}, strict=False)",
    "nn.Linear(6, 6).to(device)({x}.double())",
    "torch.stack([{x}, {y}[0]])",
    "{x}.squeeze(7)",
    "{x}.expand(2, 6)",
    "torch.optim.SGD([], lr=0.1)",
    "o.load_state_dict({{'state': {{}}, 'param_groups': []}})",
    "list(m.parameters())[0].add_(1)",
    "torch.ones(2, 2, device=device).backward()",
    "({x} * 2).requires_grad_().data.foo",
    "raise ValueError('by hand')",
    "{x}.mul_(2); {x} @ {y}; {x}.mul_(3)",
    "{x}.unflatten(1, (4, 2))",
    "torch.empty(3, device=device, dtype=torch.complex64).floor_()",
    "{x}.index_add_(0, torch.tensor([0, 1], device=device), {y})",
]
# Raise for what an index or a number holds.
LATE = [
    "_t = {x}[index([0, 9])]",
    "_t = {x}.index_select(1, index([7]))",
    "_t = {x}.gather(1, index([[9]]))",
    "_t = F.embedding(index([1, 99]), {x})",
    "_t = F.cross_entropy({x}, index([0, 77, 2]))",
    "_t = F.nll_loss({x}.log_softmax(1), index([0, -3, 2]))",
    "_t = {x}.take(index([44]))",
    "_t = {x}.clone().index_fill_(0, index([8]), 3)",
    "_t = {x}.clone(); _t[index([8])] = 3",
    "_t = {x}.clone().index_put_((index([0, 5]),), {y}[:2], accumulate=True)",
    "_t = {x}.clone().scatter_(1, index([[9]]), 4)",
    "_t = {x}.clone().scatter_add_(1, index([[0, 9]]), {y})",
    "_t = {x}.clone().index_add_(0, index([0, 1, 5]), {y})",
    "_t = torch.bernoulli({x}.abs() + 2)",
    "_t = torch.multinomial({x}.abs() * 0 - 1, 2)",
    "_t = torch.multinomial(torch.zeros(4, device=device), 2)",
    "_t = F.one_hot(index([0, -1]))",
    "_t = F.one_hot(index([0, 9]), 4)",
    "_t = index([1, 2]) // index([1, 0])",
    "_t = F.binary_cross_entropy({x} + 3, {y}.sigmoid())",
    "_t = torch.bincount(index([1, -1]))",
    "_t = torch.repeat_interleave({x}, index([1, -2, 1]), 0)",
    "_t = F.embedding_bag(index([1, 99]), {x}, index([0]))",
    "_t = F.multi_margin_loss({x}, index([0, 99, 1]))",
    "o.zero_grad(); _t = F.cross_entropy(m(x0), index([0, 1, 77, 2])); _t.backward(); o.step(); sync(wait=True)",
]
BEFORE = [
    "{x}.add_(1)",
    "{x}[0].mul_(2)",
    "_k = {x} * 2",
    "{y}.copy_({x})",
    "{x}.t().sub_(0.5)",
    "n0.add_(1)",
    "sync()",
]
AFTER = [
    "{x}.mul_(3)",
    "{y}.zero_()",
    "{x}[1:].add_(5)",
    "n0.add_(10)",
    "{y}.add_({x})",
    "{x}.fill_(7)",
    "_k = {y} + 1",
]
BACKWARD = [
    "class _F(torch.autograd.Function):\n"
    "    @staticmethod\n    def forward(ctx, t):\n        ctx.save_for_backward(t); return t * 2\n"
    "    @staticmethod\n    def backward(ctx, g):\n        {fault}\n        return g * 2",
]
FAULTS = [
    "raise ValueError('within')",
    "g @ g @ g",
    "_t = g[index([99])].sum(); sync(wait=True)",
    "return g, g",
    "return g[:, 1:]",
    "return None",
]
IN_BACKWARD = [
    "_F.apply(m(x0)).sum().backward()",
    "m[1:](_F.apply(m[0](x0))).sum().backward()",
    "(_F.apply(m[0](x0)).sum() + m(x0).square().sum()).backward()",
    "_l = m(x0); _l.register_hook(lambda g: g.foo); _l.sum().backward()",
    "_l = m(x0).sum(); _l.backward(); _l.backward()",
    "_l = m[0](x0); _l2 = _l.exp(); _l2.add_(1); _l2.sum().backward()",
    "torch.autograd.grad(m(x0).sum(), [n0.detach().requires_grad_()])",
    "with torch.autograd.set_detect_anomaly(True): (m(x0) * 0).sqrt().sum().backward()",
    "m(x0).backward()",
    "with torch.no_grad(): m(x0).sum().backward()",
    "handles.append(m[0].register_full_backward_hook(lambda *_: (handles.pop().remove(), 1 / 0))); "
    "m(x0).sum().backward()",
]
CONTEXTS = [
    "",
    "",
    "",
    "with torch.no_grad(): ",
    "with torch.inference_mode(): ",
    "with torch.autocast(torch.device(device).type, torch.bfloat16): ",
]


def attempt(lines: list[str], sync: bool = True) -> str:
    """A statement that plays lines, and what it raised."""
    body = "\n".join(f"    {part}" for line in lines for part in line.split("\n"))
    end = "\n    sync(wait=True)" if sync else ""
    # Gradients that were made behind an error are lost.
    lost = "\n    o.zero_grad()" if "o.step" in body else ""
    return f"try:\n{body}{end}\nexcept Exception as _e:\n    texts.append(type(_e).__name__){lost}"


def draw_failure(draw: Draw, names: list[str]) -> str:
    """A block with one call that raises, between others that write."""
    x, y = draw.sample(names, 2)
    kind = draw.random()
    if kind < 0.25:
        return attempt([draw.choice(CONTEXTS) + draw.choice(AT_ONCE).format(x=x, y=y)])
    if kind < 0.45:
        fault = BACKWARD[0].format(fault=draw.choice(FAULTS))
        return attempt([fault, draw.choice(IN_BACKWARD)])
    before = [draw.choice(BEFORE).format(x=x, y=y) for _ in range(draw.randint(0, 3))]
    after = [draw.choice(AFTER).format(x=x, y=y) for _ in range(draw.randint(0, 3))]
    late = draw.choice(LATE).format(x=x, y=y)
    return attempt([*before, late, *after])


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("failures", seed)
    draw.line("texts = []")
    draw.training(f"nn.Sequential({', '.join(['nn.Linear(6, 6)', *draw.layers(draw.randint(1, 3))])})")
    draw.line("_m = m; o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)  # no steps that the host counts")
    draw.line("F.mse_loss(m(x0), x1).backward(); o.step()  # the state of an optimizer's first step is lost")
    draw.line("n0 = torch.zeros(2, device=device)")
    draw.line(f"a0, a1 = {draw.tensor((3, 6), dense=True)} * 1, {draw.tensor((3, 6))} * 1")
    draw.line(f"_g = torch.Generator(device).manual_seed({draw.randrange(100)})")
    for step in range(draw.randint(2, 5)):
        if draw.maybe(0.7):
            draw.line("_s = _g.get_state()")
            draw.line(draw_failure(draw, ["a0", "a1"]))
            draw.line(
                "same = torch.equal(_g.get_state(), _s) + torch.zeros(1); _t = _k = _l = None; "
                "texts.append(str(torch.is_grad_enabled()))"
            )
        if draw.maybe(0.7):
            draw.line(f"o.zero_grad(); l{step} = F.mse_loss(m(x0), x1); l{step}.backward(); o.step()")
        if draw.maybe(0.3):
            draw.line("a1 = a1 * 0.5 + a0")
    return draw.lines
