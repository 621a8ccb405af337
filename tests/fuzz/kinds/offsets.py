"""A loop over parts of buffers by Python numbers, which differ in each turn, so that one program serves all turns."""

from tests.fuzz.draw import Draw

TURNS = 6
ROW = ["t", "t % 3", "8 - t", "t * 5 % 7", "t + 2", "4"]  # of the nine matrices in a buffer
LINE = ["t", "5 - t", "t % 2", "3"]  # of the six lines of a matrix
FIRST = ["t", "6 - t", "t % 2 * 3", "1"]  # of up to three matrices
UNARY = "neg abs sigmoid tanh relu square".split()
BINARY = "add sub mul maximum".split()


class Program:
    """The statements of a turn. Values are matrices of (6, 6), buffers have nine of them."""

    def __init__(self, seed: int):
        self.draw = Draw("offsets", seed)
        self.start: list[str] = []
        self.turn: list[str] = []
        self.values = 0

    def add_buffer(self) -> None:
        """Nine matrices, in one of several orders of memory."""
        order = self.draw.choice(["", "", ".transpose(1, 2)", ".transpose(0, 1)"])
        grown = {".transpose(0, 1)": (6, 9, 6)}.get(order, (9, 6, 6))
        seed = self.draw.randrange(1 << 30)
        self.start.append(f"b{len(self.start)} = make_input({seed}, {grown}, 'float32', False){order}")

    def buffer(self) -> str:
        return f"b{self.draw.randrange(len(self.start))}"

    def value(self) -> str:
        """A value that is there, or a part of a buffer."""
        return f"v{self.draw.randrange(self.values)}" if self.values and self.draw.maybe(0.6) else self.part()

    def part(self) -> str:
        """Of (6, 6), or of what is broadcast to it."""
        pick, name = self.draw.choice, self.buffer()
        first = pick(FIRST)
        return pick(
            [
                f"{name}[{pick(ROW)}]",
                f"{name}[{pick(ROW)}]",
                f"{name}[{pick(ROW)}].t()",
                f"{name}[{first}:{first} + 3].sum(0)",
                f"{name}[{first}:{first} + 2].mean((0, 1))",
                f"{name}[{pick(ROW)}, {pick(LINE)}]",
                f"{name}[{pick(ROW)}, :, {pick(LINE)}, None]",
                f"{name}[{first}:{first} + 3][1, {pick(LINE)}]",
                f"{name}[{pick(ROW)}, {pick(LINE)}, {pick(LINE)}]",
                f"{name}.select(1, {pick(LINE)})[:6]",
                f"{name}.flatten(1)[{pick(ROW)}].view(6, 6)",
            ]
        )

    def add_statement(self) -> None:
        draw = self.draw
        if draw.maybe(0.35):
            self.turn.append(self.draw_write())
            return
        text = draw.choice(
            [
                f"torch.{draw.choice(UNARY)}({self.value()})",
                f"torch.{draw.choice(BINARY)}({self.value()}, {self.value()})",
                f"torch.{draw.choice(BINARY)}({self.value()}, {self.value()})",
                f"{self.value()}.expand(6, 6) @ {self.value()}.expand(6, 6) / 8",
                f"{self.value()}.expand(6, 6).softmax(-1)",
                f"{self.value()}.clone()",
            ]
        )
        self.turn.append(f"v{self.values} = ({text}).expand(6, 6)")
        self.values += 1

    def draw_write(self) -> str:
        """What is written is a copy: eager's own copy between places that overlap reads what it has written."""
        pick, name, first = self.draw.choice, self.buffer(), self.draw.choice(FIRST)
        return pick(
            [
                f"{name}[{pick(ROW)}] = {self.value()}.clone()",
                f"{name}[{pick(ROW)}] = {self.value()}.clone()",
                f"{name}[{first}:{first} + 2] = {self.value()}.clone()",
                f"{name}[{pick(ROW)}].mul_(0.5)",
                f"{name}[{pick(ROW)}, {pick(LINE)}].add_({self.value()}.mean())",
                f"{name}[{pick(ROW)}].t().copy_({self.value()}.clone())",
                f"{name}[:, {pick(LINE)}] *= 0.75",
            ]
        )


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    program = Program(seed)
    for _ in range(program.draw.randint(1, 2)):
        program.add_buffer()
    for _ in range(program.draw.randint(2, 7)):
        program.add_statement()
    lines = list(program.start)
    for turn in range(TURNS):
        lines += [f"t = {turn}", *program.turn, "sync()"]
    return lines
