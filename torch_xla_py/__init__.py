"""The name of torch_xla's Python part in its first releases; each module here is torch_xla's present one."""

import importlib
import sys

import torch_xla  # noqa: F401 (registers the device)

_MODULES = {
    "data_parallel": "torch_xla.distributed.data_parallel",
    "parallel_loader": "torch_xla.distributed.parallel_loader",
    "utils": "torch_xla.utils.utils",
    "xla_model": "torch_xla.core.xla_model",
    "xla_multiprocessing": "torch_xla.distributed.xla_multiprocessing",
}

for _old, _new in _MODULES.items():
    globals()[_old] = sys.modules[f"{__name__}.{_old}"] = importlib.import_module(_new)
