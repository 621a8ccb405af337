"""Programs whose shapes change, for dynamic.py; as a script it runs one: dynamic_cases.py CASE DEVICE STEPS THREADS.

A case is a generator function of a device and a number of steps. It builds everything that it can on the CPU and
yields None; then it works on the device and yields a value for each step, and perhaps what is left at the end: a number
or a tensor which nothing has read. The numbers are the same in each run. The script prints a line of JSON on the time,
the memory and the values.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

Values = Iterator[torch.Tensor | float | None]


# ---- Training ----
def minimize(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    """Takes a step. The loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Layer(nn.Module):
    """A layer of a GPT: causal attention, then a perceptron, each behind a norm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.project(self.before_attention(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(found.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Tokens (batch, length) to logits (batch, length, words)."""

    def __init__(self, words: int = 512, width: int = 256, heads: int = 8, layers: int = 4, longest: int = 128):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.layers(self.tokens(tokens) + places))


def sentences(device: str, steps: int) -> Values:
    """Training of a GPT (4 layers, 256 wide, AdamW), 4 sentences of one new length, 17 to 120, in each step."""
    draw = random.Random(1)
    batches = [torch.randint(512, (4, draw.randint(17, 120) + 1)) for _ in range(steps)]
    model = GPT()
    yield None
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for batch in batches:
        batch = batch.to(device)
        logits = model(batch[:, :-1])
        yield minimize(optimizer, F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))


def image_sizes(device: str, steps: int) -> Values:
    """Training of a convolutional network with BatchNorm and GroupNorm, a new image size, 24 to 80, in each step."""
    draw = random.Random(2)
    batches = [torch.randn(8, 3, draw.randint(24, 80), draw.randint(24, 80)) for _ in range(steps)]
    labels = torch.randint(10, (8,))
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.GELU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    yield None
    model.to(device)
    labels = labels.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    for batch in batches:
        yield minimize(optimizer, F.cross_entropy(model(batch.to(device)), labels))


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges (2, number), then the mean of each graph's nodes."""

    def __init__(self, features: int = 16, width: int = 64, classes: int = 4):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))

    def forward(self, nodes, edges, graph_of, graphs):
        x = self.first(nodes).relu()
        for message, update in zip(self.messages, self.updates):
            sent = message(torch.cat([x[edges[0]], x[edges[1]]], 1)).relu()
            got = torch.zeros_like(x).scatter_add(0, edges[1][:, None].expand_as(sent), sent)
            x = x + update(torch.cat([x, got], 1)).relu()
        sums = x.new_zeros(graphs, x.shape[1]).index_add(0, graph_of, x)
        counts = x.new_zeros(graphs).index_add(0, graph_of, torch.ones_like(x[:, 0]))
        return self.last(sums / counts[:, None])


def graphs(device: str, steps: int) -> Values:
    """Training of a graph network by index and scatter, 8 graphs of any number of nodes and edges in each step."""
    draw = random.Random(3)
    batches = []
    for _ in range(steps):
        sizes = torch.tensor([draw.randint(5, 30) for _ in range(8)])
        graph_of = torch.repeat_interleave(torch.arange(8), sizes)
        offsets = (sizes.cumsum(0) - sizes)[graph_of]
        sources = torch.randint(len(graph_of), (draw.randint(2, 4) * len(graph_of) + draw.randint(0, 9),))
        targets = offsets[sources] + (torch.rand(len(sources)) * sizes[graph_of[sources]]).long()
        labels = torch.randint(4, (8,))
        batches.append((torch.randn(len(graph_of), 16), torch.stack([sources, targets]), graph_of, labels))
    model = GraphNetwork()
    yield None
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch in batches:
        nodes, edges, graph_of, labels = (part.to(device) for part in batch)
        yield minimize(optimizer, F.cross_entropy(model(nodes, edges, graph_of, len(labels)), labels))


# ---- Inference ----
@torch.no_grad()
def image_batches(device: str, steps: int) -> Values:
    """Inference of a convolutional network, 1 to 40 images of 32 x 32 in each step; each result is read."""
    draw = random.Random(4)
    batches = [torch.randn(draw.randint(1, 40), 3, 32, 32) for _ in range(steps)]
    layers, channels = [], 3
    for out in (16, 32, 64):
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        channels = out
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10), nn.Softmax(-1)).eval()
    yield None
    model.to(device)
    for batch in batches:
        yield model(batch.to(device)).amax(-1).cpu()


