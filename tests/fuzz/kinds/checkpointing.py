"""Random modules run with and without activation checkpointing: equal values and gradients, also through dropout.

Devices drop other elements, so only the verdict `same` is compared between them.
"""

from tests.fuzz.draw import Draw

LAYERS = [
    "nn.Linear(6, 6)",
    "nn.GELU()",
    "nn.Dropout({p})",
    "nn.LayerNorm(6)",
    "nn.Tanh()",
    "nn.Dropout({p})",
    "nn.ReLU()",
]
LAYERS += [
    "nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.AlphaDropout({p}), nn.Linear(8, 6))",
    "nn.RReLU()",
    "nn.Softplus()",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("checkpointing", seed)
    layers = ", ".join(draw.choice(LAYERS).format(p=draw.choice([0.1, 0.5])) for _ in range(draw.randint(2, 6)))
    text = f"nn.Sequential(nn.Linear(6, 6), {layers})"
    draw.line("from torch.utils.checkpoint import checkpoint, checkpoint_sequential")
    draw.line(f"_m = make_module({draw.randrange(1000)}, {text!r}, 'float32')")
    draw.line(f"_x = make_input({draw.randrange(1000)}, (4, 6), 'float32', True)")
    mode = f"use_reentrant={draw.choice([True, False])}"
    call = draw.choice(
        [
            f"checkpoint(_m, _x, {mode})",
            f"checkpoint_sequential(_m, {draw.randint(1, 2)}, _x, {mode})",
            f"checkpoint(lambda t: checkpoint(_m[1:], _m[0](t), {mode}), _x, {mode})",
        ]
    )
    for i, forward in enumerate(["_m(_x)", call]):
        draw.line(f"_ = torch.manual_seed({seed}); _y{i} = {forward}")
        draw.line("torch.randn(3, device=device)  # moves the generator between forward and backward")
        draw.line(f"_y{i}.square().sum().backward()")
        draw.line(f"_grads{i} = [t.grad.clone() for t in [_x, *_m.parameters()]]; _m.zero_grad(); _x.grad = None")
    draw.line("_same = torch.allclose(_y0, _y1, rtol=1e-5, atol=1e-6)")
    draw.line("_same = _same and all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(_grads0, _grads1))")
    draw.line("same = torch.tensor(_same)")
    return draw.lines
