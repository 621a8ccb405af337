"""Moving, copying, saving and loading keep values, Parameter objects and ties."""

import copy
import io
import os
import pickle
import stat

import interrupted
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_xla.core.xla_model as xm
from torch_xla import _files
from torch_xla.utils import serialization


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.out(self.embed(x)) * self.scale


def test_to_keeps_parameter_objects_and_ties(device):
    model = Tied()
    weight = model.embed.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(device)
    assert model.embed.weight is weight
    assert model.out.weight is weight
    assert weight.device == device
    assert weight.is_leaf and weight.requires_grad
    assert optimizer.param_groups[0]["params"][0] is weight
    model.cpu()
    assert model.embed.weight is weight and weight.device.type == "cpu"


def test_to_and_back_keeps_values_dtypes_and_strides(device):
    for value in (torch.randn(3, 4), torch.arange(5), torch.tensor(True), torch.randn(4, 3).t(), torch.empty(0, 2)):
        moved = value.to(device)
        assert (moved.shape, moved.dtype, moved.stride()) == (value.shape, value.dtype, value.stride())
        assert torch.equal(moved.cpu(), value)


def test_upload_is_a_copy(device):
    value = torch.ones(4)
    moved = value.to(device, non_blocking=True)
    value.fill_(7)
    assert moved.tolist() == [1, 1, 1, 1]


def test_deepcopy_keeps_ties_and_is_independent(device):
    model = Tied().to(device)
    clone = copy.deepcopy(model)
    assert clone.embed.weight is clone.out.weight
    assert clone.embed.weight is not model.embed.weight
    before = model.embed.weight.detach().cpu()
    with torch.no_grad():
        clone.embed.weight.add_(1)
    torch.testing.assert_close(model.embed.weight.detach().cpu(), before)
    torch.testing.assert_close(clone.embed.weight.detach().cpu(), before + 1)


