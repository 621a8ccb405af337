"""Random einsum equations: up to three operands, repeated letters, ellipses, implicit and explicit results."""

from tests.fuzz.draw import Draw

SIZES = {"a": 2, "b": 3, "c": 4, "d": 1, "e": 5}


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("einsum", seed)
    grad = draw.maybe(0.4)
    ellipsis = draw.maybe(0.25)
    terms, operands = [], []
    for _ in range(draw.randint(1, 3)):
        letters = draw.choices("abcde", k=draw.randint(1, 3))
        shape = tuple(SIZES[letter] for letter in letters)
        dots = ellipsis and draw.maybe(0.8)
        terms.append(("..." if dots else "") + "".join(letters))
        operands.append(draw.tensor((2, *shape) if dots else shape, grad=grad))
    equation = ",".join(terms)
    if draw.maybe(0.8):
        used = sorted({letter for letter in equation if letter in SIZES})
        kept = draw.sample(used, draw.randint(0, len(used)))
        equation += "->" + ("..." if "..." in equation else "") + "".join(kept)
    draw.line(f"y = torch.einsum({equation!r}, {', '.join(operands)})")
    if grad:
        draw.line("backward()")
    return draw.lines
