"""Random autograd Functions: writes in place, views, results without gradients, saved tensors, double backward."""

from tests.fuzz.draw import Draw

FORWARD = [
    ("ctx.save_for_backward(x, y); return x * y", "x, y = ctx.saved_tensors; return g * y, g * x"),
    ("r = x.exp(); ctx.save_for_backward(r, y); return r + y", "r, y = ctx.saved_tensors; return g * r, g.clone()"),
    ("ctx.mark_dirty(x); x.mul_(2); return x", "return g * 2, None"),
    ("ctx.mark_dirty(x); x.add_(y); ctx.save_for_backward(x); return x", "r, = ctx.saved_tensors; return g * r, g"),
    ("ctx.save_for_backward(x); x = x.clone(); x[0] = 0; return x", "g = g.clone(); g[0] = 0; return g, None"),
    ("return x.view_as(x)", "return g, torch.zeros_like(g)"),
    ("return x[:2].repeat(2, 1)", "t = torch.zeros_like(g); t[:2] = g[:2] + g[2:]; return t, None"),
    ("return x.clone(), (x > 0)", "return g, None"),
    ("i = x.argmax(1); ctx.mark_non_differentiable(i); return x * 2, i", "return g * 2, None"),
    ("ctx.set_materialize_grads(False); return x * 1, y * 1", "return g, (None if h is None else h * 2)"),
    ("return x * 1, y * 2, x + y", "return g + k, h * 2 + k"),
    ("ctx.k = x.shape[0]; ctx.save_for_backward(y); return x.round()", "return g, ctx.saved_tensors[0] * 0 + ctx.k"),
    ("ctx.save_for_backward(x, None); return x.sign()", "x, n = ctx.saved_tensors; return g * (x.abs() < 1), n"),
    ("return x.detach().clamp(-0.5, 0.5)", "return (g if ctx.needs_input_grad[0] else None), None"),
    (
        "with torch.enable_grad(): t = x.detach().requires_grad_(); r = t.tanh().sum() * t\n"
        "        ctx.t, ctx.r = t, r; return r.detach()",
        "return torch.autograd.grad(ctx.r, ctx.t, g, retain_graph=True)[0], None",
    ),
    ("ctx.v = x.sum().item(); return x * ctx.v", "return g * ctx.v, None"),
    (
        "ctx.save_for_backward(x.to(torch.bfloat16)); return x.square()",
        "return g * 2 * ctx.saved_tensors[0].float(), None",
    ),
    ("return torch.zeros_like(x).index_put_((index([0, 2]),), y[:2])", "return None, torch.cat([g[0::2], g[:2] * 0])"),
    (
        "ctx.save_for_backward(x); return x.sum(), x.mean(0)",
        "x, = ctx.saved_tensors; return g * torch.ones_like(x) + h / 4, None",
    ),
    ("ctx.s = x.sort(1); return ctx.s[0]", "return torch.zeros_like(g).scatter(1, ctx.s[1], g), None"),
]
CALLS = [
    "{v} = _F{i}.apply({a} * 1, {b})",
    "{v} = _F{i}.apply({a}, {b})",
    "{v} = _F{i}.apply({a}.t(), {b})",
    "{v} = _F{i}.apply(({a} * 1)[:], {b}.detach())",
    "_c = {a} * 1; _w = _c.view(4, 4); {v} = _F{i}.apply(_c, {b}); kept{i} = _w.detach()",
    "with torch.no_grad(): {v} = _F{i}.apply({a} * 1, {b})",
    "{v} = torch.utils.checkpoint.checkpoint(_F{i}.apply, {a} * 1, {b}, use_reentrant=False)",
    "_c = {a} * 1; {v} = _F{i}.apply(_c[1:3].t() @ _c[1:3], {b})",
]
LATER = [
    "a{i} = {v}[0] if isinstance({v}, tuple) else {v}",
    "a{i} = ({v}[0] if isinstance({v}, tuple) else {v}) * 2; a{i}.add_(1)",
    "a{i} = ({v}[-1] if isinstance({v}, tuple) else {v}).float() + 1",
    "a{i} = ({v}[0] if isinstance({v}, tuple) else {v}).clone().mul_(0.5)",
]
ENDS = [
    "backward()",
    "backward()",
    "grads = torch.autograd.grad(total, [x0, x1], allow_unused=True, create_graph=True)",
    "grads = torch.autograd.grad(total, [x0, x1], allow_unused=True, create_graph=True); "
    "_t = sum(g.square().sum() for g in grads if g is not None); second = torch.autograd.grad(_t, [x0], "
    "allow_unused=True)",
    "total.backward(retain_graph=True); total.backward()",
    "grads = torch.autograd.grad(total, [x0], is_grads_batched=False, materialize_grads=True)",
]


def define(draw: Draw, i: int) -> str:
    """The class `_F{i}`."""
    forward, backward = draw.choice(FORWARD)
    once = "    @torch.autograd.function.once_differentiable\n" if draw.maybe(0.15) else ""
    names = "g, h=None, k=None"
    return (
        f"class _F{i}(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, y):\n        {forward}\n"
        f"    @staticmethod\n{once}    def backward(ctx, {names}):\n        {backward}"
    )


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("functions", seed)
    draw.line("import torch.utils.checkpoint")
    x = draw.tensor((4, 4), grad=True, dense=True)
    y = draw.tensor((4, 4), grad=draw.maybe(), dense=True)
    names = [x, y]
    for i in range(2, 2 + draw.randint(1, 4)):
        draw.line(define(draw, i))
        a, b = draw.choice(names), draw.choice(names)
        draw.line(draw.choice(CALLS).format(a=a, b=b, i=i, v=f"r{i}"))
        draw.line(draw.choice(LATER).format(i=i, v=f"r{i}"))
        names.append(f"a{i}")
        if draw.maybe(0.15):
            draw.line("sync()")
    draw.line(f"total = sum(t.tanh().sum() for t in [{', '.join(names)}])")
    draw.line(draw.choice(ENDS))
    return draw.lines
