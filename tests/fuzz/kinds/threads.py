"""Two random programs of views and in-place writes that record at the same time, a thread each."""

from tests.fuzz.kinds import views


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    first, second = views.generate(2 * seed, 15), views.generate(2 * seed + 1, 15)
    return [f"plays = together({first!r}, {second!r})"]
