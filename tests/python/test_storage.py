"""Storages: views that share one, files and copies of sets of views, resizing, DLPack, other processes."""

import copy
import io
import pickle
import random

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.utils.dlpack as xla_dlpack


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


# ---- One number ----
ONE_OF_TYPE = {
    torch.float32: 1.5,
    torch.float64: 1e300,
    torch.float16: 0.25,
    torch.bfloat16: -2.0,
    torch.float8_e4m3fn: 0.5,
    torch.int64: -(2**62),
    torch.int32: 7,
    torch.int16: -7,
    torch.int8: -8,
    torch.uint8: 200,
    torch.uint16: 60000,
    torch.bool: True,
    torch.complex64: 1 - 2j,
    torch.complex128: 1 + 2j,
}


@pytest.mark.parametrize("dtype", ONE_OF_TYPE, ids=str)
def test_one_number_of_any_type(device, dtype):
    cpu = torch.tensor([0, ONE_OF_TYPE[dtype], 0], dtype=dtype)
    x = cpu.to(device)
    for read in (lambda t: t[1].item(), lambda t: t[1:2].item(), lambda t: bool(t[1]), lambda t: t[1].tolist()):
        assert read(x) == read(cpu) and type(read(x)) is type(read(cpu))


def test_one_number_with_pending_bits(device):
    x = torch.tensor([1 + 2j, 3 - 4j], device=device)
    assert x.conj()[1].item() == 3 + 4j
    assert x.conj().imag[0].item() == -2
    assert torch.empty((), device=device).fill_(4).item() == 4


# ---- Sets of views ----
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64]


