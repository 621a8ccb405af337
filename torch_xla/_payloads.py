"""Messages of replicas in a meeting, as bytes: encoded without code, and signed if the run has a secret.

Anybody who reaches the run's store may write there. Constructing a class can run code, so a value may name a class in
two cases only: a few harmless classes, or a value signed with the run's secret.
"""

import ctypes
import io
import pickle
import sys

import torch

from . import _XLAC

SECRET = "XLA_RUN_SECRET"
_UNSIGNED = b"."  # a store takes no empty values


# ---- Signatures ----
def _secret() -> bytes:
    return _XLAC._env_text("XLA_RUN_SECRET").encode()


def has_secret() -> bool:
    """Whether the processes of the run share a secret: those of xmp.spawn do."""
    return bool(_secret())


def _sign(key: str, payload: bytes) -> bytes:
    import hmac  # not before it is needed: torch_xla is imported with torch

    return hmac.digest(_secret(), key.encode() + b"\0" + payload, "sha256") if has_secret() else _UNSIGNED


def seal(key: str, payload: bytes) -> bytes:
    """The payload in its form for the store, under this key."""
    return _sign(key, payload) + payload


def unseal(key: str, sealed: bytes) -> bytes:
    """The payload of a sealed value. Raises RuntimeError if it was not sealed with this run's secret for this key."""
    import hmac

    size = len(_sign("", b""))
    signature, payload = sealed[:size], sealed[size:]
    if not hmac.compare_digest(signature, _sign(key, payload)):
        raise RuntimeError(
            f"the run's store has a value at {key!r} that is not signed with {SECRET}: give all processes of "
            "the run, and only them, the same secret"
        )
    return payload


# ---- Values ---- Their construction runs no foreign code. The values of a defaultdict are of these classes.
_PLAIN = {
    *(
        ("builtins", name)
        for name in "bytearray complex dict float frozenset int list range set slice str tuple".split()
    ),
    *(("collections", name) for name in "Counter OrderedDict defaultdict deque".split()),
    ("torch", "Size"),
    ("torch", "device"),
}


def _bytes_of(tensor: torch.Tensor) -> bytes:
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(dense.data_ptr(), dense.nbytes)


class _Writer(pickle.Pickler):
    """Writes tensors and NumPy's arrays and numbers as type, shape and bytes; pickle writes all else."""

    def persistent_id(self, value: object) -> tuple | None:
        kind = type(value)
        if kind in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized:
            name = str(value.dtype).removeprefix("torch.")
            return kind.__name__, name, tuple(value.shape), _bytes_of(value), value.requires_grad
        numpy = sys.modules.get("numpy")
        is_array = numpy is not None and (kind is numpy.ndarray or isinstance(value, numpy.generic))
        if is_array and not value.dtype.hasobject and value.dtype.fields is None:
            name = "ndarray" if kind is numpy.ndarray else "generic"
            return name, value.dtype.str, tuple(value.shape), value.tobytes(), False
        return None


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, takes_any: bool):
        super().__init__(file)
        self._takes_any = takes_any

    def persistent_load(self, pid: tuple) -> object:
        kind, name, shape, data, requires_grad = pid
        if kind in ("ndarray", "generic"):
            import numpy

            array = numpy.frombuffer(data, numpy.dtype(name)).reshape(shape).copy()
            return array if kind == "ndarray" else array[()]
        dtype = getattr(torch, name)
        tensor = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensor = tensor.reshape(shape)
        return (
            torch.nn.Parameter(tensor, requires_grad) if kind == "Parameter" else tensor.requires_grad_(requires_grad)
        )

    def find_class(self, module: str, name: str) -> object:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if self._takes_any or is_dtype or (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise RuntimeError(
            f"a replica sent a {module}.{name}, whose reading may run code. Send tensors, NumPy's arrays, numbers, "
            f"texts, and lists, tuples, sets and dicts of them, or set {SECRET} to a text that only this run's "
            "processes know"
        )


def encode(value: object) -> bytes:
    """The bytes for decode(). Tensors are on the CPU."""
    file = io.BytesIO()
    _Writer(file, protocol=5).dump(value)
    return file.getvalue()


def decode(data: bytes, takes_any: bool) -> object:
    """The value given to encode().

    Args:
        takes_any: accept all classes, which may run code.

    Raises RuntimeError for a value of another class than the harmless ones.
    """
    return _Reader(io.BytesIO(data), takes_any).load()