def generate(device: str, steps: int, cache: str) -> Values:
    """64 new tokens for each prompt, the most likely ones, by `generate` of a GPT-2 (6 layers, 384 wide)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = {"vocab_size": 2000, "bos_token_id": 0, "eos_token_id": None}
    config = GPT2Config(n_layer=6, n_head=6, n_embd=384, initializer_range=0.2, **tokens)
    model = GPT2LMHeadModel(config).eval()
    prompts = [torch.randint(1, 2000, (1, 11 + 8 * step)) for step in range(steps)]
    options = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0, "cache_implementation": cache}
    yield None
    model.to(device)
    for prompt in prompts:
        prompt = prompt.to(device)
        yield model.generate(prompt, attention_mask=torch.ones_like(prompt), **options).cpu()


def generate_dynamic(device: str, steps: int) -> Values:
    """Hugging Face `generate` of a GPT-2 (6 layers, 384 wide), 64 new tokens a step, a longer prompt in each step."""
    return generate(device, steps, "dynamic")


def generate_static(device: str, steps: int) -> Values:
    """The same with a static cache."""
    return generate(device, steps, "static")


# ---- Numbers that are read ----
@torch.no_grad()
def rollout(device: str, steps: int) -> Values:
    """A tiny policy; each action is read, gives the next state in Python, and is kept with the state on the device."""
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
    place, speed = 1.0, 0.0
    yield None
    policy.to(device)
    states, actions = torch.zeros(steps, 4, device=device), torch.zeros(steps, dtype=torch.long, device=device)
    for step in range(steps):
        states[step] = torch.tensor([place, speed, step % 10 / 10, 1.0], device=device)
        actions[step] = policy(states[step]).argmax()
        action = actions[step].item()
        speed = 0.9 * speed + 0.3 * (action - 1) - 0.1 * place
        place = 0.9 * place + 0.1 * speed
        yield place
    yield states
    yield actions


@torch.no_grad()
def masks(device: str, steps: int) -> Values:
    """Boolean indexing, masked_select, nonzero and unique of new values in each step."""
    batches = [torch.randn(200, 24) for _ in range(steps)]
    weight = torch.randn(24, 24)
    yield None
    weight = weight.to(device)
    for batch in batches:
        x = torch.tanh(batch.to(device) @ weight)
        kept = x[x[:, 0] > 0]
        large = kept.masked_select(kept > 0.5)
        rows = torch.nonzero(kept[:, 1] > 0.5)[:, 0]
        kinds, counts = torch.unique((kept * 3).round().int(), return_counts=True)
        yield torch.stack([large.mean(), kept[rows].square().sum(), (kinds * counts).sum() / counts.sum()]).cpu()


def shapes_of_many() -> list[tuple[int, int]]:
    """5,041 distinct shapes."""
    shapes = [(rows, columns) for rows in range(1, 72) for columns in range(1, 72)]
    random.Random(5).shuffle(shapes)
    return shapes


def many(device: str, steps: int) -> Values:
    """A norm, a product, a softmax and their gradient, of another shape, 1 to 71 by 1 to 71, in each step; all read."""
    yield None
    for rows, columns in shapes_of_many()[:steps]:
        x = torch.randn(rows, columns).to(device).requires_grad_()
        y = F.gelu(F.layer_norm(x, x.shape[1:]) + x)
        loss = ((y @ y.t()).softmax(-1) @ y).square().mean()
        loss.backward()
        yield torch.stack([loss.detach(), x.grad.square().sum()]).cpu()


@dataclass(frozen=True)
class Case:
    """A program, and what its cold run may cost: beside eager, and in compiled programs."""

    run: Callable[[str, int], Values]
    steps: int
    first: int  # steps that the figures of the later ones leave out
    ratio: float | None
    compiles: int | None
    library: str | None = None  # that it needs beside PyTorch


CASES = {
    case.run.__name__: case
    for case in (
        Case(sentences, 60, 20, 1.3, 6),
        Case(image_batches, 100, 33, 1.2, 4),
        Case(generate_dynamic, 2, 1, 1.2, 10, "transformers"),
        Case(generate_static, 2, 1, 1.2, 10, "transformers"),
        Case(image_sizes, 60, 20, 1.3, 6),
        Case(rollout, 600, 200, 1.3, 12),
        Case(masks, 60, 20, 2.0, 8),
        Case(graphs, 60, 20, 1.5, 6),
        Case(many, 5000, 200, None, None),
    )
}


# ---- A run ----
def numbers_of(values: list) -> list[float]:
    """All numbers in the values, which are waited for."""
    return [number for value in values for number in torch.as_tensor(value, dtype=torch.float64).flatten().tolist()]


def resident() -> dict[str, float]:
    """This process's memory in MB, now and at its peak."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return {name: int(lines[key].split()[0]) / 1024 for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))}


def counts() -> dict[str, float]:
    """What the device has counted since the process began."""
    import torch_xla.debug.metrics as met

    names = ("UncachedCompile", "CachedCompile", "ReplannedProgram", "PersistentCacheHit")
    compiling = met.metric_data("CompileTime")
    fallbacks = set(met.executed_fallback_ops()) - {"aten::_local_scalar_dense"}
    return {
        **{name: met.counter_value(name) or 0 for name in names},
        "CompileTime": compiling[1] / 1e9 if compiling else 0.0,
        "fallbacks": sum(met.counter_value(name) for name in fallbacks),
    }


def measure(case: Case, device: str, steps: int) -> dict:
    """The values of a run, and its figures: times, memory, what the device counted."""
    values, found = case.run(device, steps), []
    next(values)
    before, worked, start = resident(), time.process_time(), time.perf_counter()
    middle, middle_time = before, start
    for value in values:
        found.append(value)
        if len(found) == min(case.first, steps - 1):
            numbers_of([value])
            middle, middle_time = resident(), time.perf_counter()
    numbers = numbers_of(found)
    end, working, after = time.perf_counter(), time.process_time(), resident()
    figures = {
        "seconds": end - start,
        "later_seconds": end - middle_time,
        "cpu_seconds": working - worked,
        "grown_mb": after["now"] - before["now"],
        "later_grown_mb": after["now"] - middle["now"],
        "peak_mb": after["peak"],
    }
    return {"values": numbers, "figures": figures | (counts() if device == "xla" else {})}


def main(name: str, device: str, steps: str, threads: str) -> None:
    """Prints what a run of a case took."""
    import torch._dynamo  # optimizers import it when the first one is made

    if device == "xla":
        import torch_xla  # noqa: F401
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    print(json.dumps(measure(CASES[name], device, int(steps))))


if __name__ == "__main__":
    main(*sys.argv[1:])