LOCATIONS = {
    "none": (None, None),
    "string": ("cpu", "cpu"),
    "device": (torch.device("cpu"), "cpu"),
    "to-the-device": ("xla", "xla"),
    "with-index": (torch.device("xla", 0), "xla"),
    "dict": ({"xla:0": "cpu", "cpu": "xla:0"}, "swapped"),
    "function": (lambda storage, location: storage.cpu(), "cpu"),
    "function-none": (lambda storage, location: None, None),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("way", list(LOCATIONS))
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_map_location(device, source, way, weights_only, zipped):
    map_location, expected = LOCATIONS[way]
    x = torch.arange(4.0, device=source) + 1
    file = io.BytesIO()
    torch.save({"x": x, "leaf": x.clone().requires_grad_()}, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location, weights_only=weights_only)
    expected = {None: source, "swapped": "cpu" if source == "xla" else "xla"}.get(expected, expected)
    assert loaded["x"].device.type == loaded["leaf"].device.type == expected
    assert loaded["x"].tolist() == loaded["leaf"].tolist() == [1, 2, 3, 4]
    assert loaded["leaf"].requires_grad and loaded["leaf"].is_leaf and not loaded["x"].requires_grad


@pytest.mark.parametrize("map_location", ["xla", None, "cpu"])
def test_load_from_a_mapped_file(device, tmp_path, map_location):
    path = str(tmp_path / "x.pt")
    torch.save([torch.arange(4.0, device=device) * 2, torch.ones(2)], path)
    x, y = torch.load(path, mmap=True, map_location=map_location)
    assert x.device.type == (map_location or "xla") and y.device.type == (map_location or "cpu")
    assert x.tolist() == [0, 2, 4, 6] and y.tolist() == [1, 1]


def file_with_tag(tag: str) -> io.BytesIO:
    """A file of a tensor [0, 1, 2] whose storage is said to be on that device."""
    storage = torch.arange(3.0).untyped_storage()
    file = io.BytesIO()
    torch.serialization.register_package(0, lambda s: tag if s is storage else None, lambda s, location: None)
    try:
        torch.save(torch.empty(0).set_(storage), file)
    finally:
        torch.serialization._package_registry.pop(0)
    file.seek(0)
    return file


class Outside:
    """A tensor of four elements that a file gives another place in its storage."""

    def __init__(self, dtype: torch.dtype, offset: int, size: tuple, stride: tuple):
        self.tensor, self.place = torch.arange(4).to(dtype), (offset, size, stride)

    def __reduce_ex__(self, protocol):
        rest = (*self.place, False, {})
        if self.tensor.dtype in torch.storage._new_dtypes():
            return torch._utils._rebuild_tensor_v3, (self.tensor.untyped_storage(), *rest, self.tensor.dtype)
        return torch._utils._rebuild_tensor_v2, (self.tensor._typed_storage(), *rest)


@pytest.mark.parametrize("place", [(0, (100,), (1,)), (2, (4,), (1,)), (0, (2, 2), (3, 1)), (1 << 40, (1,), (1,))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16])
def test_a_file_whose_tensor_lies_outside_its_storage_is_refused(device, tmp_path, dtype, place):
    """As on the CPU, whose storages of files do not grow either."""
    torch.save(Outside(dtype, *place), tmp_path / "file")
    for where in ("cpu", device, lambda storage, location: storage.to(device=device)):
        for mapped in (False, True):
            with pytest.raises(
                RuntimeError, match="not resizable" if where == "cpu" else "are out of bounds for storage"
            ):
                torch.load(tmp_path / "file", map_location=where, mmap=mapped)


def test_a_tensor_of_a_file_may_be_resized(device, tmp_path):
    torch.save(Outside(torch.float32, 1, (2,), (2,)), tmp_path / "file")
    loaded = torch.load(tmp_path / "file", map_location=device)
    assert loaded.tolist() == [1, 3]
    loaded.untyped_storage().resize_(0)
    loaded.untyped_storage().resize_(16)
    assert loaded.fill_(2).tolist() == [2, 2] and loaded.resize_(20).shape == (20,)


@pytest.mark.parametrize("tag", ["cuda:0", "xla:7", "xla"])
def test_a_file_with_the_tag_of_another_device(device, tag):
    for map_location, expected in [("xla", "xla"), ({tag: "xla:0"}, "xla"), ("cpu", "cpu"), ({tag: "cpu"}, "cpu")]:
        loaded = torch.load(file_with_tag(tag), map_location=map_location)
        assert loaded.device.type == expected and loaded.tolist() == [0, 1, 2]


def test_devices_that_are_not_there_are_refused_by_number(device):
    refused = r"deserialize object on XLA device 7 but torch.xla.device_count\(\) is 1. Please use torch.load"
    with pytest.raises(RuntimeError, match=refused):
        torch.load(file_with_tag("xla:7"))
    for map_location in ("xla:7", torch.device("xla", 7), {"cpu": "xla:7"}):
        with pytest.raises(RuntimeError, match=refused):
            torch.load(file_with_tag("cpu"), map_location=map_location)


@pytest.mark.parametrize("target", ["cpu", "xla"])
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_views_share_one_storage_on_whatever_device_they_come_to(device, source, target):
    base = torch.arange(6.0, device=source)
    file = io.BytesIO()
    torch.save({"base": base, "tail": base[2:], "turned": base.view(2, 3).t(), "other": base.clone()}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=target)
    addresses = {name: x.untyped_storage().data_ptr() for name, x in loaded.items()}
    assert addresses["base"] == addresses["tail"] == addresses["turned"] != addresses["other"]
    loaded["tail"].mul_(10)
    assert loaded["base"].tolist() == [0, 1, 20, 30, 40, 50] and loaded["base"].device.type == target
    assert loaded["turned"].tolist() == [[0, 30], [1, 40], [20, 50]] and loaded["other"].tolist() == [0, 1, 2, 3, 4, 5]


def test_files_are_read_without_their_values(device):
    file = io.BytesIO()
    torch.save({"x": torch.arange(6.0, device=device).view(2, 3)}, file)
    for mode in (FakeTensorMode(), torch.device("meta"), torch.device("xla")):
        file.seek(0)
        with mode:
            loaded = torch.load(file)["x"]
        assert loaded.device == device and loaded.shape == (2, 3)
    file.seek(0)
    assert torch.load(file, map_location="meta")["x"].is_meta
    skeleton = io.BytesIO()
    with torch.serialization.skip_data():
        torch.save({"x": torch.ones(2, 3, device=device)}, skeleton)
    skeleton.seek(0)
    assert torch.load(skeleton)["x"].shape == (2, 3)
    file.seek(0)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(file) == []


def test_a_model_without_memory_takes_the_tensors_of_a_file(device):
    model = nn.Linear(3, 2).to(device)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    empty = nn.Linear(3, 2, device="meta")
    empty.load_state_dict(torch.load(file), assign=True)
    x = torch.ones(1, 3, device=device)
    assert torch.equal(empty(x).cpu(), model(x).cpu())


class Older:
    """Pickles as a tensor of a device without storages did."""

    def __init__(self, rebuild, data, requires_grad: bool):
        self.arguments = rebuild, (data, torch.float32, "xla:0", requires_grad)

    def __reduce__(self):
        return self.arguments


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("form", ["cpu_tensor", "numpy"])
def test_files_of_devices_without_storages(device, form, requires_grad):
    cpu = torch.arange(3.0)
    data = cpu.numpy() if form == "numpy" else cpu.requires_grad_(requires_grad)
    rebuild = getattr(torch._utils, f"_rebuild_device_tensor_from_{form}")
    file = io.BytesIO()
    torch.save(Older(rebuild, data, requires_grad), file)
    for map_location, expected in [(None, "xla"), ("cpu", "cpu"), (lambda storage, location: storage, "cpu")]:
        file.seek(0)
        loaded = torch.load(file, map_location=map_location, weights_only=form != "numpy")
        assert loaded.device.type == expected and loaded.tolist() == [0, 1, 2]
        assert loaded.requires_grad == requires_grad and loaded.is_leaf


def test_older_files_whose_elements_come_after_their_device_are_refused(device):
    older = Older(torch._utils._rebuild_device_tensor_from_cpu_tensor, torch.arange(3.0), False)
    file = io.BytesIO()
    torch.save(older, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    with pytest.raises(RuntimeError, match="save it again in the zip form"):
        torch.load(file)


class Named(torch.Tensor):
    """A subclass with an attribute."""


@pytest.mark.parametrize("way", ["file", "pickle"])
def test_subclasses_keep_class_and_attributes(device, way):
    x = torch.arange(3.0, device=device).as_subclass(Named)
    x.role = "weights"
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    y = torch.load(file, weights_only=False) if way == "file" else pickle.loads(pickle.dumps(x))
    assert type(y) is Named and y.role == "weights" and y.device == device
    assert y.tolist() == [0, 1, 2] and y.data_ptr() != x.data_ptr()


def test_deepcopy_copies_gradients(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.requires_grad and y.is_leaf and y.grad.tolist() == [2, 2, 2] and y.grad is not x.grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_state_dict_of_a_model_and_an_optimizer(device):
    model = Tied().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.arange(3, device=device)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    other = Tied().to(device)
    other.load_state_dict(loaded["model"])
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(loaded["optimizer"])
    torch.testing.assert_close(other.out.weight.cpu(), model.out.weight.cpu())


def test_xm_save_writes_cpu_tensors(device, tmp_path):
    path = tmp_path / "x.pt"
    xm.save({"x": torch.ones(2, device=device), "n": [torch.zeros(1, device=device)]}, path)
    loaded = torch.load(path)
    assert loaded["x"].device.type == loaded["n"][0].device.type == "cpu"


@pytest.mark.parametrize("kind", interrupted.KINDS)
def test_an_interrupted_xm_save_leaves_what_was_there(tmp_path, kind):
    path = tmp_path / "x.pt"

    def load() -> int:
        (value,) = torch.load(path)["x"].unique().tolist()
        return value

    interrupted.check_interrupted_saves(
        kind, tmp_path, lambda value: xm.save({"x": torch.full((3000,), value)}, path), load, least=3
    )


def test_xm_save_keeps_links_and_modes(device, tmp_path):
    path, link = tmp_path / "x.pt", tmp_path / "link"
    link.symlink_to(path)
    xm.save({"x": 1}, link)
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()
    path.chmod(0o640)
    xm.save({"x": 2}, link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640 and torch.load(path) == {"x": 2}
    xm.save({"x": 2}, os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    buffer = io.BytesIO()
    xm.save({"x": 3}, buffer)
    buffer.seek(0)
    assert torch.load(buffer) == {"x": 3}
    with pytest.raises(RuntimeError, match="Parent directory"):
        xm.save({"x": 1}, tmp_path / "missing" / "x.pt")


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_what_another_process_is_writing_is_not_deleted(tmp_path):
    path = tmp_path / "x.pt"
    (tmp_path / ".x.pt.0123.new").touch()  # of one that was killed
    with _files.replacing(path) as first:
        first.write(b"first")
        with _files.replacing(path) as second:
            assert sorted(os.listdir(tmp_path)) == sorted(os.path.basename(each.name) for each in (first, second))
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["x.pt"]


@pytest.mark.parametrize("kind", interrupted.KINDS)
def test_interrupted_files_of_tensors_leave_what_was_there(tmp_path, kind):
    path = str(tmp_path / "state")

    def save(value: int) -> None:
        serialization.save({"x": torch.full((3000,), value), "y": [torch.full((3,), value)], "n": value}, path)

    def load() -> int:
        data = serialization.load(path)
        assert torch.cat([data["x"], data["y"][0]]).unique().tolist() == [data["n"]]
        return data["n"]

    interrupted.check_interrupted_saves(kind, tmp_path, save, load, least=6)


def test_where_the_files_of_tensors_are(tmp_path):
    path = str(tmp_path / "state")
    serialization.save({"x": torch.arange(2)}, path)
    folder = serialization._get_tensors_folder(path)
    assert folder == f"{path}.tensors" and torch.load(serialization._get_tensor_file(folder, 0)).tolist() == [0, 1]


@pytest.mark.parametrize("tid", ["0/../../elsewhere", -1, True, None, 1.0])
def test_a_reference_that_is_no_number_is_refused(tmp_path, tid):
    path = str(tmp_path / "state")
    torch.save(torch.ones(1), tmp_path / "elsewhere.pt")
    os.mkdir(f"{path}.tensors")
    os.mkdir(f"{path}.tensors/tensor_0")
    torch.save([serialization.TensorReference(tid)], path)
    with pytest.raises(ValueError, match=r"state refers to the tensor .*, which is no number of a file"):
        serialization.load(path)
    torch.save([1], f"{path}.tensors/tensor_0.pt")
    torch.save([serialization.TensorReference(0)], path)
    with pytest.raises(ValueError, match=r"tensor_0.pt has a list when it should have a tensor"):
        serialization.load(path)


def test_one_file_per_tensor(device, tmp_path):
    path = str(tmp_path / "state")
    serialization.save({"x": torch.ones(2, device=device), "y": [1, torch.zeros(3)]}, path)
    loaded = serialization.load(path)
    assert torch.equal(loaded["x"], torch.ones(2))
    assert loaded["y"][0] == 1 and loaded["y"][1].shape == (3,)


def test_print_shows_values_and_device(device):
    assert repr(torch.tensor([1.0, 2.0], device=device)) == "tensor([1., 2.], device='xla:0')"
    assert repr(torch.tensor(3, device=device)) == "tensor(3, device='xla:0')"
    assert f"{torch.tensor(1.5, device=device):.2f}" == "1.50"


class AsTheOriginal:
    """A tensor of the device as torch_xla 2.x pickles it: by an array of NumPy's."""

    def __init__(self, tensor: torch.Tensor):
        self.array = tensor.numpy()

    def __reduce__(self):
        return torch._utils._rebuild_device_tensor_from_numpy, (self.array, torch.float32, "xla:0", False)


def test_a_file_of_the_original(device):
    file = io.BytesIO()
    torch.save({"weight": AsTheOriginal(torch.arange(6.0))}, file)
    file.seek(0)
    weight = torch.load(file, weights_only=False)["weight"]
    assert weight.device == device and weight.tolist() == [0, 1, 2, 3, 4, 5]
