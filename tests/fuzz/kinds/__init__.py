"""The kinds of random programs, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.kinds import (
    attention,
    autocast,
    checkpointing,
    complexes,
    devices,
    distributions,
    einsum,
    failures,
    foreach,
    forms,
    functions,
    hooks,
    indexing,
    integers,
    layouts,
    modules,
    offsets,
    optimizers,
    promotion,
    reading,
    saving,
    sharing,
    sizes,
    subclasses,
    threads,
    transforms,
    views,
)

FEW = 20  # of the kinds whose programs are long


@dataclass(frozen=True)
class Kind:
    """How programs are drawn and compared.

    Attributes:
        generate: the lines of the program of a seed.
        tolerance: see play.find_difference.
        layout: strides and storage offsets must agree too.
        devices: how many the process must have.
        programs: how many the tests play.
        raises: programs have indices that make a run fail, which those of plugins cannot.
    """

    generate: Callable[[int], list[str]]
    tolerance: float = 1e-5
    layout: bool = True
    devices: int = 1
    programs: int = 100
    raises: bool = False


KINDS = {
    "views": Kind(views.generate, programs=1000),
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
    "autocast": Kind(autocast.generate, tolerance=1e-4, layout=False, programs=FEW),
    "complexes": Kind(complexes.generate, tolerance=1e-4, programs=FEW),
    "devices": Kind(devices.generate, tolerance=1e-4, layout=False, devices=2, programs=FEW),
    "distributions": Kind(distributions.generate, tolerance=1e-3, layout=False, programs=FEW),
    "failures": Kind(failures.generate, tolerance=1e-4, programs=FEW, raises=True),
    "functions": Kind(functions.generate, tolerance=1e-4, programs=FEW),
    "hooks": Kind(hooks.generate, tolerance=1e-4, layout=False, programs=FEW),
    "integers": Kind(integers.generate, programs=FEW),
    "layouts": Kind(layouts.generate, tolerance=1e-4, layout=False, programs=FEW),
    "optimizers": Kind(optimizers.generate, tolerance=1e-4, layout=False, programs=FEW),
    "reading": Kind(reading.generate, tolerance=1e-4, programs=FEW),
    "saving": Kind(saving.generate, tolerance=1e-4, layout=False, programs=FEW),
    "subclasses": Kind(subclasses.generate, tolerance=1e-4, programs=FEW),
    "transforms": Kind(transforms.generate, tolerance=1e-3, layout=False, programs=FEW),
}