def random_view(base: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """A view of the base: one to three random steps."""
    view = base.detach()
    for _ in range(rng.randint(1, 3)):
        dim = rng.randrange(view.dim())
        kind = rng.choice(["transpose", "narrow", "step", "select", "flat", "conj"])
        if kind == "transpose":
            view = view.transpose(0, dim)
        elif kind == "narrow" and view.size(dim) > 1:
            view = view.narrow(dim, 1, view.size(dim) - 1)
        elif kind == "step":
            view = view[(slice(None),) * dim + (slice(None, None, 2),)]
        elif kind == "select" and view.dim() > 1:
            view = view.select(dim, view.size(dim) - 1)
        elif kind == "flat" and view.is_contiguous():
            view = view.view(-1)
        elif kind == "conj" and view.is_complex():
            view = view.conj()
    return view


def random_set(seed: int, device) -> list[torch.Tensor]:
    """Tensors and views of them. They end with writes through a view, so that values of the device are pending."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    result = []
    for _ in range(rng.randint(1, 3)):
        dtype = rng.choice(DTYPES)
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        base = torch.randn(shape, generator=generator).mul(3).to(dtype).to(device)
        if rng.random() < 0.3 and base.dim() > 1:
            base = base.t() if base.dim() == 2 else base.transpose(0, 2)
        views = [random_view(base, rng) for _ in range(rng.randint(0, 3))]
        if views and not views[0].is_conj():
            views[0].copy_(views[0] * 2)
        if base.is_floating_point() and rng.random() < 0.5:
            base.requires_grad_()
        result += [nn.Parameter(base) if base.requires_grad and rng.random() < 0.3 else base, *views]
    rng.shuffle(result)
    return result


def through_file(tensors, zipped: bool, weights_only: bool):
    file = io.BytesIO()
    torch.save(tensors, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


WAYS = {
    "zip": lambda tensors: through_file(tensors, True, True),
    "zip-unsafe": lambda tensors: through_file(tensors, True, False),
    "legacy": lambda tensors: through_file(tensors, False, True),
    "legacy-unsafe": lambda tensors: through_file(tensors, False, False),
    "pickle": lambda tensors: pickle.loads(pickle.dumps(tensors)),
    "deepcopy": copy.deepcopy,
    "copy": lambda tensors: [copy.copy(tensor) for tensor in tensors],
}


def attributes(tensor: torch.Tensor) -> tuple:
    sizes = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes()
    return type(tensor), tensor.requires_grad, tensor.is_leaf, tensor.is_conj(), sizes


def assert_same_sets(ours: list[torch.Tensor], eager: list[torch.Tensor]) -> None:
    shared = [[address(a) == address(b) for b in ours] for a in ours]
    assert shared == [[address(a) == address(b) for b in eager] for a in eager]
    for a, b in zip(ours, eager, strict=True):
        assert a.device.type == "xla"
        assert attributes(a) == attributes(b)
        assert torch.equal(a.detach().cpu(), b.detach())


@pytest.mark.parametrize("way", list(WAYS))
def test_sets_of_views_keep_values_strides_and_sharing(device, way):
    for seed in range(25):
        eager = WAYS[way](random_set(seed, "cpu"))
        ours = WAYS[way](random_set(seed, device))
        assert_same_sets(ours, eager)
        for tensors in (eager, ours):
            with torch.no_grad():
                tensors[0].zero_()
        assert_same_sets(ours, eager)


def test_the_copy_is_independent(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    y, row = copy.deepcopy([x, x[1]])
    row.add_(10)
    assert y.tolist() == [[0, 1, 2], [13, 14, 15]]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


# ---- Memory of a storage ----
@pytest.mark.parametrize("view", ["whole", "row", "transposed", "expanded"])
@pytest.mark.parametrize("writer", ["source", "clone"])
def test_lazy_clone_is_independent(device, view, writer):
    def run(where):
        whole = torch.arange(6.0, device=where).view(2, 3)
        source = {"whole": whole, "row": whole[1], "transposed": whole.t(), "expanded": whole[0].expand(4, 3)}[view]
        clone = source._lazy_clone()
        (source if writer == "source" else clone)[..., -1:][:1].add_(10)
        return whole, source, clone, (clone.stride(), clone.storage_offset(), clone.untyped_storage().nbytes())

    *actual, actual_form = run(device)
    *expected, expected_form = run("cpu")
    assert [t.tolist() for t in actual] == [t.tolist() for t in expected]
    assert actual_form == expected_form


def test_lazy_clone_gives_gradients(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x._lazy_clone() * 3).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_storage_has_an_address_of_its_own(device):
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)
    assert x.data_ptr() != y.data_ptr()
    assert x.view(2, 2).data_ptr() == x.data_ptr()
    assert x[1:].data_ptr() == x.data_ptr() + 4
    assert x.untyped_storage().nbytes() == 16


@pytest.mark.parametrize("nbytes", [0, 5, 16, 21, 48])
@pytest.mark.parametrize("pending", [True, False])
def test_resize_keeps_the_bytes_that_fit_and_adds_zeros(device, nbytes, pending):
    x = torch.arange(4.0, device=device)
    bytes_before = torch.arange(4.0).untyped_storage().tolist()
    if not pending:
        x.tolist()
    storage = x.untyped_storage()
    storage.resize_(nbytes)
    assert storage.nbytes() == nbytes
    assert storage.tolist() == (bytes_before + [0] * nbytes)[:nbytes]
    if nbytes >= 16:
        assert x.tolist() == [0, 1, 2, 3]
    if nbytes == 21:
        assert x.as_strided((4,), (1,), 1).tolist() == [1, 2, 3, 0]
        x.mul_(2)
        assert x.tolist() == [0, 2, 4, 6] and storage.tolist()[16:] == [0] * 5


def test_resize_of_bytes_that_have_dims(device):
    x = torch.arange(6, dtype=torch.uint8, device=device).view(2, 3).t().contiguous() + 1
    x.untyped_storage().resize_(9)
    assert x.add_(1).tolist() == [[2, 5], [3, 6], [4, 7]]
    assert x.untyped_storage().tolist() == [2, 5, 3, 6, 4, 7, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_tensor_that_reaches_outside_its_storage_raises(device, dtype):
    x = torch.ones(4, dtype=dtype, device=device)
    tail = x[1:]
    x.untyped_storage().resize_(8)
    for use in (x.tolist, lambda: (x + 1).tolist(), lambda: tail.add_(1), lambda: tail.copy_(torch.ones(3))):
        with pytest.raises(RuntimeError, match="need a storage of"):
            use()
    assert x.untyped_storage().nbytes() == 8


def test_storage_resize_to_nothing_and_back(device):
    x = torch.arange(4.0, device=device)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(16)
    x.copy_(torch.arange(4.0))
    assert x.tolist() == [0, 1, 2, 3]


def test_set_takes_storages_of_the_device_only(device):
    x = torch.ones(2, device=device)
    for use in (lambda: x.set_(torch.ones(2).untyped_storage()), lambda: x.set_(torch.ones(2))):
        with pytest.raises(RuntimeError, match="on different device"):
            use()
    assert x.tolist() == [1, 1]
    y = torch.arange(3.0, device=device)
    assert x.set_(y.untyped_storage()).tolist() == [0, 1, 2]
    assert x.set_(y.untyped_storage(), 1, (2,), (1,)).tolist() == [1, 2]
    assert x.set_().numel() == 0


def test_storage_methods(device):
    cpu = torch.tensor([1, 256, -3], dtype=torch.int16).untyped_storage()
    ours = torch.tensor([1, 256, -3], dtype=torch.int16, device=device).add(0).untyped_storage()
    assert ours.tolist() == cpu.tolist() == list(ours) and ours[2] == cpu[2]
    assert ours.cpu().tolist() == cpu.tolist()
    assert ours.clone().tolist() == cpu.tolist() and ours.clone().device == device
    assert torch.UntypedStorage(6, device=device).copy_(cpu).tolist() == cpu.tolist()
    assert torch.UntypedStorage(6).copy_(ours).tolist() == cpu.tolist()
    ours.byteswap(torch.int16)
    cpu.byteswap(torch.int16)
    assert ours.tolist() == cpu.tolist()
    ours[1] = cpu[1] = 9
    ours[3:5] = 7
    cpu[3:5] = 7
    assert ours.tolist() == cpu.tolist()
    assert ours.fill_(4).tolist() == [4] * 6
    assert through_file(ours, True, True).tolist() == [4] * 6
    assert not ours.is_shared() and ours.share_memory_() is ours


def test_a_slice_of_a_storage_raises_where_it_is_read(device):
    part = torch.arange(4.0, device=device).untyped_storage()[4:8]
    assert part.nbytes() == 4
    with pytest.raises(RuntimeError, match="slice of another storage"):
        part.tolist()


# ---- Views that show other numbers than lie in memory, and tensors that change their storage ----
def conj_physical(where):
    x = torch.tensor([1 + 2j, 3 - 4j], device=where)
    return [torch._neg_view(x).conj_physical_(), x.clone().conj_physical_(), x.conj().imag.conj_physical_(), x]


def write_through_bits(where):
    x, y = torch.tensor([1 + 2j, 3 - 4j], device=where), torch.tensor([1.0, 2.0], device=where)
    x.conj()[0] = 5 + 6j
    x.conj().mul_(1j)
    torch._neg_view(y)[1:].add_(1)
    x.conj().imag.add_(1)
    return [x, y, x.conj() @ x, torch.view_as_real(x)]


def views_of_other_types(where):
    x = torch.arange(8, dtype=torch.uint8, device=where)
    x.view(torch.float32).add_(1)
    z = torch.view_as_complex(torch.arange(4.0, device=where).view(2, 2))
    z.real.mul_(2)
    return [x, x.view(torch.int16), z]


def bytes_seen_as_bools(where):
    x = torch.tensor([0, 255, 7], dtype=torch.uint8, device=where)
    count = x.view(torch.bool).sum()
    y = torch.tensor([0, 255, 7, 9], dtype=torch.uint8, device=where)
    y.view(torch.bool)[:1] = True
    y.view(torch.bool)[2:] = False
    f = torch.tensor([1.5, 2.0], device=where)
    return [count, x, y, f.view(torch.uint8).view(torch.bool).any(), f]


def one_complex_number(where):
    x, y = torch.full((1,), 3, dtype=torch.cfloat, device=where), torch.ones(1, dtype=torch.cfloat, device=where)
    x.view(torch.float32)[0] = 7
    y.fill_(2).resize_(2)
    z = torch.ones(1, 3, dtype=torch.cfloat, device=where)
    z.expand(2, 3).zero_()
    return [x, y[:1], z]


def elements_written_by_masks(where):
    x = [torch.arange(12.0, device=where).view(3, 4) for _ in range(6)]
    x[0][x[0] > 3] = x[0][0, 0]
    x[1].masked_fill_(x[1] > 3, x[1][0, 0])
    x[2].index_fill_(0, torch.tensor([0], device=where), x[2][1, 1])
    x[3][:, torch.tensor([True, False, True, False], device=where)] = x[3][1, 1]
    x[4].index_put_((x[4] > 3,), x[4][0, 0])
    with pytest.raises(RuntimeError, match="single memory location"):
        x[5][torch.tensor([0, 2], device=where)] = x[5][1, 1]
    return x


def a_mask_of_itself(where):
    m, n = torch.tensor([True, False, True], device=where), torch.ones(4, dtype=torch.bool, device=where)
    m[m] = False
    n[::2][n[::2]] = torch.tensor(False, device=where)
    return [m, n]


def set_and_swap(where):
    x, y, z = torch.arange(6.0, device=where), torch.empty(0, device=where), torch.ones(2, device=where)
    y.set_(x[2:]).add_(1)
    torch.utils.swap_tensors(y, z)
    p = nn.Parameter(torch.ones(2, device=where))
    p.data = x[:2]
    p.data.mul_(3)
    return [
        x,
        y,
        z,
        p.detach(),
        x.resize_(2, 2),
        torch.empty(0, device=where).set_(x.untyped_storage(), 2, (2, 2), (1, 2))[0],
    ]


PROGRAMS = [
    conj_physical,
    write_through_bits,
    views_of_other_types,
    bytes_seen_as_bools,
    one_complex_number,
    elements_written_by_masks,
    a_mask_of_itself,
    set_and_swap,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_views_and_storages_as_in_eager(device, program):
    for ours, eager in zip(program(device), program("cpu"), strict=True):
        assert ours.stride() == eager.stride() and torch.equal(ours.cpu(), eager)


def test_is_set_to(device):
    x = torch.ones(3, device=device)
    assert x.is_set_to(x.view(3)) and not x.is_set_to(x[1:]) and not x.is_set_to(x.clone())


def test_negative_strides_are_refused(device):
    x = torch.arange(4.0, device=device)
    with pytest.raises(RuntimeError, match="strides=\\[-1\\]"):
        x.set_(x.untyped_storage(), 3, (2,), (-1,))
    assert x.tolist() == [0, 1, 2, 3]


# ---- Classes ----
def test_tensor_and_storage_classes(device):
    x = torch.ones(2, device=device)
    assert isinstance(x, torch.xla.FloatTensor)
    assert not isinstance(x, torch.xla.LongTensor) and not isinstance(torch.ones(2), torch.xla.FloatTensor)
    assert x.type() == "torch.xla.FloatTensor"
    assert x.type(torch.xla.LongTensor).dtype == torch.int64
    assert torch.xla.IntTensor([1, 2]).tolist() == [1, 2] and torch.xla.HalfTensor(2, 3).shape == (2, 3)
    storage = x._typed_storage()
    assert isinstance(storage, torch.xla.FloatStorage) and not isinstance(storage, torch.FloatStorage)
    assert torch.xla.DoubleStorage([1, 2]).tolist() == [1, 2]


# ---- DLPack and NumPy ----
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.float16, torch.complex64, torch.bool])
def test_dlpack(device, dtype):
    cpu = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    pending = cpu.to(device).t()
    assert pending.__dlpack_device__() == (1, 0)
    assert torch.equal(torch.from_dlpack(pending), cpu.t())
    assert np.array_equal(np.from_dlpack(pending), cpu.t().numpy())
    back = xla_dlpack.from_dlpack(xla_dlpack.to_dlpack(pending))
    assert back.device == device and torch.equal(back.cpu(), cpu.t())
    assert torch.equal(torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(pending)), cpu.t())
    assert xla_dlpack.from_dlpack(ext_tensor=cpu.numpy()).device == device


def test_dlpack_refuses_what_eager_refuses(device):
    x = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(BufferError, match="require gradient"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="conjugate bit"):
        torch.ones(2, dtype=torch.complex64, device=device).conj().__dlpack__()
    with pytest.raises(BufferError, match="without a copy"):
        x.detach().__dlpack__(copy=False)
    torch.from_dlpack(x.detach()).zero_()
    assert x.tolist() == [1, 1]


# ---- Processes ----
def receive(incoming, outgoing):
    x, view, _ = incoming.get()
    view.add_(1)
    outgoing.put((x.device.type, x.tolist()))


def test_tensors_go_to_another_process_and_back(device):
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(there, back))
    process.start()
    x = torch.tensor([1.0, 2.0], device=device) * 2
    there.put([x, x[1:], nn.Parameter(x)])
    assert back.get(timeout=120) == ("xla", [2, 5])
    process.join()
    assert x.tolist() == [2, 4]


def give_back(x, module, outgoing):
    outgoing.put((x.device.type, x.tolist(), module.weight.tolist()))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_tensors_are_arguments_of_a_process(device, method):
    context = mp.get_context(method)
    back = context.Queue()
    x, module = torch.tensor([1.0, 2.0], device=device) * 2, nn.Linear(1, 1).to(device)
    process = context.Process(target=give_back, args=(x, module, back))
    process.start()
    assert back.get(timeout=120) == ("xla", [2, 4], module.weight.tolist())
    process.join()


def test_memory_that_is_not_shared_is_told(device):
    with pytest.warns(UserWarning, match="each gets a copy"):
        torch.ones(2, device=device).share_memory_()


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_tensors_pass_a_queue(device, strategy):
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(strategy)
    try:
        queue = mp.get_context("spawn").Queue()
        x = torch.arange(6.0, device=device).view(2, 3) * 2
        queue.put([x, x.t()[1], torch.zeros(0, device=device), nn.Parameter(x[0])])
        y, view, empty, parameter = queue.get(timeout=60)
    finally:
        mp.set_sharing_strategy(before)
    assert y.device == view.device == empty.device == parameter.device == device
    assert torch.equal(y.cpu(), x.cpu()) and view.stride() == (3,) and address(y) == address(view)
    assert view.tolist() == [2, 8] and isinstance(parameter, nn.Parameter) and empty.shape == (0,)


@pytest.mark.parametrize("module", [torch.xla, torch.accelerator], ids=["torch.xla", "torch.accelerator"])
def test_peaks_start_again(device, module):
    torch.ones(1 << 22).to(device)
    torch_xla.sync(wait=True)
    before = torch.xla.memory_allocated()
    assert torch.xla.max_memory_allocated() >= before + 4 * (1 << 22)
    module.reset_peak_memory_stats()
    assert torch.xla.max_memory_allocated() == torch.xla.memory_allocated() <= before
    assert torch.xla.max_memory_reserved() == torch.xla.memory_reserved()
    x = torch.ones(1 << 20).to(device)
    assert torch.xla.max_memory_allocated() >= x.nbytes
    assert xm.get_memory_info()["peak_bytes_used"] == torch.xla.max_memory_allocated()


STORED = {
    "moved": lambda x: x,
    "clone": lambda x: x.clone(),
    "part": lambda x: x[1:],
    "joined": lambda x: torch.cat([x, x]),
    "transposed": lambda x: x.view(2, 2).t().contiguous(),
    "copied": lambda x: torch.empty_like(x).copy_(x),
    "bytes": lambda x: x.view(torch.uint8),
    "zeros": lambda x: torch.zeros(2, dtype=x.dtype, device=x.device),
    "equal": lambda x: x == x,
}
NUMBERS = {
    "converted": lambda x: x.float(),
    "from_floats": lambda x: torch.tensor([1.0, 2.0], device=x.device).to(x.dtype),
    "indexed": lambda x: x[torch.tensor([2, 0], device=x.device)],
    "filled": lambda x: x.fill_(2),
    "item": lambda x: torch.tensor([x[1].item()]),
}


@pytest.mark.parametrize("dtype", [torch.float8_e8m0fnu, torch.float8_e5m2, torch.float4_e2m1fn_x2, torch.uint16])
def test_types_that_the_cpu_alone_computes_on(device, dtype):
    few = dtype == torch.float4_e2m1fn_x2  # PyTorch has little more than copies of it
    stored = torch.tensor([1, 2, 4, 8], dtype=torch.uint16 if dtype == torch.uint16 else torch.uint8).view(dtype)
    for name, function in (STORED if few else STORED | NUMBERS).items():
        expected, actual = function(stored.clone()), function(stored.to(device))
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, name
        assert actual.cpu().view(torch.uint8).tolist() == expected.view(torch.uint8).tolist(), name
    file = io.BytesIO()
    torch.save(stored.to(device), file)
    file.seek(0)
    assert torch.load(file).cpu().view(torch.uint8).tolist() == stored.view(torch.uint8).tolist()
    assert repr(stored.to(device)).replace(", device='xla:0'", "") == repr(stored)
