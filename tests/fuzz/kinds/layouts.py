"""Operations of many families on 0-d, empty, flipped, expanded and strided tensors, with out= and with gradients."""

from tests.fuzz.draw import Draw

SHAPES = [(), (0,), (1,), (5,), (3, 4), (0, 4), (3, 0), (1, 1), (2, 3, 4), (2, 0, 4), (1, 4, 4), (2, 1, 3, 4), (4, 4)]
# {a} and {b} have the same shape, {d} is a dim, % one of the names.
NAMED = {
    "{a}.%({d})": "sum prod std amax max min argmax logsumexp softmax log_softmax cumsum cumprod cummax logcumsumexp "
    "median mode sort any count_nonzero nansum flip unsqueeze squeeze unbind",
    "{a}.%()": "amin argmin norm median nanmedian unique all aminmax squeeze flatten diagonal tril trace t nonzero "
    "bool",
    "torch.%({a})": "atleast_2d linalg.matrix_norm gradient cov corrcoef frexp special.i1e special.entr "
    "special.log_ndtr special.bessel_j0 sinc fft.fftn linalg.svdvals linalg.pinv linalg.det linalg.matrix_rank "
    "linalg.vander ravel argwhere diag_embed diag diagflat std_mean sgn positive square msort",
    "torch.%({a}, {b})": "kron cdist logaddexp hypot atan2 copysign nextafter heaviside ldexp block_diag dist "
    "fmax complex inner",
    "torch.%({a}, {d})": "cummin nanmean var_mean",
    "F.%({a})": "relu gelu pdist hardswish instance_norm",
    "F.%({a}, {b})": "mse_loss pairwise_distance",
}
# The same, one for each line.
OTHERS = """
{a}.mean({d}, keepdim=True)
{a}.var({d}, correction=0)
{a}.norm(dim={d})
{a}.argsort({d}, stable=True)
{a}.topk(1, {d})
{a}.kthvalue(1, {d})
{a}.unique(dim={d})
{a}.quantile(0.5)
{a}.quantile(0.25, {d})
{a}.aminmax(dim={d})
{a}.diff(dim={d})
{a}.roll(2, {d})
{a}.rot90(1, (0, 1))
{a}.repeat(2, *[1] * {a}.dim())
{a}.tile(2)
{a}.repeat_interleave(2, {d})
{a}.expand(2, *{a}.shape)
{a}.movedim({d}, -1)
{a}.reshape(-1)
{a}.view(-1)
{a}.split(1, {d})
{a}.chunk(2, {d})
{a}.tensor_split(2, {d})
{a}.narrow({d}, 0, 1)
{a}.select({d}, 0)
{a}.triu(1)
{a}.mT
{a}.masked_select({a} > 0)
{a}[{a} > 0]
{a}.take(index([0]))
{a}.index_select({d}, index([0]))
{a}.index_select({d}, index([]).long())
{a}.gather({d}, torch.zeros_like({a}, dtype=torch.long))
{a}.scatter({d}, torch.zeros_like({a}, dtype=torch.long), {b})
{a}.scatter_add({d}, torch.zeros_like({a}, dtype=torch.long), {b})
{a}.index_add({d}, index([0]), {b}.narrow({d}, 0, 1))
{a}.index_copy({d}, index([0]), {b}.narrow({d}, 0, 1))
{a}.index_fill({d}, index([0]), 2)
{a}.masked_fill({a} > 0, 2)
{a}.masked_scatter({a} > 0, {b})
torch.where({a} > 0, {a}, {b})
torch.cat([{a}, {b}], {d})
torch.stack([{a}, {b}], {d})
torch.hstack([{a}, {b}])
torch.vstack([{a}, {b}])
torch.dstack([{a}, {b}])
torch.column_stack([{a}, {b}])
torch.broadcast_tensors({a}, {b}[:1] if {b}.dim() else {b})
torch.meshgrid({a}.flatten(), {b}.flatten(), indexing='ij')
{a} @ {b}
{a} @ {b}.mT
torch.dot({a}.flatten(), {b}.flatten())
torch.outer({a}.flatten(), {b}.flatten())
torch.mv({a}, {b}.select(-2, 0))
torch.tensordot({a}, {b}, {a}.dim())
torch.linalg.vector_norm({a}, 3, {d})
torch.linalg.norm({a}, 'nuc')
torch.cross({a}[..., :3], {b}[..., :3], dim=-1)
torch.trapezoid({a}, dim={d})
torch.histc({a}, 4, -1, 1)
torch.bucketize({a}, {b}.flatten().sort().values)
torch.searchsorted({a}.sort(-1).values, {b})
torch.allclose({a}, {b}) * {a}
torch.addcdiv({a}, {b}, {b} + 2)
torch.lerp({a}, {b}, {a})
torch.isin({a}, {b}.contiguous())
torch.clamp({a}, {b} - 1, {b})
torch.nan_to_num({a} / 0)
torch.xlogy({a}, {b} + 2)
torch.float_power({a}, 2)
torch.polygamma(1, {a} + 2)
torch.special.zeta({a} + 3, {b} + 2)
torch.digamma({a} + 2)
torch.lgamma({a} + 2)
torch.erfinv({a} / 2)
torch.special.ndtri({a} / 4 + 0.5)
torch.special.multigammaln({a} + 4, 2)
torch.logit({a}, 0.1)
torch.renorm({a}, 2, {d}, 1.0)
torch.cumulative_trapezoid({a}, dim={d})
torch.cartesian_prod({a}.flatten(), {b}.flatten())
torch.combinations({a}.flatten(), 2)
torch.vander({a}.flatten(), 3)
torch.bincount(({a} * 4).long().abs().flatten())
torch.einsum('...i,...i->...', {a}, {b})
F.layer_norm({a}, {a}.shape[-1:])
F.rms_norm({a}, {a}.shape[-1:])
F.normalize({a}, dim={d})
F.pad({a}, (1, 2))
F.pad({a}, (-1, 2), value=3)
F.pad({a}, (1, 1), mode='replicate')
F.linear({a}, torch.ones(2, {a}.shape[-1], device=device))
F.glu({a}, {d})
F.one_hot(({a} * 4).long().abs())
F.embedding(({a} * 4).long().abs() % 3, torch.ones(3, 2, device=device))
F.cross_entropy({a}, {b}.softmax(-1))
F.cross_entropy({a}, ({b}.select(-1, 0) * 0).long())
F.nll_loss({a}, ({b}.select(-1, 0) * 0).long())
F.kl_div({a}, {b}.softmax(-1), reduction='batchmean')
F.cosine_similarity({a}, {b}, dim={d})
F.max_pool1d({a}, 1)
F.avg_pool1d({a}, 1)
F.adaptive_avg_pool1d({a}, 1)
F.interpolate({a}, scale_factor=2)
F.conv1d({a}, torch.ones(2, {a}.shape[-2], 1, device=device))
F.scaled_dot_product_attention({a}, {b}, {a})
F.softmin({a}, {d})
F.prelu({a}, torch.ones(1, device=device) / 4)
F.group_norm({a}, 1)
F.batch_norm({a}, None, None, training=True)
F.smooth_l1_loss({a}, {b}, reduction='sum')
F.huber_loss({a}, {b}, reduction='none')
F.grid_sample({a}[None, None], {b}[..., :2][None]) if {a}.dim() == 2 else {a}
F.unfold({a}, 1)
F.pixel_shuffle({a}.expand(4, 1, 1) if {a}.dim() == 0 else {a}, 1)
torch.fft.fft({a}, dim={d})
torch.fft.rfft({a}, dim={d})
torch.linalg.qr({a}, 'r')
torch.linalg.slogdet({a} + 3)
torch.linalg.matrix_power({a}, 2)
torch.linalg.eigvalsh({a} @ {a}.mT)
torch.linalg.cholesky_ex({a} @ {a}.mT + torch.eye({a}.shape[-2] if {a}.dim() > 1 else 1, device=device))[0]
torch.linalg.cross({a}[..., :3], {b}[..., :3])
torch.linalg.multi_dot([{a}, {b}.mT, {a}])
torch.stft({a}, 2, window=torch.ones(2, device=device), return_complex=True)
torch.bernoulli({a} * 0)
torch.dropout({a}, 0.0, True)
torch.zeros_like({a}).normal_(1, 0)
torch.empty_like({a}).copy_({b})
torch.full_like({a}, 3)
{a}.new_full((2,), 1.5)
{a}.type(torch.float64)
{a}.to(torch.int8)
{a}.item()*{b}
torch.tensor({a}.tolist())
torch.scalar_tensor(2.0, device=device) * {a}
{a}.unfold({d}, 1, 1)
{a}.as_strided((2, 2), (1, 1))
{a}.clone(memory_format=torch.contiguous_format)
torch.unflatten({a}, {d}, (1, -1))
torch.swapaxes({a}, 0, {d})
torch.take_along_dim({a}, torch.zeros_like({b}).long(), {d})
torch.select_scatter({a}, {b}.select({d}, 0), {d}, 0)
torch.slice_scatter({a}, {b}.narrow({d}, 0, 1), {d}, 0, 1)
torch.diagonal_scatter({a}, {b}.diagonal())
torch.segment_reduce({a}, 'sum', lengths=index([{a}.shape[0]]))
torch.clip({a}, -0.5, 0.5)
torch.bitwise_not(({a} * 4).int())
torch.view_as_real(torch.complex({a}, {b}))
torch.polar({a}.abs(), {b})
torch.addmm({a}, {b}, {a}.mT @ {a})
torch.addr({a}, {b}.select(-1, 0), {b}.select(-2, 0))
torch.addmv({a}.select(-1, 0), {a}, {b}.select(-2, 0))
torch.bmm({a}, {b}.mT)
torch.baddbmm({a} @ {a}.mT, {a}, {b}.mT)
torch.chain_matmul({a}, {b}.mT)
torch.vdot({a}.flatten(), {b}.flatten())
"""
NAMED_WRITES = {
    "{a}.%({d})": "cumsum_ unsqueeze_",
    "{a}.%()": "zero_ neg_ exp_ tril_ relu_ squeeze_ set_ floor_ erfinv_ sigmoid_ t_ nan_to_num_",
    "{a}.%({b})": "add_ copy_",
}
OTHER_WRITES = """
{a}.mul_(2)
{a}.fill_(3)
{a}.sub_({b}, alpha=2)
{a}.clamp_(-0.5, 0.5)
{a}[...] = {b}
{a}.masked_fill_({b} > 0, 9)
{a}.lerp_({b}, 0.5)
{a}.addcmul_({b}, {b})
{a}.scatter_({d}, torch.zeros_like({a}, dtype=torch.long), 5)
{a}.index_add_({d}, index([0]), {b}.narrow({d}, 0, 1))
{a}.select({d}, 0).fill_(7)
{a}.diagonal().zero_()
{a}.flatten()[:1].add_(1)
{a}.resize_(2, 2).fill_(1)
torch.add({a}, {b}, out={a})
torch.sum({a}, {d}, out={b})
torch.cat([{a}, {b}], {d}, out=torch.empty(0, device=device))
torch.sort({a}, {d}, out=({b}, torch.empty(0, dtype=torch.long, device=device)))
torch.matmul({a}, {b}.mT, out=torch.empty(0, device=device))
{a}.random_(1, 2)
{a}.div_({b} + 3, rounding_mode='floor')
{a}.renorm_(2, {d}, 1.0)
{a}.masked_scatter_({b} > 0, {b})
{a}.index_put_((index([0]),), {b}.select(0, 0))
{a}.fill_diagonal_(2)
"""


