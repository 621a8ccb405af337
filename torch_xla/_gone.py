"""Names of torch_xla 2.x that are gone: their use raises one sentence that says what to write instead."""

import sys
from importlib.abc import MetaPathFinder

_PAGED = "take the keys and values of the pages by index_select() and call scaled_dot_product_attention()"
_PALLAS = "kernels of Pallas run in JAX alone; write the function in PyTorch's operations, which fuse"
_DYNAMIC = "torch_xla.experimental.bucketing.bucketed() pads to few sizes"
_QUANTIZED = "use torch_xla.experimental.xla_quantized_matmul.XlaQuantizedLinear"
_IMPORTED = "remove the import: it has had no effect since torch_xla 2.5"

# By module: what to do instead of a name.
_NAMES = {
    "torch_xla.core.xla_builder": {
        "call_jax": "write the function in PyTorch's operations, or give its HloModuleProto to "
        "computation_from_module_proto()",
        "XlaCallable": "torch_xla.compile() records a function once",
    },
    "torch_xla.experimental.assume_pure": {
        "j2t_autograd": "torch.autograd.Function gives a function a gradient of its own",
    },
    "torch_xla.experimental.custom_kernel": {
        "paged_attention": _PAGED,
        "ragged_paged_attention": _PAGED,
        "multi_queries_paged_attention": _PAGED,
        "quantized_matmul_int8": _QUANTIZED,
        "make_kernel_from_pallas": _PALLAS,
        "trace_pallas": _PALLAS,
    },
}
# What to do instead of a module.
_MODULES = {
    "torch_xla._dynamo.dynamo_backend2": "torch.compile() with its default backend records a graph once",
    "torch_xla.distributed.xrt_init": "call torch.distributed.init_process_group('xla', init_method='xla://')",
    "torch_xla.experimental.dynamo_mark_sharding": _IMPORTED,
    "torch_xla.experimental.dynamo_set_buffer_donor": _IMPORTED,
    "torch_xla.experimental.pallas_kernels": _PALLAS,
    "torch_xla.experimental.quantized": _QUANTIZED,
    "torch_xla.experimental.unbounded_dynamism_export": _DYNAMIC,
    "torch_xla.experimental.xla_dynamic_reshape_ops": _DYNAMIC,
    "torch_xla.experimental.xla_mlir_debuginfo": "remove it: the program's text has the user's lines",
    "torch_xla.tf_saved_model_integration": "torch_xla.stablehlo saves a model as StableHLO",
    "torch_xla.torch_xla": "import torch_xla: it has these names",
    "torch_xla.utils.checkpoint_tagger": "torch_xla.utils.checkpoint.checkpoint() needs no tags",
    "torch_xla.utils.gcsfs": "torch.save() and torch.load() take a file that fsspec.open() has opened",
}


def _text(name: str, instead: str) -> str:
    return f"{name} of torch_xla 2.x does not exist here: {instead} (docs/coming_from_torch_xla.md)"


class _Finder(MetaPathFinder):
    """Asked after all others: says what to do instead of a module that is gone."""

    def find_spec(self, fullname, path=None, target=None):
        """Raises ModuleNotFoundError for such a module; else there is none."""
        if fullname in _MODULES:
            # Without `name`: `from package import module` swallows an error that has the module's.
            raise ModuleNotFoundError(_text(fullname, _MODULES[fullname]))


def set_up() -> None:
    """Makes imports of modules that are gone say what to do instead."""
    sys.meta_path.append(_Finder())


def refuse(module: str, name: str):
    """Of a module's attribute that is not there. Raises ImportError with what to do instead, or AttributeError.

    `from module import name` shows the text of an ImportError alone, and programs that do without the name catch it.
    """
    if instead := _NAMES.get(module, {}).get(name):
        raise ImportError(_text(f"{module}.{name}", instead), name=module)
    raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
