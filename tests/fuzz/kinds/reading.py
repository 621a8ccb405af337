"""Random programs whose Python reads values: branches, loops until something holds, sizes, sorts and texts."""

from tests.fuzz.draw import Draw

# Over matrices a and b of (any number, 4); each gives such a matrix.
ROWS = [
    "{a}[{a}[:, {c}] > {b}.mean()]",
    "{a}[{a}.sum(1).nonzero()[:, 0]]",
    "{a}[{a}[:, {c}].argsort(stable=True)]",
    "{a}[torch.where({a}[:, {c}] >= 0)[0]]",
    "{a}.unique(dim=0)",
    "{a}[: int({b}.abs().sum()) % 5 + 1]",
    "{a}[{b}.abs().sum().long() % {a}.shape[0] :]",
    "torch.stack(sorted({a}, key=lambda row: row.sum().item()))",
    "torch.stack(sorted({a}, key=lambda row: row.sum()))",
    "torch.stack([row for row in {a} if row.sum() > -1])",
    "torch.stack([row * i for i, row in enumerate({a})])",
    "torch.cat([{a}, {b}])[: len({a}) + 1]",
    "{a} * 2 if {a}.sum() > 0 else {a} - 1",
    "{a} if bool(({a} > 0).any()) and not ({b} > 5).all() else {b}",
    "{a}.masked_select({a} > -0.5)[: {a}.numel() // 8 * 4].reshape(-1, 4)",
    "{a}.masked_select({a} > 0).unique().repeat(4).reshape(-1, 4)",
    "{a}.repeat_interleave({a}[:, {c}].abs().long() + 1, 0)",
    "torch.full((int({a}.abs().amax()) + 1, 4), float({a}.sum()), device=device)",
    "torch.zeros(int({b}.argmax()) + 1, 4, device=device).index_fill_(0, {b}.argmax().unsqueeze(0), 3)",
    "{a}.flatten()[{a}.flatten().topk(min(4, {a}.numel())).indices].reshape(1, -1)[:, :4]",
    "torch.tensor({a}.tolist(), device=device)",
    "torch.tensor([[float(v) for v in row] for row in {a}], device=device)",
    "torch.as_tensor({a}.detach().cpu().numpy() * 2, device=device)",
    "torch.nonzero({a} > 0).float().repeat(1, 2)",
    "sum([row.unsqueeze(0) for row in {a}], torch.zeros(1, 4, device=device))",
    "max([{a}, {b}], key=lambda t: t.sum())",
    "max({a}, key=lambda row: row.norm().item()).unsqueeze(0)",
    "torch.stack(list(reversed({a})))",
    "torch.cat([{a}.split([len({a}) - 1, 1])[1], {a}])",
    "{a}.split(torch.tensor([1, len({a}) - 1]).tolist())[1]",
    "torch.bincount(({a}[:, {c}].abs() * 4).long(), minlength=4)[:4].float().unsqueeze(0)",
    "{a}.new_tensor([{a}.min().item(), {a}.max().item(), len({a}), {a}.dim()]).unsqueeze(0)",
    "torch.cat([t for t in {a}.chunk(3) if t.mean() < 2])",
    "{a}[[i for i, v in enumerate({a}[:, {c}]) if v != 0]]",
    "{a}[{a}[:, {c}].argmax():]",
    "{a}[torch.randperm(1, device=device)]",
    "{a} / {a}.norm() if {a}.norm() != 0 else {a}",
    "{a}.clone().masked_fill_({a} == {a}.max(), 0)",
    "nn.utils.rnn.pad_sequence([row[: int(row.abs().sum()) % 4 + 1] for row in {a}], batch_first=True)[:, "
    ":1].repeat(1, 4)",
    "torch.stack([torch.cat([row[row > 0], row[row <= 0]]) for row in {a}])",
    "torch.stack([{a}.quantile(q) for q in (0.0, 0.25, 0.5, 1.0)]).unsqueeze(0)",
    "torch.cartesian_prod({a}[0], {b}[0]).reshape(-1, 4)",
    "torch.combinations({a}[0, :3], 2).flatten()[:4].unsqueeze(0)",
    "torch.tril_indices(len({a}), 2, device=device).float().repeat(2, 1).t()",
]
# Statements of several lines; {v} is what they set.
BLOCKS = [
    "{v} = {a}.clone(); n{i} = 0\nwhile {v}.abs().amax() > 0.5 and n{i} < 20:\n    {v} = {v} * 0.5; n{i} += 1\n"
    "turns{i} = torch.tensor(n{i})",
    "{v} = {a}.clone()\nfor row in {v}:\n    row.mul_(2 if row.sum() > 0 else -1)",
    "{v} = {a}.clone()\nfor i in range(len({v})):\n    if {v}[i, 0] > 0:\n        {v}[i] = {v}[i - 1]\n        "
    "continue\n"
    "    if {v}[i].sum().item() < -1:\n        break\n    {v}[i, {c}] += i",
    "try:\n    {v} = {a}[{a}[:, 0] > 100].reshape(2, 4)\nexcept RuntimeError:\n    {v} = {a} + 1",
    "seen{i} = dict()\nfor v in {a}.flatten().tolist():\n    seen{i}[v] = seen{i}.get(v, 0) + 1\n"
    "{v} = torch.tensor([[k, n, k, n] for k, n in sorted(seen{i}.items())], device=device)",
    "first, *rest = {a}\n{v} = torch.stack([first + r for r in rest] or [first])",
    "lo{i}, hi{i} = {a}.min(), {a}.max()\nfor _ in range(10):\n    mid{i} = (lo{i} + hi{i}) / 2\n"
    "    if ({a} < mid{i}).sum() * 2 < {a}.numel():\n        lo{i} = mid{i}\n    else:\n        hi{i} = mid{i}\n"
    "{v} = {a} - lo{i}",
    "w{i} = torch.ones(4, device=device)\nfor _ in range(30):\n    u{i} = {a}.mT @ ({a} @ w{i}) + w{i}; u{i} = u{i} "
    "/ u{i}.norm()\n"
    "    if (u{i} - w{i}).abs().max() < 1e-3:\n        break\n    w{i} = u{i}\n{v} = {a} * 2",
    "token{i} = 0; out{i} = []\nwhile len(out{i}) < 6:\n    token{i} = int(({a}[token{i} % len({a})] + "
    "len(out{i})).argmax())\n"
    "    out{i}.append(token{i})\n    if token{i} == 3:\n        break\n{v} = {a}[[t % len({a}) for t in out{i}]]",
    "queue{i} = [0]; visited{i} = set()\nwhile queue{i}:\n    k{i} = queue{i}.pop()\n    if k{i} in visited{i}:\n   "
    "     continue\n"
    "    visited{i}.add(k{i}); queue{i} += [j for j in range(len({a})) if {a}[j, k{i} % 4] > 0]\n{v} = "
    "{a}[sorted(visited{i})]",
    "{v} = {a}.clone(); best{i} = None\nfor t in ({a}, {b}):\n    if best{i} is None or t.sum() > best{i}:\n"
    "        best{i} = t.sum(); {v} = t",
    "x{i} = {a}.detach().clone().requires_grad_()\nfor _ in range(5):\n    l{i} = (x{i} ** 2).sum()\n    if l{i} < "
    "0.1:\n"
    "        break\n    g{i}, = torch.autograd.grad(l{i}, x{i})\n    x{i} = (x{i} - 0.25 * "
    "g{i}).detach().requires_grad_()\n"
    "{v} = x{i}.detach()",
    "{v} = {a}.clone()\nif torch.equal({a}, {b}) or torch.allclose({a}[:1], {b}[:1]) or {a} is {b}:\n    {v} += 1",
    "{v} = {a}.clone(); {v}[{v} < 0] = 0\nif not {v}.any():\n    {v}.fill_(7)\nelif {v}.all():\n    {v}.zero_()",
    "{v} = {a}.clone(); i{i} = {v}.abs().sum(1).argmax(); {v}[i{i}], {v}[0] = {v}[0].clone(), {v}[i{i}].clone()",
    "{v} = {a}.clone()\nfor i, j in ({a} > 0).nonzero().tolist():\n    {v}[i, j] += {b}[i % len({b}), j]",
    "{v} = {a}.clone()\nfor i in {a}[:, 0].argsort():\n    {v}[i] += i",
    "{v} = {a}.clone()\nwhile True:\n    k{i} = {v}.sum(1).argmin()\n    {v} = torch.cat([{v}[:k{i}], {v}[k{i} + "
    "1:]])\n"
    "    if len({v}) < 3:\n        break",
    "_b = nn.utils.rnn.pack_sequence([{a}, {a}[:1]], enforce_sorted=False)\n"
    "{v}, lens{i} = nn.utils.rnn.pad_packed_sequence(_b); {v} = {v}[:, 0]",
    "u{i}, inv{i}, num{i} = ({a} * 4).long().unique(return_inverse=True, return_counts=True)\n{v} = "
    "u{i}[inv{i}].float() / 4",
    "u{i}, num{i} = torch.unique_consecutive({a}.flatten(), return_counts=True)\n{v} = "
    "u{i}[:1].expand(int(num{i}.max()), 4)",
]
TEXTS = [
    "f'{{{a}.sum():.3f}}'",
    "str({a}.shape) + str({a}.dtype)",
    "repr([round(v, 2) for v in {a}.flatten().tolist()])",
    "'%d' % {a}.sum()",
    "f'{{{a}.argmax()}}'",
    "str(round(float({a}.mean()), 3))",
    "str(divmod(round({a}.sum().item(), 2), 2))",
    "str(bool({a}.any()))",
    "str({a}.count_nonzero().item())",
    "str(2.0 in {a})",
    "str([0] * {a}.abs().argmax())",
    "str(list(range(10))[{a}.abs().sum().long() % 10])",
    "'{{:.2f}}'.format({a}.max().item())",
    "str(hash(tuple(round(v, 2) for v in {a}.flatten().tolist())))",
    "str(int({a}.sum()) // 2) + str({a}.numel() and complex(round(float({a}.sum()), 3)))",
    "str({a}.size(0) * {a}.stride(0)) + str({a}.is_contiguous())",
    "str(torch.is_nonzero({a}.sum() + 100))",
    "str({a}.isnan().any().item() or {a}.isinf().any().item())",
    "str([list(row) == list({b}[0]) for row in {a}])",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("reading", seed)
    names = []
    for i in range(3):
        draw.line(f"a{i} = {draw.tensor((draw.randint(1, 6), 4))} * 1")
        names.append(f"a{i}")
    draw.line("texts = []")
    for i in range(3, 3 + draw.randint(3, 9)):
        a, b = draw.choice(names), draw.choice(names)
        choices = {"a": a, "b": b, "c": draw.randrange(4), "i": i, "v": f"a{i}"}
        if draw.maybe(0.15):
            draw.line(f"texts.append({draw.choice(TEXTS).format(**choices)})")
            continue
        if draw.maybe(0.65):
            draw.line(f"a{i} = {draw.choice(ROWS).format(**choices)}")
        else:
            draw.line(draw.choice(BLOCKS).format(**choices))
        if draw.maybe(0.2):
            draw.line(f"a{i}.{draw.choice(['mul_(0.5)', 'add_(1)', 'neg_()', 'relu_()'])}")
        names.append(f"a{i}")
        if draw.maybe(0.2):
            draw.line("sync()")
    return draw.lines
