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
}


def test_first_calls_import_nothing(run_python):
    program = f"""
        import sys
        import torch
        import torch_xla

        x = torch.eye(8, device="xla")
        z = torch.ones(4, 4, dtype=torch.cfloat, device="xla").requires_grad_()
        for name, call in {CALLS!r}.items():
            before = set(sys.modules)
            eval(call).cpu()
            imported = sorted({{"sympy", "torch._dynamo"}} & (set(sys.modules) - before))
            assert not imported, f"{{name}}: {{imported}}"
    """
    run_python(program)
