"""Random calls of scaled dot product attention: ranks, masks, dropout, grouped heads, sizes, broadcasts, layouts."""

from tests.fuzz.draw import Draw

MASK_KINDS = ["none", "none", "causal", "bool", "bool", "float", "row"]


def draw_mask(draw: Draw, batch: tuple, queries: int, keys: int) -> str:
    """An expression for attn_mask that leaves every query at least one key, or '' for none."""
    kind = draw.choice(MASK_KINDS)
    if kind in ("none", "causal"):
        return "is_causal=True" if kind == "causal" else ""
    leading = tuple(draw.choice([1, size]) for size in batch[draw.randrange(len(batch) + 1) :])
    if kind == "row":
        text = f"(torch.arange({keys}, device=device) < {draw.randint(1, keys)}).expand({queries}, {keys})"
    else:
        text = f"make_index({draw.randrange(1 << 30)}, {(*leading, queries, keys)}, 0, 2, 'bool')"
        text = f"({text} | (torch.arange({keys}, device=device) == 0))"
    if kind == "float":
        text = f"torch.zeros({(*leading, queries, keys)}, device=device).masked_fill_(~{text}, float('-inf'))"
    return f"attn_mask={text}"


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("attention", seed)
    grad = draw.maybe(0.6)
    heads, groups = draw.choice([(1, 1), (2, 1), (4, 2), (4, 1), (3, 1)])
    gqa = groups > 1 and draw.maybe(0.7)
    batch = draw.choice([(draw.randint(1, 3), heads)] * 3 + [(heads,), (2, 2, heads)])
    kv_batch = (*batch[:-1], heads // groups) if gqa and len(batch) == 2 else batch
    queries, keys, size = draw.randint(1, 9), draw.randint(1, 9), draw.choice([1, 4, 8, 16, 17])
    value_size = size if draw.maybe(0.7) else draw.choice([1, 5, 8])
    q = draw.tensor((*batch, queries, size), grad=grad)
    k = draw.tensor((*kv_batch, keys, size), grad=grad)
    v = draw.tensor((*kv_batch, keys, value_size), grad=grad)
    options = [draw_mask(draw, batch, queries, keys)]
    options += ["enable_gqa=True"] if kv_batch != batch else []
    options += [f"scale={draw.choice([0.3, 1.0, 0.125])}"] if draw.maybe(0.3) else []
    arguments = ", ".join(filter(None, options))
    draw.line(f"y = F.scaled_dot_product_attention({q}, {k}, {v}, {arguments})")
    if grad:
        draw.line("backward()")
    draw.line(f"v = {v}.detach()")
    add_dropout(draw, q, k, arguments)
    return draw.lines


def add_dropout(draw: Draw, q: str, k: str, arguments: str) -> None:
    """The same with dropout, whose masks differ between devices: values that the mask hides must not be seen."""
    probability = draw.choice([0.1, 0.5])
    draw.line(
        f"_dropped = F.scaled_dot_product_attention({q}.detach(), {k}.detach(), torch.ones_like(v), "
        f"dropout_p={probability}{', ' + arguments if arguments else ''})"
    )
    draw.line(f"scaled = ((_dropped >= 0) & (_dropped <= {1 / (1 - probability)} * 1.001)) | _dropped.isnan()")
    draw.line("hidden = torch.zeros(v.shape, device=device)")
    draw.line("hidden[..., -1, :] = 1e6")
    draw.line(
        f"_leak = F.scaled_dot_product_attention({q}.detach(), {k}.detach(), hidden, "
        f"dropout_p={probability}{', ' + arguments if arguments else ''})"
    )
    draw.line(f"allowed = F.scaled_dot_product_attention({q}.detach(), {k}.detach(), hidden, {arguments}) > 0.01")
    draw.line("leak = (_leak > 0.01) & ~allowed")
