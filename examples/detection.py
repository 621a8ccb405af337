"""Trains torchvision's SSDLite on drawn boxes and discs, finds them in new images, and says what was compiled.

    pip install torchvision
    python examples/detection.py [--device xla|cpu] [--steps 300]

A detector reads sizes from the device: the number of matched anchors in training, of boxes above a score in detection.
Each such read ends a program, and the next one has another size.
"""

import argparse
import time

import torch
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.ops import box_iou
from tqdm import trange

import torch_xla.debug.metrics as met

PROGRAMS = {
    "UncachedCompile": "compiled",
    "ReplannedProgram": "planned for new sizes or run as recorded",
    "CachedCompile": "run again",
}


def draw_scene(size: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """An image, float32[3, size, size], of one to three boxes (label 1) and discs (label 2), and where they are."""
    image, boxes, labels = 0.3 * torch.rand(3, size, size), [], []
    down, right = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    for _ in range(int(torch.randint(1, 4, ()))):
        width = int(torch.randint(size // 4, size // 2, ()))
        x, y = torch.randint(size - width, (2,)).tolist()
        label = int(torch.randint(1, 3, ()))
        is_inside = (right >= x) & (right < x + width) & (down >= y) & (down < y + width)
        if label == 2:
            is_inside = (right - x - width / 2) ** 2 + (down - y - width / 2) ** 2 < (width / 2) ** 2
        image[:, is_inside] = 0.4 + 0.6 * torch.rand(3, 1)
        boxes.append([x, y, x + width, y + width])
        labels.append(label)
    return image, {"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)}


def draw_batch(count: int, args: argparse.Namespace) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Images on the device, and their targets."""
    images, targets = zip(*(draw_scene(args.size) for _ in range(count)))
    images = torch.stack(images).to(args.device).unbind()
    return list(images), [{name: value.to(args.device) for name, value in target.items()} for target in targets]


def train(model: torch.nn.Module, args: argparse.Namespace) -> list[float]:
    """The losses of all steps, read at the end."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    model.train()
    for _ in trange(args.steps, desc="training", unit="step", leave=False):
        optimizer.zero_grad()
        loss = sum(model(*draw_batch(args.batch, args)).values())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@torch.no_grad()
def detect(model: torch.nn.Module, args: argparse.Namespace) -> tuple[int, int]:
    """How many objects of new images have a box of their label over at least half of both, and how many there are."""
    found = there = 0
    model.eval()
    for _ in trange(args.images, desc="detecting", unit="image", leave=False):
        images, (target,) = draw_batch(1, args)
        (detected,) = model(images)
        best = {name: value[:10] for name, value in detected.items()}  # non-maximum suppression has ordered them
        overlap = box_iou(target["boxes"], best["boxes"]) * (target["labels"][:, None] == best["labels"])
        found += int((overlap > 0.5).any(1).sum())
        there += len(overlap)
    return found, there


def count_programs(before: dict[str, int]) -> tuple[dict[str, int], str]:
    """The counts of now, and those since `before` as text."""
    now = {name: met.counter_value(name) or 0 for name in PROGRAMS}
    return now, ", ".join(f"{now[name] - before.get(name, 0)} {what}" for name, what in PROGRAMS.items())


def main() -> None:
    """Reads the command line, trains, detects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu: eager PyTorch")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--images", type=int, default=50, help="to find objects in")
    parser.add_argument("--size", type=int, default=128, help="of an image")
    args = parser.parse_args()

    torch.manual_seed(0)
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    model.transform.fixed_size = (args.size, args.size)  # as small as the images, instead of 320 x 320
    model.to(args.device)
    counts, start = count_programs({})[0], time.perf_counter()
    losses = train(model, args)
    counts, text = count_programs(counts)
    milliseconds = 1e3 * (time.perf_counter() - start) / args.steps
    print(f"training: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {milliseconds:.0f} ms a step")
    print(f"  programs: {text}")
    start = time.perf_counter()
    found, there = detect(model, args)
    print(f"detection: {found} of {there} objects, {1e3 * (time.perf_counter() - start) / args.images:.0f} ms an image")
    print(f"  programs: {count_programs(counts)[1]}")


if __name__ == "__main__":
    main()
