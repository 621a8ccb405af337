"""The first call of an operation takes no longer than others: it imports nothing, as torch's rules in Python do."""

CALLS = {
    "Fourier transform": "torch.fft.irfft(torch.fft.rfft(x))",
    "spectrogram": "torch.stft(x.flatten(), 16, window=torch.ones(16, device='xla'), return_complex=True)",
    "magnitude": "torch.polar(x, x).abs()",
    "gradient of a magnitude": "torch.autograd.grad((z * z).abs().sum(), z)[0]",
    "complex product": "z @ z",
    "solution": "torch.linalg.solve(x, x)",
    "inverse": "torch.linalg.inv(x)",
    "eigenvalues": "torch.linalg.eigvalsh(x)",
    "singular values": "torch.linalg.svdvals(x)",
    "distances": "torch.cdist(x, x)",
    "shift": "i >> 1",
    "shift of a number": "1 << i",
    "shift in place": "i.clone().__ilshift__(2)",
    "divisors": "torch.gcd(i, i)",
    "a number among integers": "torch.isin(i, 3)",
    "special function of integers": "torch.special.entr(i)",
    "signs of integers": "torch.signbit(i)",
    "angles of integers": "torch.angle(i)",
    "normal numbers": "torch.normal(x, x)",
    "normal numbers of one mean": "torch.normal(0.0, x)",
    "Poisson's numbers": "torch.poisson(x)",
    "gamma numbers": "torch._standard_gamma(x + 1)",
}


def test_first_calls_import_nothing(run_python):
    program = f"""
        import sys
        import torch
        import torch_xla

        x = torch.eye(8, device="xla")
        i = torch.arange(8, device="xla")
        z = torch.ones(4, 4, dtype=torch.cfloat, device="xla").requires_grad_()
        for name, call in {CALLS!r}.items():
            before = set(sys.modules)
            eval(call).cpu()
            imported = sorted({{"sympy", "torch._dynamo"}} & (set(sys.modules) - before))
            assert not imported, f"{{name}}: {{imported}}"
    """
    run_python(program)
