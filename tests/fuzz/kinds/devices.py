"""Random programs over two devices, `device` and `other`: copies, writes across, models split over both, generators."""

from tests.fuzz.draw import Draw

IMPORTS = "import copy, io, pickle"
# On matrices of (4, 4); {a} and {b} may lie on either device, {d} is a's device and {e} any.
MOVES = [
    "{a}.to({e})",
    "{a}.to({e}, non_blocking=True)",
    "{a}.to({e}, copy=True)",
    "{a}.to({e}, torch.float64).float()",
    "{a}.t().to({e})",
    "{a}[::2].to({e}).repeat(2, 1)",
    "{a}.to('cpu').to({e})",
    "torch.empty(4, 4, device={e}).copy_({a})",
    "torch.empty(4, 4, device={e}).t().copy_({a})",
    "(torch.zeros_like({a}, device={e}) + {a}.to({e}))",
    "{a}.new_zeros(4, 4, device={e}).add_({a}.to({e}))",
    "torch.tensor({a}.tolist(), device={e})",
    "torch.as_tensor({a}, device={e})",
    "copy.deepcopy({a}.detach()).to({e})",
    "{a}.to({b}.device)",
    "{a}.to({b})",
    "{a}.type_as({b})",
    "pickle.loads(pickle.dumps({a}.detach())).to({e})",
    "torch.stack([t.to({e}) for t in {a}])",
]
COMPUTE = [
    "({a} + {b}.to({a}.device, copy=True))",
    "{a} @ {b}.to({a}.device, copy=True)",
    "{a} * {b}.sum().cpu()",
    "{a} * {b}.sum().item()",
    "({a} + torch.ones((), device='cpu'))",
    "torch.where({a} > 0, {a}, {b}.to({a}.device, copy=True))",
    "({a}.relu() - 0.5)",
    "torch.cat([{a}[:2], {b}.to({a}.device, copy=True)[2:]])",
    "{a}[index([3, 1, 0, 2]).to({a}.device)]",
    "{a}.softmax(1)",
    "torch.ones(4, 4, device={a}.device) * {a}",
    "{a}[{b}[:, 0].to({a}.device).argsort()]",
    "torch.cdist({a}, {b}.to({a}.device, copy=True))",
    "nn.functional.linear({a}, {b}.to({a}.device, copy=True))",
]
WRITES = [
    "{a}.copy_({b})",
    "{a}[1:3].copy_({b}[:2])",
    "{a}.t().copy_({b})",
    "{a}[0] = {b}[1]",
    "{a}[:, 1:] = {b}[:, :3]",
    "{a}.add_({b}.to({a}.device, copy=True))",
    "{a}.data = {b}.detach().to({a}.device).clone()",
    "{a}.mul_({b}.amax().cpu())",
    "{a}.copy_({b}, non_blocking=True); {b}.add_(1)",
    "{a}.copy_({b}.t()); {b}.zero_()",
    "{a}[{a} > 0] = {b}.sum().cpu()",
    "{a}.masked_scatter_({a} > 0, {b}.to({a}.device, copy=True))",
    "{a}.index_copy_(0, torch.tensor([1, 2], device={a}.device), {b}[:2].to({a}.device, copy=True))",
    "{a}.set_({b}.detach().to({a}.device, copy=True))",
]
# A generator of each: what one draws does not depend on the other.
RANDOM = [
    "torch.manual_seed({n}); _r = torch.rand(3, device={d}); torch.manual_seed({n}); torch.randn(9, device={e}) if "
    "{d} != {e} "
    "else None; same{i} = (torch.rand(3, device={d}) == _r).cpu()",
    "_g = torch.Generator({d}).manual_seed({n}); _h = torch.Generator({e}).manual_seed({n}); same{i} = "
    "torch.rand(4, generator=_g, device={d}).cpu() == torch.rand(4, generator=_h, device={e}).cpu()",
    "_g = torch.Generator({d}).manual_seed({n}); _h = torch.Generator({e}); _h.set_state(_g.get_state()); same{i} = "
    "torch.rand(4, generator=_g, device={d}).cpu() == torch.rand(4, generator=_h, device={e}).cpu()",
]


def draw_model(draw: Draw) -> None:
    """A model whose halves lie on the two devices, trained for some steps."""
    draw.line(f"m = make_module({draw.randrange(1000)}, 'nn.Sequential(nn.Linear(4, 8), nn.Tanh())', 'float32')")
    draw.line(f"n = make_module({draw.randrange(1000)}, 'nn.Linear(8, 4)', 'float32').to(other)")
    draw.line(f"o = {draw.optimizer('[*m.parameters(), *n.parameters()]')}")
    shared = draw.maybe(0.3)
    extra = " + n(m(x.to(device) * 2).to(other))" if draw.maybe(0.3) else ""
    loss = draw.choice(
        ["(y.to(device) ** 2).mean()", "(y ** 2).mean()", "(y - y.detach().to(device).to(other) / 2).square().sum()"]
    )
    clip = draw.choice(
        [
            "",
            "",
            "nn.utils.clip_grad_norm_(m.parameters(), 0.1)",
            "nn.utils.clip_grad_value_([*m.parameters(), *n.parameters()], 0.05)",
        ]
    )
    for step in range(draw.randint(1, 4)):
        draw.line(f"x = {draw.tensor((3, 4), prefix='_i')}")
        draw.line(f"y = n(m(x.to(device)).to(other)){extra}")
        draw.line(f"l{step} = {loss}; o.zero_grad(); l{step}.backward()" + (f"; {clip}" if clip else ""))
        draw.line("o.step()")
        if shared:
            draw.line("with torch.no_grad(): n.weight.copy_(m[0].weight.t())")
    if draw.maybe(0.3):
        draw.line("m = copy.deepcopy(m).to(other); o2 = torch.optim.SGD(m.parameters(), lr=0.1)")
        draw.line("m(x.to(other)).sum().backward(); o2.step()")
    if draw.maybe(0.3):
        draw.line("_f = io.BytesIO(); torch.save((m.state_dict(), n.state_dict()), _f); _f.seek(0)")
        draw.line("_s = torch.load(_f); m.load_state_dict(_s[0]); n.load_state_dict(_s[1])")


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("devices", seed)
    draw.line(IMPORTS)
    if draw.maybe(0.3):
        draw_model(draw)
        return draw.lines
    places = ["device", "other"]
    grad = draw.maybe(0.4)
    names = []
    for i in range(4):
        draw.line(f"a{i} = {draw.tensor((4, 4), grad=grad)}.to({draw.choice(places)}) * 1")
        names.append(f"a{i}")
    for i in range(4, 4 + draw.randint(3, 12)):
        a, b = draw.sample(names, 2)
        choices = {"a": a, "b": b, "d": draw.choice(places), "e": draw.choice(places), "i": i, "n": draw.randrange(99)}
        kind = draw.random()
        if kind < 0.1:
            draw.line(draw.choice(RANDOM).format(**choices))
        elif kind < 0.4:
            draw.line(draw.choice(WRITES).format(**choices))
        else:
            draw.line(f"a{i} = {draw.choice(MOVES + COMPUTE).format(**choices)} * 1")
            names.append(f"a{i}")
        if draw.maybe(0.1):
            draw.line("sync()")
    if grad:
        draw.line("total = sum(t.sum().cpu() for t in [" + ", ".join(names) + "]); total.backward()")
    return draw.lines
