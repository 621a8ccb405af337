"""What the kinds of random programs share: a seeded source of shapes, numbers and input tensors in many layouts."""

import random

FLOATS = ["float32", "float64", "bfloat16", "float16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
# On rows of 6 numbers.
LAYERS = ["nn.Linear(6, 6)", "nn.Linear(6, 6)", "nn.Tanh()", "nn.GELU()", "nn.ReLU()", "nn.LayerNorm(6)"]
LAYERS += ["nn.BatchNorm1d(6)", "nn.Dropout(0.0)", "nn.PReLU()", "nn.Softplus()"]
LAYERS += ["nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6))"]
OPTIMIZERS = [
    "SGD({p}, lr=0.1)",
    "SGD({p}, lr=0.1, momentum=0.9)",
    "SGD({p}, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)",
    "SGD({p}, lr=0.1, momentum=0.5, dampening=0.1, maximize=True, foreach=True)",
    "Adam({p}, lr=0.01)",
    "Adam({p}, lr=0.01, foreach=True, weight_decay=0.1)",
    "Adam({p}, lr=0.01, fused=True)",
    "AdamW({p}, lr=0.01, amsgrad=True)",
    "AdamW({p}, lr=0.01, foreach=False)",
    "RMSprop({p}, lr=0.01, momentum=0.5, centered=True)",
    "Adagrad({p}, lr=0.1, lr_decay=0.1)",
    "Adadelta({p})",
    "Adamax({p}, lr=0.01)",
    "NAdam({p}, lr=0.01)",
    "RAdam({p}, lr=0.01)",
    "ASGD({p}, lr=0.1)",
    "Rprop({p}, lr=0.01)",
]
# The others' steps have the size of lr however small a gradient is: around batch norm some are 0 but for rounding.
SCALED = ("SGD", "ASGD")
NUMBERS = ["0", "1", "-1", "2", "3", "0.5", "-1.5", "2.0", "True", "False", "0.1"]


class Draw(random.Random):
    """Random choices and the statements drawn so far. `risk`: some arguments may be out of their range."""

    def __init__(self, kind: str, seed: int):
        super().__init__(f"{kind} {seed}")
        self.lines: list[str] = []
        self.risk = False
        self._inputs = 0

    def maybe(self, probability: float = 0.5) -> bool:
        """True with this probability."""
        return self.random() < probability

    def shape(self, rank: int | None = None, low: int = 1, high: int = 5) -> tuple[int, ...]:
        """Sizes in [low, high] of `rank` (0 to 4 if None) dims."""
        return tuple(self.randint(low, high) for _ in range(self.randint(0, 4) if rank is None else rank))

    def tensor(
        self, shape: tuple, dtype: str = "float32", grad: bool = False, dense: bool = False, prefix: str = "x"
    ) -> str:
        """Adds an input to the program. Returns an expression of this shape: it or, unless `dense`, a view of it.

        Inputs whose `prefix` begins with `_` are not compared.
        """
        stored, view = (shape, "") if dense or self.maybe(0.6) else self._layout(shape)
        name = f"{prefix}{self._inputs}"
        self._inputs += 1
        self.lines.append(f"{name} = make_input({self.randrange(1 << 30)}, {stored}, {dtype!r}, {grad})")
        return name + view

    def _layout(self, shape: tuple) -> tuple[tuple, str]:
        """A larger or permuted shape and the view of it that has `shape`."""
        if not shape:
            return (3,), "[1]"
        dim = self.randrange(len(shape))
        larger = list(shape)
        kind = self.randrange(5)
        if kind == 0:
            return tuple(reversed(shape)), f".permute({list(reversed(range(len(shape))))})"
        if kind == 1:
            larger[dim] *= 2
            return tuple(larger), f"[{':, ' * dim}::2]"
        if kind == 2:
            larger[dim] += 2
            return tuple(larger), f".narrow({dim}, 1, {shape[dim]})"
        if kind == 3 and len(shape) in (4, 5):
            return shape, f".to(memory_format=torch.channels_last{'' if len(shape) == 4 else '_3d'})"
        larger[dim] = 1
        return tuple(larger), f".expand{tuple(shape)}"

    def line(self, text: str) -> None:
        """Adds a statement."""
        self.lines.append(text)

    def layers(self, count: int) -> list[str]:
        """Modules on rows of 6 numbers."""
        return [self.choice(LAYERS) for _ in range(count)]

    def optimizer(self, parameters: str, module: str = "") -> str:
        """A constructor, which suits the layers of `module`."""
        rows = [row for row in OPTIMIZERS if row.startswith(SCALED)] if "BatchNorm" in module else OPTIMIZERS
        return f"torch.optim.{self.choice(rows).format(p=parameters)}"

    def training(self, module: str, groups: str = "m.parameters()") -> None:
        """Adds a module `m`, its optimizer `o`, which `_make(m)` makes, and a batch: `x0` and what is wanted, `x1`."""
        self.line(f"m = make_module({self.randrange(1000)}, {module!r}, 'float32')")
        self.line(f"_make = lambda m: {self.optimizer(groups, module)}; o = _make(m)")
        batch = self.tensor((4, 6), dense=True, prefix="_i"), self.tensor((4, 6), prefix="_i")
        # Of such numbers gradients are no sums that are 0 but for rounding.
        self.line("x0, x1 = {} * 1.01, {} + 0.07".format(*batch))

    def number(self) -> str:
        """A Python number as text."""
        return self.choice(NUMBERS)


def without_zeros(divisor: str) -> str:
    """For integer divisions: a zero is told when the device runs, and in place eager has written elements by then."""
    if divisor in NUMBERS:
        return divisor if float(eval(divisor)) else "3"
    return f"torch.where({divisor} == 0, 1, {divisor})"
