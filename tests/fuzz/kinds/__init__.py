"""The kinds of random programs, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.kinds import (
    attention,
    checkpointing,
    einsum,
    foreach,
    forms,
    indexing,
    modules,
    offsets,
    promotion,
    sharing,
    sizes,
    threads,
    views,
)


@dataclass(frozen=True)
class Kind:
    """How programs are drawn and compared.

    Attributes:
        generate: the lines of the program of a seed.
        tolerance: see play.find_difference.
        layout: strides and storage offsets must agree too.
    """

    generate: Callable[[int], list[str]]
    tolerance: float = 1e-5
    layout: bool = True


KINDS = {
    "views": Kind(views.generate),
    "threads": Kind(threads.generate),
    "promotion": Kind(promotion.generate),
    "indexing": Kind(indexing.generate),
    "forms": Kind(forms.generate),
    "sharing": Kind(sharing.generate),
    "foreach": Kind(foreach.generate),
    "einsum": Kind(einsum.generate, tolerance=1e-4, layout=False),
    "attention": Kind(attention.generate, tolerance=1e-4, layout=False),
    "modules": Kind(modules.generate, tolerance=1e-4, layout=False),
    "checkpointing": Kind(checkpointing.generate),
    "sizes": Kind(sizes.generate, tolerance=1e-4, layout=False),
    "offsets": Kind(offsets.generate, tolerance=1e-4, layout=False),
}