def list_calls(named: dict[str, str], others: str) -> list[str]:
    """All of them as text."""
    return [form.replace("%", name) for form, names in named.items() for name in names.split()] + others.strip().split(
        "\n"
    )


CALLS, WRITES = list_calls(NAMED, OTHERS), list_calls(NAMED_WRITES, OTHER_WRITES)
FORMS = [
    "",
    "",
    "",
    ".flip(0)",
    ".mT",
    "[..., ::2]",
    ".unsqueeze(0)",
    ".expand(2, *[-1] * {n}.dim())",
    ".contiguous().mT",
    "[:0]",
    ".double()",
    ".bfloat16()",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("layouts", seed)
    grad = draw.maybe(0.35)
    for i in range(3):
        shape = draw.choice(SHAPES)
        a, b = draw.tensor(shape, grad=grad), draw.tensor(shape, grad=grad and draw.maybe())
        form = draw.choice(FORMS)
        draw.line(f"a{i}, b{i} = {a}, {b}")
        if form:
            draw.line(f"a{i}, b{i} = a{i}{form.format(n=f'a{i}')}, b{i}{form.format(n=f'b{i}')}")
        rank = max(len(shape), 1)
        for j in range(draw.randint(1, 3)):
            d = draw.choice([0, -1, draw.randrange(rank)])
            if draw.maybe(0.25):
                draw.line(draw.choice(WRITES).format(a=f"a{i}", b=f"b{i}", d=d))
            else:
                draw.line(f"r{i}{j} = {draw.choice(CALLS).format(a=f'a{i}', b=f'b{i}', d=d)}")
    if grad:
        draw.line("backward()")
    return draw.lines
