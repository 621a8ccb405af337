"""One random program played at several sizes, so that code made for one of them serves the others."""

from tests.fuzz.draw import Draw

UNARY = "neg abs exp sigmoid tanh erf relu square floor".split()  # no sin: of large numbers it multiplies rounding
BINARY = "add sub mul maximum minimum".split()
REDUCTIONS = "sum mean amax logsumexp argmin var cumsum softmax log_softmax".split()
# Of the dims a, b and c: the first ones, others, ones and zeros, the first ones again.
SIZES = [
    (3, 4, 5),
    (6, 4, 5),
    (7, 9, 2),
    (17, 33, 65),
    (2, 300, 18),
    (1, 4, 5),
    (5, 1, 1),
    (0, 4, 5),
    (4, 5, 0),
    (3, 4, 5),
]


class Program:
    """Statements over values of known dims, which are letters or "1"."""

    def __init__(self, seed: int):
        self.draw = Draw("sizes", seed)
        self.lines: list[str] = []  # variables are written "{0}v3"
        self.values: list[tuple[str, tuple[str, ...]]] = []

    def add(self, text: str, dims: tuple[str, ...]) -> None:
        """A statement that gives a value of these dims."""
        name = f"{{0}}v{len(self.values)}"
        self.lines.append(f"{name} = {text}")
        self.values.append((name, dims))

    def add_input(self) -> None:
        """Some dims of (a, b, c) in their order."""
        dims = tuple(d if self.draw.maybe(0.8) else "1" for d in "abc")[self.draw.choice([0, 0, 1, 2]) :]
        grad = self.draw.maybe(0.4)
        self.add(f"make_input({self.draw.randrange(1 << 30)}, ({', '.join(dims)},), 'float32', {grad})", dims)

    def add_statement(self) -> None:
        """An operation on values that are there."""
        kinds = [self.add_unary, self.add_unary, self.add_binary, self.add_binary, self.add_reduction, self.add_move]
        self.draw.choice([*kinds, self.add_product, self.add_norm])()

    def add_unary(self) -> None:
        name, dims = self.draw.choice(self.values)
        self.add(f"torch.{self.draw.choice(UNARY)}({name})", dims)

    def add_binary(self) -> None:
        (x, dims), (y, others) = self.draw.choice(self.values), self.draw.choice(self.values)
        if self.draw.maybe(0.3):
            y, others = self.draw.choice(["0.5", "2", f"{x}.shape[-1]"]), ()
        rank = max(len(dims), len(others))
        pairs = zip(("1",) * (rank - len(dims)) + dims, ("1",) * (rank - len(others)) + others)
        result = tuple(q if p == "1" else p for p, q in pairs)
        if all(q in ("1", r) and p in ("1", r) for p, q, r in zip(dims[::-1], others[::-1], result[::-1])):
            self.add(
                f"torch.{self.draw.choice(BINARY[:3])}({x}, {y})"
                if not others
                else f"torch.{self.draw.choice(BINARY)}({x}, {y})",
                result,
            )

    def add_reduction(self) -> None:
        name, dims = self.draw.choice(self.values)
        dim = self.draw.randrange(len(dims))
        how = self.draw.choice(REDUCTIONS)
        if how in ("cumsum", "softmax", "log_softmax"):
            self.add(f"torch.{how}({name}, {dim})", dims)
        else:
            cast = ".float()" if how == "argmin" else ""
            self.add(f"torch.{how}({name}, dim={dim}, keepdim=True){cast}", (*dims[:dim], "1", *dims[dim + 1 :]))

    def add_move(self) -> None:
        """Flips, slices by sizes, copies of a larger memory."""
        name, dims = self.draw.choice(self.values)
        dim, size = self.draw.randrange(len(dims)), f"{name}.shape"
        text = self.draw.choice(
            [
                f"{name}.flip({dim})",
                f"torch.cat([{name}, {name} * 2], {dim}).narrow({dim}, {size}[{dim}] // 2, {size}[{dim}])",
                f"{name}.transpose(0, -1).contiguous().transpose(0, -1)",
                f"{name}.reshape(-1).view({size})",
                f"F.pad({name}, (2, 0))[..., 1:-1].contiguous()",
                f"{name} + torch.arange({size}[-1], device=device)",
                f"torch.roll({name}, {size}[{dim}] // 3, {dim})",
            ]
        )
        self.add(text, dims)

    def add_norm(self) -> None:
        """A layer norm, of which nothing else is made: its results may come to lie on either side of a step."""
        name, _ = self.draw.choice(self.values)
        self.lines.append(f"{{0}}n{len(self.lines)} = F.layer_norm({name}, {name}.shape[-1:])")

    def add_product(self) -> None:
        """A batch of matrices by itself, transposed."""
        name, dims = self.draw.choice(self.values)
        if len(dims) >= 2:
            self.add(f"{name} @ {name}.mT", (*dims[:-1], dims[-2]))

    def play(self, number: int, sizes: tuple[int, ...]) -> list[str]:
        """The statements at these sizes, and a sync."""
        named = [line.format(f"p{number}_") for line in self.lines]
        return [f"a, b, c = {', '.join(map(str, sizes))}", *named, "sync()"]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    program = Program(seed)
    for _ in range(program.draw.randint(1, 3)):
        program.add_input()
    for _ in range(program.draw.randint(2, 8)):
        program.add_statement()
    lines = []
    for number, sizes in enumerate(SIZES):
        lines += program.play(number, sizes)
    return [*lines, "backward()"] if program.draw.maybe(0.5) else lines
