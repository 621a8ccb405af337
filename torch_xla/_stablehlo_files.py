"""The files of an export to StableHLO: functions/, data/ with the weights, constants/."""

import os
import re
import shutil
import tokenize
from pathlib import Path

import numpy as np
import torch

from . import _files
from ._stablehlo_bundle import StableHLOFunc, StableHLOModelBundle, tensors_of, VariableType
from ._stablehlo_meta import check_meta, check_text, read_meta, write_meta

_PARTS = ("functions", "data", "constants")
_NEW = ".new"  # a folder of incomplete files
_SAVED = ".saved"  # a folder of complete files, before they move to their places


# ---- Names ----
def _check_function_name(name: str, where: Path) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(f"{where} has the name {name!r}, which is no name of a function: use letters, digits, _ . -")


def _check_state_name(name: str, where: Path) -> None:
    """A name of the state becomes a path: it may have "/", but must not lead elsewhere."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{where} has the name {name!r}, which is no name of a file for a tensor")


# ---- Arrays ----
def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's elements; for a type that numpy lacks its bytes, as ml_dtypes writes them to files."""
    tensor = tensor.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:
        size = tensor.element_size()
        return tensor.view({1: torch.int8, 2: torch.int16}[size]).numpy().view(f"V{size}")


def _to_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"i{array.dtype.itemsize}")).view(dtype)


def _write_array(path: Path, tensor: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:  # np.save would append .npy to a name
        np.save(file, _to_numpy(tensor), allow_pickle=False)


def _read_array(path: Path, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """The array of the file. Raises ValueError for one of another type, before its elements are read."""
    wanted = tuple(shape), _to_numpy(torch.empty(0, dtype=dtype)).dtype
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            found_shape, _, found_dtype = read_header[version](file)
        except (ValueError, KeyError, SyntaxError, tokenize.TokenError) as error:
            raise ValueError(f"{path} is no array as numpy.save writes it: {error}") from error
        size = os.fstat(file.fileno()).st_size - file.tell()
        if (found_shape, found_dtype) != wanted:
            raise ValueError(
                f"{path} is {found_dtype}{list(found_shape)} when the signature has {wanted[1]}{list(wanted[0])}"
            )
        if size != wanted[1].itemsize * int(np.prod(shape, dtype=object)):
            raise ValueError(
                f"{path} has {size} bytes of elements, which are not those of {wanted[1]}{list(wanted[0])}"
            )
        file.seek(0)
        return _to_torch(np.load(file, allow_pickle=False), dtype)


# ---- Saving ----
def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _sync_tree(folder: Path) -> None:
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                os.fsync(file.fileno())
        _files.sync_folder(path)


def _write_parts(bundle: StableHLOModelBundle, folder: Path, weights: bool) -> None:
    for part in _PARTS:
        (folder / part).mkdir(parents=True)
    for func in bundle.stablehlo_funcs:
        path = folder / "functions" / f"{func.meta.name}.meta"
        path.write_text(write_meta(func.meta), encoding="utf-8")
        path.with_suffix(".mlir").write_text(func.text, encoding="utf-8")
        torch.export.save(func.program, path.with_suffix(".pt2"))
    for i, constant in enumerate(bundle.additional_constants):
        _write_array(folder / "constants" / str(i), constant)
    for name, tensor in bundle.state_dict.items() if weights else ():
        _write_array(folder / "data" / name, tensor)


def _put_in_place(folder: Path) -> None:
    """Moves the complete save to its place, part by part; until then _part() finds it."""
    saved = folder / _SAVED
    if saved.is_symlink():
        saved.unlink()  # none of ours
    if saved.is_dir():
        for part in _PARTS:
            if (saved / part).is_dir():
                _remove(folder / part)
                (saved / part).rename(folder / part)
        _files.sync_folder(folder)
        saved.rmdir()


def save_bundle(bundle: StableHLOModelBundle, folder: Path, weights: bool) -> None:
    """Writes functions/NAME.meta, .mlir and .pt2, constants/NUMBER and, with `weights`, data/NAME.

    The older files are found until all is written, and none of them afterwards. Raises ValueError for names that would
    lead out of these folders.
    """
    for func in bundle.stablehlo_funcs:
        _check_function_name(func.meta.name, folder)
    for name in bundle.state_dict:
        _check_state_name(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / _NEW
    _remove(new)
    try:
        _write_parts(bundle, new, weights)
        _sync_tree(new)
        _put_in_place(folder)  # left by an interrupted save
        new.rename(folder / _SAVED)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    _files.sync_folder(folder)
    _put_in_place(folder)


# ---- Loading ----
def _part(folder: Path, name: str) -> Path:
    saved = folder / _SAVED / name
    return saved if saved.is_dir() else folder / name


def _inside(folder: Path, path: Path) -> Path:
    """The path of a file of the export. Raises FileNotFoundError for a missing file, ValueError for a link out of the
    folder.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is a link out of the folder of the export, to {path.resolve()}")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, or no file")
    return path


def _load_function(folder: Path, path: Path) -> StableHLOFunc:
    meta = read_meta(_inside(folder, path))
    _check_function_name(meta.name, path)
    text_path, program_path = (_inside(folder, path.with_name(f"{meta.name}{end}")) for end in (".mlir", ".pt2"))
    text = text_path.read_text(encoding="utf-8", errors="replace")
    check_text(text_path, text, meta)
    try:
        program = torch.export.load(program_path)
    except Exception as error:
        raise ValueError(f"{program_path} is no program of torch.export: {type(error).__name__}: {error}") from error
    check_meta(path, meta, program)
    return StableHLOFunc(meta, text, program)


def _load_constants(folder: Path, funcs: list[StableHLOFunc]) -> list[torch.Tensor]:
    types = {
        at.position: each
        for func in funcs
        for at, each in zip(func.meta.input_locations, func.meta.input_signature)
        if at.type_ is VariableType.CONSTANT
    }
    return [
        _read_array(
            _inside(folder, _part(folder, "constants") / str(i)), types[i].shape, getattr(torch, types[i].dtype)
        )
        for i in sorted(types)
    ]


def _load_state(folder: Path, funcs: list[StableHLOFunc], device: torch.device) -> dict[str, torch.Tensor]:
    data = _part(folder, "data")
    types = {name: like for func in funcs for name, like in tensors_of(func.program).items()}
    state = {}
    for name, like in types.items() if data.is_dir() and any(data.iterdir()) else ():
        _check_state_name(name, folder)
        state[name] = _read_array(_inside(folder, data / name), list(like.shape), like.dtype).to(device)
    return state


def load_bundle(folder: Path, device: torch.device) -> StableHLOModelBundle:
    """Loads the files of save_bundle(), with the state on the device. Without files in data/ the state is empty.

    Raises FileNotFoundError for a file that is missing, ValueError for one that does not fit the others.
    """
    functions = _part(folder, "functions")
    funcs = [_load_function(folder, path) for path in sorted(functions.glob("*.meta"))]
    if not funcs:
        raise FileNotFoundError(f"{functions} has no *.meta: it is no folder of an export")
    return StableHLOModelBundle(_load_state(folder, funcs, device), _load_constants(folder, funcs), funcs)
