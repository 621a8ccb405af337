"""Trains the MNIST network of PyTorch's examples on scikit-learn's handwritten digits, on the device `xla`.

The loop is the single-device loop of the torch_xla documentation. The same on eager PyTorch follows for comparison.

    python examples/train_digits.py [--device xla|cpu] [--epochs 10] [--out results/train_digits.png]
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met

matplotlib.use("Agg")
from matplotlib import pyplot as plt

BATCH_SIZE = 64


class MNIST(nn.Module):
    """The network of pytorch/examples/mnist, with padded convolutions: the scans have 8x8 pixels, not 28x28."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1, padding=1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(64 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        """Log-probabilities float32[N, 10] of images float32[N, 1, 8, 8]."""
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


@dataclass
class History:
    """What one training run leaves: a figure per epoch."""

    device: str
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # training only, evaluation not counted
    compiles: list[str] = field(default_factory=list)  # where a program was compiled

    def steady_seconds(self) -> float:
        """Median time of an epoch, without the first one, which compiles."""
        return statistics.median(self.seconds[1:] or self.seconds)


class CompileLog:
    """Notes where programs are compiled."""

    def __init__(self, places: list[str]):
        self._places = places
        self._count = self._compiled()

    @staticmethod
    def _compiled() -> int:
        return met.counter_value("UncachedCompile") or 0

    def note(self, place: str) -> None:
        """Whatever was compiled since the last call was compiled at `place`."""
        count = self._compiled()
        if count > self._count:
            self._places.append(f"{place} ({count - self._count})")
        self._count = count


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Train and test split (80 % and 20 %) of the 1,797 scans, normalized."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    images = (images - images.mean()) / images.std()
    labels = torch.tensor(digits.target)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_images, test_images, train_labels, test_labels = split
    return TensorDataset(train_images, train_labels), TensorDataset(test_images, test_labels)


def train_epoch(model, loss_fn, optimizer, train_loader, device, title: str, log: CompileLog) -> float:
    """One pass over the training data. Returns the mean loss of its batches."""
    model.train()
    losses = []
    for index, (data, target) in enumerate(tqdm(train_loader, desc=title, unit="batch", leave=False)):
        optimizer.zero_grad()
        data = data.to(device)
        target = target.to(device)
        output = model(data)
        loss = loss_fn(output, target)
        loss.backward()

        xm.optimizer_step(optimizer, barrier=True)
        losses.append(loss.detach())
        log.note(f"{title}, batch {index + 1} of {len(data)} images")
    return statistics.fmean(loss.item() for loss in losses)


@torch.no_grad()
def accuracy(model, test_loader, device) -> float:
    """Per cent of the test images that the model tells right."""
    model.eval()
    correct = [(model(data.to(device)).argmax(dim=1) == target.to(device)).sum() for data, target in test_loader]
    return 100.0 * torch.stack(correct).sum().item() / len(test_loader.dataset)


def train(device, epochs: int) -> History:
    """Trains a new model on `device`; the same seed gives the same first weights and the same order of batches."""
    torch.manual_seed(1)
    train_data, test_data = load_data()
    train_loader = DataLoader(train_data, batch_size=BATCH_SIZE, shuffle=True)
    test_loader = DataLoader(test_data, batch_size=len(test_data))
    model = MNIST().train().to(device)
    loss_fn = nn.NLLLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.06, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)

    history = History(str(device))
    log = CompileLog(history.compiles)
    for epoch in range(1, epochs + 1):
        title = f"{device} epoch {epoch}"
        start = time.perf_counter()
        history.losses.append(train_epoch(model, loss_fn, optimizer, train_loader, device, title, log))
        history.seconds.append(time.perf_counter() - start)
        log.note(f"{title}, mean loss")
        history.accuracies.append(accuracy(model, test_loader, device))
        log.note(f"{title}, evaluation")
        scheduler.step()
        print(
            f"{title:>16}: loss {history.losses[-1]:.4f}, test accuracy {history.accuracies[-1]:.1f} %, "
            f"{history.seconds[-1]:.3f} s"
        )
    return history


def plot(histories: list[History], path: str) -> None:
    """Writes loss and accuracy over the epochs of each run as a PNG."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for history in histories:
        epochs = range(1, len(history.losses) + 1)
        label = f"{history.device}, {history.steady_seconds():.3f} s an epoch"
        left.plot(epochs, history.losses, marker="o", label=label)
        right.plot(epochs, history.accuracies, marker="o", label=label)
    left.set(title="Training loss", xlabel="epoch", ylabel="negative log-likelihood")
    right.set(title="Test accuracy", xlabel="epoch", ylabel="%")
    right.legend()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def summarize(history: History) -> None:
    """Prints what the device did: the metrics report, and where it compiled."""
    print("\n" + met.metrics_report())
    print("Programs were compiled at:", *history.compiles, sep="\n  ")
    fallbacks = [name for name in met.executed_fallback_ops() if name != "aten::_local_scalar_dense"]
    print("Ops that fell back to the CPU:", ", ".join(fallbacks) or "none")


def main() -> None:
    """Reads the command line, trains, and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu trains on eager PyTorch only")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", default="results/train_digits.png", help="where to write the curves")
    args = parser.parse_args()

    histories = []
    if args.device == "xla":
        print(f"torch_xla {torch_xla.__version__} on {xm.xla_real_devices()[0]}")
        histories.append(train(xm.xla_device(), args.epochs))
        summarize(histories[0])
        print("\nThe same on eager PyTorch:")
    histories.append(train(torch.device("cpu"), args.epochs))
    plot(histories, args.out)
    print(f"\nTest accuracy {histories[0].accuracies[-1]:.1f} %; curves in {args.out}")
    if args.device == "xla":
        mine, eager = (history.steady_seconds() for history in histories)
        print(f"Time per epoch: {mine:.3f} s on xla, {eager:.3f} s on eager PyTorch ({mine / eager:.2f} x)")


if __name__ == "__main__":
    main()
