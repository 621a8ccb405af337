"""Changes modules of PyTorch when a program imports them: `import torch` leaves them out, as they are slow."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType

_actions: dict[str, Callable[[ModuleType], None]] = {}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the expected modules by Python's own finder."""

    def find_spec(self, fullname: str, path, target=None):
        """The module's spec with a loader that also calls the action; None for other modules."""
        action = _actions.get(fullname)
        spec = action and importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if not spec:
            return None
        load = spec.loader.exec_module

        def load_and_act(module: ModuleType) -> None:
            load(module)
            action(module)

        spec.loader.exec_module = load_and_act
        return spec


def when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """Calls `action(module)` after the import of the module with that name; at once if it is imported already."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    if not _actions:
        sys.meta_path.insert(0, _Finder())
    _actions[name] = action
