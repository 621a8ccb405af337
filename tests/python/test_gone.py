"""Names of torch_xla 2.x that are gone: one sentence says what to write instead."""

import importlib
from pathlib import Path

import pytest

import torch_xla.core.xla_builder as xb
from torch_xla import _gone

NAMES = [(module, name, instead) for module, names in _gone._NAMES.items() for name, instead in names.items()]
PAGE = (Path(__file__).resolve().parents[2] / "docs/coming_from_torch_xla.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module, name, instead", NAMES)
def test_a_name(module, name, instead):
    for use in (f"from {module} import {name}", f"import {module}; {module}.{name}"):
        with pytest.raises(ImportError) as raised:
            exec(use, {})
        assert str(raised.value).startswith(f"{module}.{name} of torch_xla 2.x does not exist here: {instead}")
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("module, instead", _gone._MODULES.items())
def test_a_module(module, instead):
    package, _, name = module.rpartition(".")
    for use in (f"import {module}", f"from {package} import {name}"):
        with pytest.raises(ModuleNotFoundError, match=r"does not exist here: ") as raised:
            exec(use, {})
        assert instead in str(raised.value)


def test_other_names_are_missing_as_usual():
    with pytest.raises(AttributeError, match=r"^module 'torch_xla.core.xla_builder' has no attribute 'call_xaj'$"):
        _ = xb.call_xaj
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'torch_xla.utils.nothing'$"):
        importlib.import_module("torch_xla.utils.nothing")


def test_the_page_lists_them():
    names = [name for _, name, _ in NAMES] + [module.removeprefix("torch_xla.") for module in _gone._MODULES]
    assert [name for name in names if f"`{name}`" not in PAGE and f"`torch_xla.{name}`" not in PAGE] == []
