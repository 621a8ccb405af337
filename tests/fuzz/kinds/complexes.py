"""Random programs of complex numbers: their parts as views, conjugates, transforms, products, gradients."""

from tests.fuzz.draw import Draw

MAKE = [
    "torch.complex({p}, {q})",
    "torch.polar({p}.abs(), {q})",
    "torch.view_as_complex(torch.stack([{p}, {q}], -1))",
    "{p} + 1j * {q}",
    "{p}.to(torch.complex64)",
    "{p}.double().to(torch.complex128) * (1 - 2j)",
    "torch.fft.fft({p})",
]
USE = [
    "{a} + {b}",
    "{a} * {b}",
    "{a} - {b} * 2j",
    "{a} / ({b} + (3 + 1j))",
    "{a}.conj()",
    "{a}.conj() * {b}",
    "{a}.conj().t()",
    "{a}.mH",
    "{a} @ {b}",
    "{a}.conj() @ {b}.mH",
    "{a}.resolve_conj()",
    "{a}.conj_physical()",
    "{a}.exp() if {a}.abs().max() < 3 else {a}",
    "({a} + 2).sqrt()",
    "({a} + 2).log()",
    "{a}.sin()",
    "{a}.tanh()",
    "{a}.sigmoid()",
    "{a}.square()",
    "({a} + 2) ** 2",
    "({a} + 2) ** (1 + 1j)",
    "{a}.reciprocal() if {a}.abs().min() > 0 else {a}",
    "{a}.sgn()",
    "-{a}",
    "{a}.real + 0j",
    "{a}.imag * 1j",
    "{a}.conj().imag * (1 + 0j)",
    "{a}.abs() + 0j",
    "{a}.angle() * (1 + 0j) if {a}.abs().min() > 0.1 else {a}",
    "torch.fft.fft({a})",
    "torch.fft.ifft2({a})",
    "torch.fft.rfft({a}.real, n=6)[..., :4]",
    "torch.fft.irfft({a}, n=4) + 0j",
    "torch.fft.fftshift({a})",
    "torch.fft.hfft({a}, n=4) + 0j",
    "{a}.sum(0, keepdim=True) + {b}",
    "{a}.mean() * {b}",
    "{a}.prod(1, keepdim=True) + {b}",
    "{a}.cumsum(0)",
    "{a}.cumprod(1)",
    "torch.cat([{a}[:2], {b}[2:]])",
    "torch.stack([{a}, {b}])[1]",
    "torch.where({a}.real > 0, {a}, {b})",
    "torch.einsum('ij,kj->ik', {a}, {b}.conj())",
    "torch.linalg.norm({a}) + {b}",
    "torch.linalg.solve({a} + 9 * torch.eye(4, device=device), {b})",
    "torch.linalg.inv({a} + 9 * torch.eye(4, device=device))",
    "torch.linalg.det({a}) * {b}",
    "torch.addcmul({a}, {a}, {b}, value=0.5)",
    "torch.lerp({a}, {b}, 0.5)",
    "{a}.flip(0).roll(1, 1)",
    "{a}[index([2, 0, 0, 1])]",
    "{a}.index_add(0, index([0, 0, 3, 1]), {b})",
    "{a}.scatter_add(0, index([[0, 1, 2, 3]]), {b})",
    "{a}.masked_fill({a}.real > 0, 1j)",
    "torch.view_as_complex(torch.view_as_real({a}).flip(-1).contiguous())",
    "torch.view_as_complex(torch.view_as_real({a}).clone())",
    "{a}.tril()",
    "{a}.trace() * {b}",
    "torch.kron({a}[:2, :2], {b}[:2, :2])",
    "F.linear({a}, {b}, {a}[0])",
    "torch.vdot({a}[0], {b}[1]) * {a}",
    "torch.dot({a}[0].conj(), {b}[1]) * {a}",
    "torch.outer({a}[0], {b}[1].conj())",
    "torch.addmm({a}, {b}, {a}.conj(), alpha=0.5)",
    "torch.baddbmm({a}[None], {b}[None], {a}.mH[None])[0]",
    "{a}.to(torch.complex128)",
    "{a}.to(torch.complex64)",
    "{a}.new_ones(4, 4) * {b}",
    "{a}.repeat(2, 1)[::2]",
    "torch.isclose({a}, {b}).to({a}.dtype)",
    "({a} == {b}).to(torch.complex64) + {a}",
    "torch.nan_to_num({a})",
    "{a}.dist({b}) * {a}",
    "torch.cov({a})",
    "torch.std({a}, 0) + {b}",
    "{a}.diagonal().diag()",
    "F.conv1d({a}[None], {b}[..., None])[0]",
    "torch.is_complex({a}) * {a}",
    "torch.linalg.matrix_power({a} * 0.2, 3)",
    "torch.linalg.eigvals({a}).abs().sum() * {b}",
    "torch.linalg.svdvals({a}).sum() * {b}",
    "torch.asin({a} * 0.1)",
    "torch.sinc({a})",
]
WRITE = [
    "{a}.real.mul_(2)",
    "{a}.imag.zero_()",
    "{a}.real = {b}.imag",
    "{a}.imag[0] = 1",
    "{a}.conj().mul_(2j)",
    "{a}.conj()[0] = {b}[1]",
    "{a}.conj().imag.add_(1)",
    "{a}.add_({b})",
    "{a}.mul_(1j)",
    "{a}.copy_({b}.conj())",
    "{a}.copy_({b}.real)",
    "{a}.conj_physical_()",
    "torch.view_as_real({a})[..., 0].add_(1)",
    "torch.view_as_real({a}).neg_()",
    "{a}.mH.copy_({b})",
    "{a}.t()[1:].sub_(0.5j)",
    "{a}.fill_(1 - 1j)",
    "{a}[{a}.real > 0] = 2j",
    "{a}.diagonal().imag.fill_(3)",
    "{a}.div_(2)",
    "{a}.neg_()",
    "torch.add({a}, {b}, out={a})",
    "{a}.view(torch.float32 if {a}.dtype == torch.complex64 else torch.float64)[0].add_(1)",
    "{a}.masked_fill_({b}.real > 0, 0.5)",
    "{a}.index_put_((index([0, 0]),), {b}[:2], accumulate=True)",
    "{a}.tanh_()",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("complexes", seed)
    grad = draw.maybe(0.45)
    names = []
    for i in range(3):
        p, q = draw.tensor((4, 4), grad=grad), draw.tensor((4, 4), grad=grad)
        draw.line(f"a{i} = ({draw.choice(MAKE).format(p=p, q=q)}) * 1")
        names.append(f"a{i}")
    for i in range(3, 3 + draw.randint(2, 9)):
        a, b = draw.choice(names), draw.choice(names)
        if draw.maybe(0.3):
            draw.line(draw.choice(WRITE).format(a=a, b=b))
            continue
        draw.line(f"a{i} = {draw.choice(USE).format(a=a, b=b)}")
        names.append(f"a{i}")
    draw.line("conjugated = torch.tensor([[t.is_conj(), t.is_neg()] for t in [" + ", ".join(names) + "]])")
    if grad:
        draw.line(
            "sum(torch.view_as_real(t.resolve_conj()).tanh().sum().double() for t in ["
            + ", ".join(names)
            + "] if t.is_complex()).backward()"
        )
    return draw.lines
