"""Sparse tensors: the CPU computes on them, their parts are on the device. Layouts that the device has not raise."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met

LAYOUTS = ["coo", "csr", "csc", "bsr"]


def make(layout: str, device, seed: int = 0) -> torch.Tensor:
    """A sparse 4 x 6 matrix, the same on each device."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(4, 6, generator=generator)
    dense = torch.where(dense > 0, dense, 0.0).to(device)
    if layout == "coo":
        return dense.to_sparse()
    return dense.to_sparse_bsr((2, 2)) if layout == "bsr" else getattr(dense, f"to_sparse_{layout}")()


def assert_same(ours, eager) -> None:
    if isinstance(eager, (tuple, list)):
        for a, b in zip(ours, eager, strict=True):
            assert_same(a, b)
    elif isinstance(eager, torch.Tensor):
        assert ours.device.type == "xla" and ours.layout == eager.layout
        torch.testing.assert_close(ours.detach().cpu(), eager.detach())
    else:
        assert ours == eager


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_moves(device, layout):
    eager, ours = make(layout, "cpu"), make(layout, device)
    assert_same(ours, eager)
    assert_same(ours.to_dense(), eager.to_dense())
    assert_same(eager.to(device), eager)
    assert_same(ours.clone(), eager)
    assert_same(ours.double(), eager.double())
    assert ours.cpu().layout == eager.layout and ours.values().device == device
    assert [word for word in repr(ours).split() if "device=" not in word] == repr(eager).split()


def test_parts_are_checked_as_in_eager(device):
    indices, values = torch.tensor([[0, 1], [1, 0]], device=device), torch.ones(2, device=device)
    with torch.sparse.check_sparse_tensor_invariants():
        made = torch.sparse_coo_tensor(indices, values.requires_grad_(), (2, 2), is_coalesced=True)
        assert made.to_dense().tolist() == [[0, 1], [1, 0]]
        with pytest.raises(RuntimeError, match="found index 6"):
            torch.sparse_coo_tensor(indices + 5, values, (2, 2))
        with pytest.raises(RuntimeError, match="is_coalesced"):
            torch.sparse_coo_tensor(indices.flip(1), values, (2, 2), is_coalesced=True)


CALLS = {
    "add": lambda s, d: s + s,
    "add-dense": lambda s, d: d + s,
    "add_-dense": lambda s, d: d.clone().add_(s, alpha=-2),
    "add_": lambda s, d: s.clone().add_(s),
    "mul": lambda s, d: s * 3,
    "mul-dense": lambda s, d: s.mul(d),
    "div_": lambda s, d: s.clone().div_(2),
    "zero_": lambda s, d: s.clone().zero_(),
    "neg": lambda s, d: s.neg().abs(),
    "mm": lambda s, d: s @ d.t(),
    "sparse.mm": lambda s, d: torch.sparse.mm(s, d.t()),
    "mv": lambda s, d: torch.mv(s, d[0]),
    "addmm": lambda s, d: torch.sparse.addmm(d @ d.t(), s, d.t()),
    "sum": lambda s, d: (s.sum(), torch.sparse.sum(s, 0)),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1),
    "mask": lambda s, d: d.sparse_mask(s),
    "cat": lambda s, d: torch.cat([s, s]).coalesce(),
    "stack": lambda s, d: torch.stack([s, s]),
    "transpose": lambda s, d: s.t(),
    "unsqueeze": lambda s, d: s.unsqueeze(0),
    "select": lambda s, d: (s[1], s.index_select(0, torch.tensor([3, 0], device=s.device))),
    "like": lambda s, d: (torch.zeros_like(s), torch.empty_like(s).shape),
    "parts": lambda s, d: (s.indices(), s.values(), s._nnz(), s.sparse_dim(), s.is_coalesced()),
    "to-csr": lambda s, d: s.to_sparse_csr(),
    "norm": lambda s, d: s.norm(),
    "new": lambda s, d: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), device=s.device).coalesce(),
    "empty": lambda s, d: torch.sparse_coo_tensor((3, 3), device=s.device),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_operations(device, name):
    dense = torch.arange(24.0).view(4, 6) / 7
    assert_same(CALLS[name](make("coo", device), dense.to(device)), CALLS[name](make("coo", "cpu"), dense))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradients(device, layout):
    def run(where):
        sparse, dense = make(layout, where).requires_grad_(), torch.ones(6, 3, device=where, requires_grad=True)
        (sparse @ dense).pow(2).sum().backward()
        return sparse.grad.to_dense(), dense.grad

    assert_same(run(device), run("cpu"))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), 0.05),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


