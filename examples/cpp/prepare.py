"""Writes the files that the C++ example programs read: the digits, and a scripted module with an input and its output.

python prepare.py FOLDER
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits


class Ensemble(torch.nn.Module):
    """Two recurrent layers that run beside each other, forwards and backwards in time, by fork() and wait()."""

    def __init__(self):
        super().__init__()
        self.cell_f = torch.nn.LSTM(input_size=8, hidden_size=16)
        self.cell_b = torch.nn.LSTM(input_size=8, hidden_size=16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32[T, B, 32] of float32[T, B, 8]."""
        future_f = torch.jit.fork(self.cell_f, x)
        output_b, _ = self.cell_b(torch.flip(x, dims=[0]))
        output_b_rev = torch.flip(output_b, dims=[0])
        output_f, _ = torch.jit.wait(future_f)
        return torch.cat((output_f, output_b_rev), dim=2)


def write_digits(path: Path) -> None:
    """The 1,797 scans of scikit-learn, normalized and in random order: images float32[N, 1, 8, 8], labels int64[N]."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    images = (images - images.mean()) / images.std()
    torch.save({"images": images[order], "labels": torch.tensor(digits.target)[order]}, path)


def write_module(folder: Path) -> None:
    """module.pt, scripted on the CPU, and example.pt: an input and what the module makes of it there."""
    torch.manual_seed(0)
    module = torch.jit.script(Ensemble())
    x = torch.randn(10, 3, 8)
    with torch.no_grad():
        torch.save({"input": x, "output": module(x)}, folder / "example.pt")
    module.save(str(folder / "module.pt"))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_digits(target / "digits.pt")
    write_module(target)
