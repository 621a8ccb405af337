"""Random functions under torch.func: vmap, grad, jvp, vjp, Jacobians, Hessians, functional_call, nested."""

from tests.fuzz.draw import Draw

# Bodies over x of (4,) and w of (4, 4), of any dims before them under vmap.
TERMS = [
    "w @ x",
    "x * x",
    "torch.tanh(x)",
    "x.sin()",
    "x.softmax(-1)",
    "x.sigmoid() * 2",
    "F.gelu(x)",
    "x.exp()",
    "x.flip(0)",
    "torch.cumsum(x, 0)",
    "x.roll(1)",
    "torch.where(x > 0, x, x * 0.1)",
    "F.layer_norm(x, (4,))",
    "x.clamp(-1, 1)",
    "torch.stack([x[0], x[1] * 2, x[2], x[3]])",
    "torch.cat([x[2:], x[:2]])",
    "x[index([3, 1, 1, 0])]",
    "x.sort().values",
    "F.linear(x, w)",
    "torch.outer(x, x) @ x",
    "torch.linalg.norm(x) * x",
    "x.logsumexp(0) + x",
    "x.clone().mul_(2)",
    "torch.zeros_like(x).copy_(x)",
    "torch.zeros(4, device=device).index_add(0, index([0, 1, 1, 3]), x)",
    "torch.zeros(4, device=device).scatter(0, index([3, 2, 1, 0]), x)",
    "x.square().mean() + x",
    "w.diagonal() * x",
    "torch.einsum('ij,j->i', w, x)",
    "x.masked_fill(x > 0.5, 0.25)",
    "F.softplus(x)",
    "x.prod() + x",
    "torch.linalg.solve(w @ w.mT + 5 * torch.eye(4, device=device), x)",
    "torch.matrix_exp(w * 0.1) @ x",
    "x.atan2(w[0] + 3)",
    "torch.linalg.det(w) * x",
    "x.abs().pow(1.5)",
    "x.max() * x",
    "x.std() + x",
    "F.cosine_similarity(x, w[0], dim=0) + x",
    "F.pad(x, (1, 0))[1:]",
    "torch.lerp(x, w[1], 0.25)",
    "x.unfold(0, 2, 2).reshape(4)",
    "F.conv1d(x.view(1, 1, 4), w[:1, :3].unsqueeze(0), padding=1).view(4)",
    "torch.fft.rfft(x).abs().sum() + x",
    "F.cross_entropy(x, index([2])[0]) + x",
    "F.scaled_dot_product_attention(x.view(1, 2, 2), w[:2, :2][None], w[2:, 2:][None]).reshape(4)",
    "F.embedding(index([1, 2]), w).sum(0) + x",
    "F.dropout(x, 0.0)",
    "F.batch_norm(x.view(2, 2), None, None, training=True).view(4) + x",
    "torch.vmap(lambda r: r.sum() * r)(w)[0] + x",
]
OVER_X = [
    "torch.func.grad({s})(x, w)",
    "torch.func.grad({s}, argnums=(0, 1))(x, w)",
    "torch.func.grad_and_value({s})(x, w)",
    "torch.func.grad(lambda t, u: torch.func.grad({s})(t, u).square().sum())(x, w)",
    "torch.func.jacrev({f})(x, w)",
    "torch.func.jacfwd({f})(x, w)",
    "torch.func.jacrev({f}, argnums=1)(x, w)",
    "torch.func.jacrev({f}, chunk_size=2)(x, w)",
    "torch.func.hessian({s})(x, w)",
    "torch.func.jacfwd(torch.func.jacrev({s}))(x, w)",
    "torch.func.jvp({f}, (x, w), (torch.ones_like(x), w * 0.5))",
    "torch.func.jvp(torch.func.grad({s}), (x, w), (x, w))",
    "torch.func.vjp({f}, x, w)[1](x)",
    "torch.func.vjp({f}, x, w)[0]",
    "torch.func.linearize({f}, x, w)[1](x, w)",
    "torch.func.functionalize({f})(x, w)",
    "torch.autograd.functional.jacobian({f}, (x, w))",
    "torch.autograd.functional.hessian({s}, (x, w))",
    "torch.autograd.functional.hvp({s}, (x, w), (x, w))[1]",
    "torch.autograd.functional.vhp({s}, (x, w), (x, w))[1]",
    "torch.autograd.functional.jvp({f}, (x, w), (x, w))[1]",
    "torch.autograd.gradcheck({f}, (x.double().requires_grad_(), w.double())) * torch.ones(1)",
]
OVER_BATCH = [
    "torch.vmap({f})(xs, ws)",
    "torch.vmap({f}, in_dims=(0, None))(xs, w)",
    "torch.vmap({f}, in_dims=(1, 0))(xs.t(), ws)",
    "torch.vmap({f}, in_dims=(0, 2), out_dims=1)(xs, ws.permute(1, 2, 0))",
    "torch.vmap({f}, in_dims=(None, 0), chunk_size=2)(x, ws)",
    "torch.vmap({f}, out_dims=-1)(xs, ws)",
    "torch.vmap(torch.func.grad({s}))(xs, ws)",
    "torch.vmap(torch.func.grad({s}, argnums=1), in_dims=(0, None))(xs, w)",
    "torch.vmap(torch.func.jacrev({f}))(xs, ws)",
    "torch.vmap(torch.func.hessian({s}), in_dims=(0, None))(xs, w)",
    "torch.vmap(torch.vmap({f}, in_dims=(None, 0)), in_dims=(0, None))(xs, ws)",
    "torch.func.grad(lambda t, u: torch.vmap({s}, in_dims=(0, None))(t, u).sum())(xs, w)",
    "torch.func.jacrev(lambda t, u: torch.vmap({f}, in_dims=(0, None))(t, u))(xs, w)",
    "torch.vmap(lambda t, v: torch.func.jvp(lambda z: {f}(z, w), (t,), (v,))[1])(xs, xs)",
    "torch.vmap(lambda t: {f}(t, w), randomness='same')(xs)",
    "torch.func.jvp(torch.vmap({f}, in_dims=(0, None)), (xs, w), (xs, w))",
]
MODULES = [
    "torch.func.functional_call(m, dict(m.named_parameters()), (xs,))",
    "torch.func.functional_call(m, {{k: p * 2 for k, p in m.named_parameters()}}, (xs,))",
    "list(torch.func.grad(lambda p: torch.func.functional_call(m, p, (xs,)).square().sum())"
    "({{k: p.detach() for k, p in m.named_parameters()}}).values())",
    "list(torch.vmap(torch.func.grad(lambda p, t: torch.func.functional_call(m, p, (t,)).square().sum()), "
    "in_dims=(None, 0))"
    "({{k: p.detach() for k, p in m.named_parameters()}}, xs).values())",
    "(lambda st: torch.vmap(lambda p, b, t: torch.func.functional_call(m, (p, b), (t,)), in_dims=(0, 0, None))(*st, "
    "xs))"
    "(torch.func.stack_module_state([m, m]))",
    "list(torch.func.jacrev(lambda p: torch.func.functional_call(m, p, (x,)))"
    "({{k: p.detach() for k, p in m.named_parameters()}}).values())",
    "torch.nn.utils.stateless.functional_call(m, dict(m.named_parameters()), (xs,))",
    "[t.detach() for t in torch.autograd.grad(m(xs).square().sum(), list(m.parameters()), create_graph=True)]",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("transforms", seed)
    draw.line(f"x, xs = {draw.tensor((4,))} + 0.25, {draw.tensor((3, 4))} * 0.5")
    draw.line(f"w, ws = {draw.tensor((4, 4))} * 0.5, {draw.tensor((3, 4, 4))} * 0.5")
    module = "nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))"
    draw.line(f"m = make_module({draw.randrange(1000)}, {module!r}, 'float32')")
    for i in range(draw.randint(1, 3)):
        body = "".join(f"    x = {draw.choice(TERMS)}\n" for _ in range(draw.randint(1, 3)))
        draw.line(f"def _f{i}(x, w):\n{body}    return x")
        draw.line(
            f"_s{i} = lambda x, w: _f{i}(x, w).{draw.choice(['sum()', 'square().mean()', 'prod()', 'logsumexp(0)'])}"
        )
        text = draw.choice(draw.choice([OVER_X, OVER_BATCH, OVER_BATCH, MODULES]))
        draw.line(f"y{i} = {text.format(f=f'_f{i}', s=f'_s{i}')}")
        if draw.maybe(0.2):
            draw.line("xs = xs.flip(1); w = w.t()")
    return draw.lines
