"""`torch.xla.random`: seeds, states and generators of the devices."""

import torch

from .. import _XLAC
from ._utils import _existing

SEED_MASK = 2**64 - 1  # seeds and offsets of the generators are that wide


def manual_seed_all(seed: int) -> None:
    """Sets the seed of all devices. torch.manual_seed calls it."""
    _XLAC._xla_set_seed_of_all(int(seed) & SEED_MASK)


def manual_seed(seed: int) -> None:
    """Sets the seed of the current device."""
    _XLAC._xla_set_rng_seed(int(seed) & SEED_MASK)


def seed_all() -> None:
    """Takes a seed from the system for each device."""
    for generator in _get_generators():
        generator.seed()


def seed() -> None:
    """Takes a seed from the system for the current device."""
    _get_generator(None).seed()


def initial_seed() -> int:
    """The current device's seed."""
    return _get_generator(None).initial_seed()


def _get_generator(device) -> torch.Generator:
    """The default generator of the device."""
    return _XLAC._xla_default_generator(_existing(device))


def _get_generators() -> tuple[torch.Generator, ...]:
    return tuple(_get_generator(index) for index in range(_XLAC._xla_num_devices()))


def get_rng_state(device="xla") -> torch.Tensor:
    """The random state as a uint8[16] tensor on the CPU."""
    return _get_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device="xla") -> None:
    """Restores what get_rng_state() returned. Raises RuntimeError for a state of another size."""
    _get_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The random states of all devices."""
    return [generator.get_state() for generator in _get_generators()]


def set_rng_state_all(new_states) -> None:
    """Restores what get_rng_state_all() returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
