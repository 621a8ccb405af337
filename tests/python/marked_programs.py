"""Random programs of marked tensors: the same program on marked tensors over processes, and on plain CPU tensors."""

import random

import torch
import torch.nn.functional as F

import torch_xla.distributed.spmd as xs

SIZES = (1, 2, 3, 4, 5, 6, 8, 12)
GRIDS = {2: [(2,), (1, 2), (2, 1)], 4: [(4,), (1, 4), (2, 2), (2, 1, 2)]}


class Program:
    """A program of a seed: inputs, their marks, and steps that are functions of the values so far."""

    def __init__(self, seed: int, size: int):
        self.random = random.Random(seed)
        self.grid = self.random.choice(GRIDS[size])
        self.axes = "abc"[: len(self.grid)]
        generator = torch.Generator().manual_seed(seed)
        shapes = [[self.random.choice(SIZES) for _ in range(self.random.randint(1, 4))] for _ in range(3)]
        self.inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        self.specs = [self.spec(t.dim()) if self.random.random() < 0.8 else None for t in self.inputs]
        self.names: list[str] = []
        self.steps = self.choose_steps()

    def spec(self, dims: int) -> tuple:
        """A random partition_spec: names, numbers, tuples of axes, None."""
        spec: list = [None] * dims
        axes = list(range(len(self.axes)))
        self.random.shuffle(axes)
        while axes and self.random.random() < 0.8:
            taken = [axes.pop() for _ in range(min(len(axes), self.random.choice((1, 1, 2))))]
            named = tuple(self.random.choice((axis, self.axes[axis])) for axis in taken)
            free = [dim for dim in range(dims) if spec[dim] is None]
            if not free:
                break
            spec[self.random.choice(free)] = named if len(named) > 1 else named[0]
        return tuple(spec)

    def choose_steps(self) -> list:
        """Chooses the steps by running them on values of the CPU."""
        values, steps = [t.clone() for t in self.inputs], []
        for _ in range(self.random.randint(3, 8)):
            name, step = self.choose(values)
            try:
                value = step(values)
            except (RuntimeError, IndexError):
                continue
            if value.numel() > 4096 or not value.isfinite().all():
                continue
            self.names.append(name)
            steps.append(step)
            values.append(value)
            if self.random.random() < 0.25:
                spec, at = self.spec(value.dim()), len(values) - 1
                steps.append((spec, at))
        return steps

    def choose(self, values: list):
        """A named step."""
        pick = self.random
        i, j = (max(pick.randrange(len(values)), pick.randrange(len(values))) for _ in range(2))
        x = values[i]
        dim = pick.randrange(x.dim()) if x.dim() else 0
        size = x.shape[dim] if x.dim() else 1
        other = pick.randrange(x.dim()) if x.dim() else 0
        begin = pick.randrange(size)
        index = torch.tensor([pick.randrange(size) for _ in range(pick.randint(1, 5))])
        width = pick.choice(SIZES)
        weight = torch.linspace(-1, 1, width * (x.shape[-1] if x.dim() else 1), dtype=torch.float64).view(width, -1)

        def like(t, value):
            return t.to(value.device) if value.device.type == "xla" else t

        steps = {
            "tanh": lambda v: v[i].tanh(),
            "gelu": lambda v: F.gelu(v[i]),
            "add": lambda v: v[i] + v[j],
            "mul": lambda v: v[i] * v[j],
            "sub number": lambda v: 2 - v[i],
            "outer": lambda v: v[i].reshape(-1, 1)[:40] * v[j].reshape(1, -1)[:, :40],
            "matmul": lambda v: v[i] @ v[j],
            "matmul of transposed": lambda v: v[i] @ v[i].transpose(-1, -2),
            "linear": lambda v: F.linear(v[i], like(weight, v[i])),
            "transpose": lambda v: v[i].transpose(dim, other),
            "flatten": lambda v: v[i].flatten(),
            "join dims": lambda v: v[i].flatten(0, 1),
            "split a dim": lambda v: v[i].unflatten(dim, (2, -1)),
            "reshape": lambda v: v[i].reshape(-1, v[i].shape[0]),
            "unsqueeze": lambda v: v[i].unsqueeze(dim),
            "squeeze": lambda v: v[i].squeeze(),
            "expand": lambda v: v[i].unsqueeze(0).expand(3, *v[i].shape),
            "narrow": lambda v: v[i].narrow(dim, begin, size - begin),
            "select": lambda v: v[i].select(dim, begin),
            "every second": lambda v: v[i][..., ::2],
            "chunk": lambda v: v[i].chunk(2, dim)[-1],
            "cat": lambda v: torch.cat([v[i], v[i] * 2], dim),
            "stack": lambda v: torch.stack([v[i], v[i].tanh()], dim),
            "sum": lambda v: v[i].sum(dim),
            "mean": lambda v: v[i].mean(dim, keepdim=True),
            "mean of all": lambda v: v[i] - v[i].mean(),
            "variance": lambda v: v[i].var(dim, correction=0),
            "amax": lambda v: v[i].amax(dim),
            "max": lambda v: v[i].max(dim).values,
            "logsumexp": lambda v: v[i].logsumexp(dim),
            "softmax": lambda v: v[i].softmax(dim),
            "log_softmax": lambda v: v[i].log_softmax(-1),
            "layer_norm": lambda v: F.layer_norm(v[i], v[i].shape[-1:]),
            "index_select": lambda v: v[i].index_select(dim, like(index, v[i])),
            "embedding": lambda v: F.embedding(like(index, v[i]), v[i]),
            "index": lambda v: v[i][like(index, v[i]) % v[i].shape[0]],
            "where": lambda v: torch.where(v[i] > 0, v[i], v[i] * 0.1),
            "clamp": lambda v: v[i].clamp(-1, 1),
            "cumsum": lambda v: v[i].cumsum(dim),
            "flip": lambda v: v[i].flip(dim),
            "roll": lambda v: v[i].roll(1, dim),
            "pad": lambda v: F.pad(v[i], (1, 2)),
            "sort": lambda v: v[i].sort(dim).values,
            "tril": lambda v: v[i].tril(),
            "norm": lambda v: v[i] / (v[i].norm(dim=dim, keepdim=True) + 1),
            "einsum": lambda v: torch.einsum("...i,...j->...ij", v[i], v[i]),
            "in place": lambda v: v[i].clone().mul_(2).add_(v[i]),
            "write a row": lambda v: set_row(v[i], begin % v[i].shape[0]),
            "cross entropy": lambda v: F.cross_entropy(
                v[i], like(index, v[i])[:1].expand(v[i].shape[0]) % v[i].shape[1]
            ),
        }
        name = pick.choice(list(steps))
        return name, steps[name]

    def run(self, mesh=None) -> list[torch.Tensor]:
        """Values of all steps, and gradients of the inputs: of plain CPU tensors or, with a mesh, marked ones."""
        leaves = [t.clone() if mesh is None else t.to("xla") for t in self.inputs]
        for t, spec in zip(leaves, self.specs):
            if mesh is not None and spec is not None:
                xs.mark_sharding(t, mesh, spec)
            t.requires_grad_()
        values = list(leaves)
        for step in self.steps:
            if callable(step):
                values.append(step(values))
            elif mesh is not None and not values[step[1]].is_leaf:
                spec, at = step
                values[at] = xs.annotate_custom_sharding(values[at], mesh, spec)
        total = sum((value * value).sum() * (0.3 + 0.1 * i) for i, value in enumerate(values))
        total.backward()
        results = [*values, total, *(t.grad for t in leaves)]
        return [t.detach().cpu() for t in results]


def set_row(x: torch.Tensor, row: int) -> torch.Tensor:
    """A copy in which a row is written through a view."""
    y = x * 1
    y[row].mul_(3)
    return y


def check(seed: int, size: int) -> None:
    """A seed's program over processes has the values and gradients of one process."""
    program = Program(seed, size)
    expected = program.run()
    mesh = xs.Mesh(range(size), program.grid, tuple(program.axes))
    actual = program.run(mesh)
    for number, (ours, theirs) in enumerate(zip(actual, expected)):
        torch.testing.assert_close(
            ours,
            theirs,
            rtol=1e-6,
            atol=1e-6,
            msg=lambda text, number=number: (
                f"seed {seed}, {program.names}, {program.specs}, {program.grid}, value {number}: {text}"
            ),
        )