def train(device, optimizer: str, bag: bool) -> list[float]:
    torch.manual_seed(0)
    embedding = (nn.EmbeddingBag if bag else nn.Embedding)(20, 8, sparse=True).to(device)
    head = nn.Linear(8, 1).to(device)
    optimizers = [OPTIMIZERS[optimizer](embedding.parameters()), torch.optim.SGD(head.parameters(), 0.05)]
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(20):
        words = torch.randint(0, 20, (16, 3), generator=generator).to(device)
        hidden = embedding(words) if bag else embedding(words).mean(1)
        loss = (head(hidden).squeeze(-1) - words.float().mean(1) / 10).pow(2).mean()
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        assert embedding.weight.grad.is_sparse
        for each in optimizers:
            each.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_sparse_embeddings_train_as_in_eager(device, optimizer, bag):
    eager = train("cpu", optimizer, bag)
    assert eager[-1] != pytest.approx(eager[0], rel=0.05)
    assert train(device, optimizer, bag) == pytest.approx(eager, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_and_copies(device, layout):
    ours, eager = make(layout, device), make(layout, "cpu")
    file = io.BytesIO()
    torch.save(ours, file)
    for map_location, expected in [(None, "xla"), ("cpu", "cpu"), (lambda storage, location: storage.cpu(), "cpu")]:
        file.seek(0)
        loaded = torch.load(file, map_location=map_location)
        assert loaded.device.type == expected and loaded.layout == ours.layout
        assert torch.equal(loaded.to_dense().cpu(), eager.to_dense())
    assert_same(pickle.loads(pickle.dumps(ours)), eager)
    if layout == "coo":
        assert_same(copy.deepcopy(ours), eager)


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (5, 4, 3), (5,)])
def test_dense_tensors_at_sparse_places_stay_on_the_device(device, shape, coalesced):
    """What optimizers do with sparse gradients takes no fallback, so it does not cost the size of the table."""
    torch.manual_seed(0)
    indices = torch.tensor([[0, 3, 0, 4], [1, 1, 1, 0]])[: max(1, len(shape) - 1)]
    dense, values = torch.randn(shape), torch.randn(4, *shape[len(indices) :])

    def run(where):
        sparse = torch.sparse_coo_tensor(indices.to(where), values.to(where), shape)
        sparse = sparse.coalesce() if coalesced else sparse
        met.clear_all()
        result = dense.clone().to(where)
        view = dense.movedim(0, -1).clone(memory_format=torch.contiguous_format).to(where).movedim(-1, 0)
        result.add_(sparse, alpha=-0.5)
        view.add_(sparse)
        taken = result.sparse_mask(sparse)
        assert not met.counter_value("aten::add_") and not met.counter_value("aten::sparse_mask")
        return [result, view, taken.to_dense(), taken._indices(), taken._values(), taken.is_coalesced()]

    assert_same(run(device), run("cpu"))


def test_what_cannot_be_added_to_a_dense_tensor(device):
    sparse = torch.sparse_coo_tensor([[0, 1]], torch.ones(2), (2,), device=device)
    with pytest.raises(RuntimeError):
        torch.zeros(3, device=device).add_(sparse)
    with pytest.raises(RuntimeError):
        torch.zeros(2, dtype=torch.int64, device=device).add_(sparse)
    assert (torch.zeros(2, dtype=torch.float64, device=device).add_(sparse)).tolist() == [1, 1]
    assert torch.ones(2, device=device).add_(sparse.clone().zero_()).tolist() == [1, 1]


def test_layouts_that_the_device_has_not_raise(device):
    x = torch.ones(4, device=device)
    for use in (
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8).to(device),
        lambda: torch.quantize_per_channel(x.view(2, 2), torch.ones(2), torch.zeros(2), 0, torch.qint8),
        lambda: torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.quint8, device=device),
        lambda: x.view(2, 2).to_mkldnn(),
    ):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            print(use())
    torch_xla.sync()
    assert x.tolist() == [1, 1, 1, 1]


def test_jagged_tensors(device):
    def run(where):
        parts = [torch.arange(2.0, device=where), torch.arange(3.0, device=where)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        return [(nested * 2 + 1).values(), nested.offsets()]

    assert_same(run(device), run("cpu"))
