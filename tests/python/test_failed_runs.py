"""Errors of data in runs: which values they cost, which stay, which call raises them and when."""

import random
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.experimental.fori_loop import while_loop

pytestmark = pytest.mark.checks_values

CLASSES = 5
OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
}


def out_of_range(device) -> torch.Tensor:
    """A tensor whose run fails with IndexError."""
    return F.embedding(torch.tensor([99], device=device), torch.ones(4, 2, device=device))


class Network(nn.Module):
    """Indices are checked at both ends: by the embedding and, behind the batch norm's statistics, by the loss."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(8)
        self.hidden = nn.Linear(8, 16)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, ids):
        return self.last(torch.relu(self.hidden(self.norm(self.embedding(ids)))))


def make_batches(count: int, bad: int, where: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Indices and classes; one of batch `bad` is out of range."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for step in range(count):
        ids = torch.randint(0, 10, (6,), generator=generator)
        classes = torch.randint(0, CLASSES, (6,), generator=generator)
        if step == bad:
            (ids if where == "index" else classes)[3] = 99
        batches.append((ids, classes))
    return batches


def make_network(device, optimizer: str):
    """The same network on any device, and its optimizer."""
    torch.manual_seed(3)
    network = Network().to(device)
    return network, OPTIMIZERS[optimizer](network.parameters())


def train_step(network, optimizer, ids, classes) -> torch.Tensor:
    """One step; returns the loss."""
    optimizer.zero_grad()
    loss = F.cross_entropy(network(ids), classes)
    loss.backward()
    optimizer.step()
    return loss


def train(device, optimizer: str, batches, after: str, skipped=()):
    """Trains on; returns the network's state and the steps in which an error came.

    After each step the loss is read, or nothing happens, or so long that the run ends before the next step is recorded.
    """
    network, optimizer = make_network(device, optimizer)
    told = []
    for step, (ids, classes) in enumerate(batches):
        if step in skipped:
            if step == skipped[0]:
                with pytest.raises(IndexError):
                    train_step(network, optimizer, ids, classes)
            for state in optimizer.state.values():
                if "step" in state:
                    state["step"] += 1  # Adam counts on the host, which nothing takes back
            continue
        try:
            loss = train_step(network, optimizer, ids.to(device), classes.to(device))
            if after == "read":
                loss.item()
            elif after == "pause" and torch.device(device).type == "xla":
                time.sleep(0.2)
        except IndexError:
            told.append(step)
    torch_xla.sync(wait=True)
    return {name: value.cpu() for name, value in network.state_dict().items()}, told


@pytest.mark.parametrize("where", ["index", "class"])
@pytest.mark.parametrize("after", ["read", "nothing", "pause"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_failed_step_changes_what_it_changes_in_eager(device, optimizer, after, where):
    bad = 3
    batches = make_batches(8, bad, where)
    state, told = train(device, optimizer, batches, after)
    assert len(told) == 1, "an error is told once"
    assert told == [bad] if after == "read" else told[0] >= bad
    # Steps that were recorded before the error was told are lost with the failed one.
    expected, _ = train("cpu", optimizer, batches, after, range(bad, told[0] + 1))
    for name, value in state.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")


def test_a_read_tells_the_error_and_the_next_read_gives_the_last_good_value(device):
    network, optimizer = make_network(device, "adam")
    (ids, classes), (bad_ids, _) = make_batches(2, 1, "index")
    train_step(network, optimizer, ids.to(device), classes.to(device)).item()
    before = network.hidden.weight.detach().cpu().clone()
    loss = None
    with pytest.raises(IndexError, match="aten::embedding"):
        loss = train_step(network, optimizer, bad_ids.to(device), classes.to(device))
        network.hidden.weight.cpu()
    assert network.hidden.weight.detach().cpu().equal(before)
    if loss is not None:
        for _ in range(2):  # the tensors that it cost go on telling it
            with pytest.raises(IndexError, match="aten::embedding"):
                loss.item()
            with pytest.raises(IndexError, match="aten::embedding"):
                loss + 1
    torch_xla.sync(wait=True)


def test_a_sync_tells_an_error_as_soon_as_it_is_known_and_names_the_line(device):
    bad = F.embedding(torch.tensor([0, 99], device=device), torch.ones(4, 2, device=device))
    x = torch.ones(2, device=device)
    with pytest.raises(IndexError, match=r"(?s)aten::embedding.*test_failed_runs\.py"):
        for _ in range(5):  # more than are ever queued
            torch_xla.sync()
            x = x + 1
    del bad
    torch_xla.sync(wait=True)
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]


def test_an_update_in_place_before_a_failed_check_is_kept(device):
    memory = torch.arange(12.0).reshape(4, 3).to(device)
    torch_xla.sync(wait=True)
    row = torch.full((3,), 7.0, device=device)
    memory[1] = row
    memory[:, 2] = 5.0
    picked = memory[torch.tensor([1, 99], device=device)]
    memory[0] = row
    with pytest.raises(IndexError):
        picked.cpu()
    assert memory.tolist() == [[0, 1, 5], [7, 7, 5], [6, 7, 5], [9, 10, 5]]
    assert row.tolist() == [7, 7, 7]
    memory[1] = torch.full((3,), 8.0, device=device)
    assert memory[torch.tensor([1, 0], device=device)].tolist() == [[8, 8, 8], [0, 1, 5]]


def _index(number, place):
    return torch.tensor([number], device=place)


# Calls that raise for what is in their operands: of x, five times 2.5, and the device.
DATA_ERRORS = {
    "class": lambda x, d: F.cross_entropy(torch.ones(2, 5, device=d), torch.tensor([7, 1], device=d)),
    "class of a pixel": lambda x, d: F.nll_loss(torch.ones(2, 5, 3, 3, device=d), torch.full((2, 3, 3), 9, device=d)),
    "class beside margins": lambda x, d: F.multi_margin_loss(x[None], _index(9, d)),
    "labels": lambda x, d: F.multilabel_margin_loss(x, torch.tensor([9, 0, 0, 0, 0], device=d)),
    "binary cross entropy": lambda x, d: F.binary_cross_entropy(x, x),
    "bernoulli": lambda x, d: torch.bernoulli(x),
    "bernoulli_": lambda x, d: torch.empty(5, device=d).bernoulli_(x),
    "poisson": lambda x, d: torch.poisson(-x),
    "normal": lambda x, d: torch.normal(x, -x),
    "multinomial": lambda x, d: torch.multinomial(-x, 1),
    "gather": lambda x, d: x.gather(0, _index(9, d)),
    "index": lambda x, d: x[_index(9, d)],
    "index_add": lambda x, d: x.index_add(0, _index(9, d), x[:1]),
    "scatter": lambda x, d: x.scatter(0, _index(9, d), x[:1]),
    "put": lambda x, d: x.put(_index(9, d), x[:1]),
    "take": lambda x, d: x.take(_index(9, d)),
    "masked_scatter": lambda x, d: x.masked_scatter(x > 0, x[:1]),
    "embedding": lambda x, d: F.embedding(_index(9, d), x[None]),
    "embedding_bag": lambda x, d: F.embedding_bag(_index(9, d)[None], x[None]),
    "unpool": lambda x, d: F.max_unpool2d(torch.ones(1, 1, 2, 2, device=d), torch.full((1, 1, 2, 2), 99, device=d), 2),
    "one_hot": lambda x, d: F.one_hot(_index(-1, d)),
    "divide": lambda x, d: torch.ones(2, dtype=torch.long, device=d) // torch.zeros(2, dtype=torch.long, device=d),
    "remainder": lambda x, d: torch.ones(2, dtype=torch.long, device=d) % torch.zeros(2, dtype=torch.long, device=d),
    "segment_reduce": lambda x, d: torch.segment_reduce(x, "sum", lengths=_index(9, d)),
    "histogram": lambda x, d: torch.histogram(x / 0 * 0, 4)[0],
    "fake_quantize": lambda x, d: torch.fake_quantize_per_channel_affine(
        x[:, None], x, torch.full((5,), 300, dtype=torch.int32, device=d), 0, 0, 255
    ),
    "cholesky": lambda x, d: torch.linalg.cholesky(-torch.eye(3, device=d)),
    "cholesky_ex": lambda x, d: torch.linalg.cholesky_ex(-torch.eye(3, device=d), check_errors=True)[0],
    "cholesky_inverse": lambda x, d: torch.cholesky_inverse(torch.zeros(2, 2, device=d)),
    "inv": lambda x, d: torch.linalg.inv(torch.zeros(2, 2, device=d)),
    "inv_ex": lambda x, d: torch.linalg.inv_ex(torch.zeros(2, 2, device=d), check_errors=True)[0],
    "solve": lambda x, d: torch.linalg.solve(torch.zeros(2, 2, device=d), x[:2]),
    "solve_ex": lambda x, d: torch.linalg.solve_ex(torch.zeros(2, 2, device=d), x[:2], check_errors=True)[0],
    "ldl_factor_ex": lambda x, d: torch.linalg.ldl_factor_ex(torch.zeros(2, 2, device=d), check_errors=True)[0],
    "ldl_solve": lambda x, d: torch.linalg.ldl_solve(
        torch.zeros(2, 2, device=d), torch.tensor([9, 9], dtype=torch.int32, device=d), x[:2, None]
    ),
    "lu_solve": lambda x, d: torch.linalg.lu_solve(
        torch.zeros(2, 2, device=d), torch.tensor([1, 9], dtype=torch.int32, device=d), x[:2, None]
    ),
    "lu_unpack": lambda x, d: torch.lu_unpack(
        torch.eye(2, device=d), torch.tensor([1, 9], dtype=torch.int32, device=d)
    )[0],
}


@pytest.mark.parametrize("name", DATA_ERRORS)
def test_what_came_before_an_error_of_data_has_happened(device, name):
    outcomes = []
    for place in ("cpu", device):
        x = torch.ones(5, device=place)
        torch_xla.sync()
        x.mul_(0.5)
        early = x.clone()
        x.add_(2)
        with pytest.raises(Exception) as told:
            DATA_ERRORS[name](x, place).cpu()
        outcomes.append((told.type, early.tolist(), x.tolist()))
    assert outcomes[1] == outcomes[0]


def test_tensors_that_share_a_value_keep_their_own(device):
    a, b = torch.zeros(3, device=device), torch.ones(3, device=device)
    torch_xla.sync(wait=True)
    b.mul_(5)
    a.copy_(b)
    bad = out_of_range(device)
    b.mul_(2)
    a.add_(1)
    with pytest.raises(IndexError):
        bad.cpu()
    assert a.tolist() == [5, 5, 5]
    assert b.tolist() == [5, 5, 5]


@pytest.mark.parametrize("before", [True, False], ids=["kept", "taken back"])
def test_a_transposed_write_has_its_own_order(device, before):
    x = torch.arange(6.0).reshape(2, 3).to(device)
    torch_xla.sync(wait=True)
    for fails in (not before, before):
        if fails:
            bad = out_of_range(device)
        else:
            x.t().copy_(torch.ones(3, 2, device=device) + x.t())
    x.copy_(torch.zeros(2, 3, device=device) + 1)
    with pytest.raises(IndexError):
        bad.cpu()
    assert x.tolist() == ([[1, 2, 3], [4, 5, 6]] if before else [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.uint8])
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_what_was_added_by_a_mask_is_added_once(device, dims, mask_dtype):
    mask = torch.ones((3, 4)[:dims], dtype=mask_dtype)
    mask[0] = 0
    x, mask, ones = torch.zeros(3, 4).to(device), mask.to(device), torch.ones(8 if dims == 2 else 4).to(device)
    torch_xla.sync(wait=True)
    x.index_put_((mask,), ones, accumulate=True)
    bad = x[0][torch.tensor([9], device=device)]
    with pytest.raises(IndexError):
        bad.cpu()
    assert x.tolist() == [[0] * 4, [1] * 4, [1] * 4]


def test_the_first_error_in_the_order_of_the_program_is_told_and_cuts_the_rest(device):
    table = torch.ones(4, 2).to(device)
    x, first, second = (torch.tensor(values).to(device) for values in ([1.0, 2.0], [99], [98]))
    torch_xla.sync(wait=True)
    x.add_(1)
    a = F.embedding(first, table)
    x.mul_(10)
    b = F.embedding(second, table)
    x.add_(5)
    with pytest.raises(IndexError, match=r"(?s)index.*test_failed_runs\.py"):
        (b.sum() + a.sum()).item()
    assert x.tolist() == [2, 3]


def test_tensors_made_before_the_error_have_their_values_then(device):
    total = torch.zeros(3, device=device)
    total += 1
    noise = torch.rand(3, device=device)
    kept = noise.clone()
    noise.mul_(2)
    bad = torch.ones(4, device=device)[torch.tensor([9], device=device)]
    total += 1
    noise.mul_(2)
    late = total * 3
    with pytest.raises(IndexError):
        bad.cpu()
    assert total.tolist() == [1, 1, 1]
    assert noise.equal(kept * 2)
    with pytest.raises(IndexError):  # in eager it was never made
        late.cpu()


def test_nothing_is_compiled_for_what_came_before_an_error(device):
    x, index = torch.arange(6.0).to(device), _index(9, device)
    torch_xla.sync(wait=True)
    torch_xla._XLAC._start_events()
    x.mul_(2).add_(1)
    early = torch.tanh(x).softmax(0)
    x.sub_(x[index])
    with pytest.raises(IndexError):
        x.cpu()
    passes = [event["name"] for event in torch_xla._XLAC._stop_events() if event["phase"] == "pass"]
    assert passes.count("lower") == 1, "of the program that failed"
    expected = torch.arange(6.0) * 2 + 1
    assert torch.equal(x.cpu(), expected) and torch.equal(early.cpu(), torch.tanh(expected).softmax(0))


def _turn(x):
    return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x * 2), (torch.tensor(3, device=x.device), x))[1]


def _barrier(x):
    y = x + 1
    xm.optimization_barrier_([y])
    return y * 2


@pytest.mark.parametrize(
    ("work", "value"),
    [(_turn, 8.0), (_barrier, 4.0), (lambda x: F.dropout(x, 0.0) + torch.rand_like(x) * 0, 1.0)],
    ids=["loop", "barrier", "random numbers"],
)
def test_what_small_programs_do_not_run_as_recorded_comes_before_an_error_too(device, work, value):
    x, y = torch.ones(3, device=device), torch.zeros(3, device=device)
    torch_xla.sync(wait=True)
    y.copy_(work(x))
    bad = x[_index(9, device)]
    y.add_(1)
    with pytest.raises(IndexError):
        bad.cpu()
    assert y.tolist() == [value] * 3


def write_and_fail(device, seed: int) -> list[torch.Tensor | None]:
    """Random writes of tensors and their views, an index out of range between them; what they hold after the error.

    None for a tensor that was made behind the error: eager has the one before under its name.
    """
    choose = random.Random(seed)
    tensors = [(torch.arange(12.0) + i).reshape(3, 4).to(device) for i in range(4)]
    index, rows, places = (torch.tensor(i).to(device) for i in ([0, 7], [2, 0], [[1, 3], [0, 2], [3, 0]]))
    if choose.random() < 0.5:
        torch_xla.sync()
    fails_at = choose.randrange(12)
    made_late = set()
    with pytest.raises(IndexError):
        bad = None
        for step in range(14):
            which = choose.randrange(4)
            a, b = tensors[which], choose.choice(tensors)
            if step == fails_at:
                bad = b[index]
            match choose.randrange(12):
                case 0:
                    a.mul_(0.5).add_(b)
                case 1:
                    a[choose.randrange(3)] = b[choose.randrange(3)] + 1
                case 2:
                    a.t()[choose.randrange(4)].add_(2)
                case 3:
                    tensors[which] = a * 0.5 + b
                    if step >= fails_at:
                        made_late.add(which)
                case 4:
                    a.copy_(b.flip(0).cumsum(1) * 0.1)
                case 5:
                    a.view(-1)[::2].neg_()
                case 6:
                    a.view(torch.int32).bitwise_and_(-256)
                case 7:
                    a[rows] = b[:2] + 1
                case 8:
                    a.index_add_(0, rows, b[1:] * 1)
                case 9:
                    a.scatter_(1, places, b[:, :2] * 2)
                case 10:
                    a.t().index_copy_(1, rows, b.t()[:, :2] * 1)
                case 11:
                    a.put_(places, b[:, 2:] * 1, accumulate=True)
        bad.cpu()
    return [None if which in made_late else t.cpu() for which, t in enumerate(tensors)]


@pytest.mark.parametrize("seed", range(60))
def test_random_writes_are_as_in_eager(device, seed):
    for got, expected in zip(write_and_fail(device, seed), write_and_fail("cpu", seed), strict=True):
        if got is not None:
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_runs_behind_a_failed_one(device):
    total = torch.zeros(2, device=device)
    other = torch.zeros(2, device=device)
    torch_xla.sync(wait=True)
    slow = torch.ones(700, 700, device=device)
    for _ in range(5):
        slow = slow @ slow * 1e-3
    index = (slow[0, :1] * 0 + 99).long()
    total.add_(F.embedding(index, torch.ones(4, 2, device=device))[0])
    try:
        torch_xla.sync()
        total.add_(1)
        torch_xla.sync()
        total.add_(1)
        other.add_(1)
        torch_xla.sync(wait=True)
        pytest.fail("no error")
    except IndexError:
        pass
    assert total.tolist() == [0, 0]
    total.add_(3)
    torch_xla.sync(wait=True)
    assert total.tolist() == [3, 3]


def test_errors_in_two_threads(device):
    results = {}

    def work(name, index):
        table = torch.ones(4, 2).to(device)
        outcomes = []
        for _ in range(20):
            try:
                outcomes.append(F.embedding(torch.tensor([index]).to(device), table).sum().item())
            except IndexError:
                outcomes.append("error")
        results[name] = outcomes

    threads = [threading.Thread(target=work, args=args) for args in (("a", 99), ("b", 98))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"a": ["error"] * 20, "b": ["error"] * 20}
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]


PART_WRITES = {
    "index_put_": lambda w, i, v: w.index_put_((i,), v),
    "index_put_ accumulates": lambda w, i, v: w.index_put_((i,), v, accumulate=True),
    "index_add_": lambda w, i, v: w.index_add_(0, i, v),
    "index_copy_": lambda w, i, v: w.index_copy_(0, i, v),
    "index_fill_": lambda w, i, v: w.index_fill_(0, i, 2.0),
    "index_reduce_": lambda w, i, v: w.index_reduce_(0, i, v, "amax"),
    "scatter_": lambda w, i, v: w.scatter_(0, i[:, None].expand(v.shape), v),
    "scatter_ a number": lambda w, i, v: w.scatter_(0, i[:, None], 3.0),
    "scatter_add_": lambda w, i, v: w.scatter_add_(0, i[:, None].expand(v.shape), v),
    "scatter_reduce_": lambda w, i, v: w.scatter_reduce_(0, i[:, None].expand(v.shape), v, "prod"),
    "put_": lambda w, i, v: w.put_(i, v[:, 0]),
}


@pytest.mark.parametrize("name", PART_WRITES)
def test_a_part_that_was_written_in_place_is_taken_back(device, name):
    write = PART_WRITES[name]
    values, good, bad = torch.randn(3, 4), torch.tensor([1, 5, 1]), torch.tensor([2, 99999, 0])
    start = torch.randn(20, 4)
    w, v, i, j = (t.to(device) for t in (start, values, good, bad))
    torch_xla.sync(wait=True)
    lost = None
    with pytest.raises((IndexError, RuntimeError), match="index"):
        write(w, j, v)
        lost = torch.ones(2).to(device)[torch.tensor([5]).to(device)]  # a later check, which is not told
        w.cpu()
    assert torch.equal(w.cpu(), start)
    write(w, i, v)
    write(w, i, v * 2)
    lost = torch.ones(2).to(device)[torch.tensor([5]).to(device)]
    write(w, j[:1], v[:1])
    with pytest.raises(IndexError):
        lost.cpu()
    expected = start.clone()
    write(expected, good, values)
    write(expected, good, values * 2)
    torch.testing.assert_close(w.cpu(), expected, rtol=0, atol=0)


def test_a_read_after_a_failure_that_nobody_has_seen_raises(device):
    x = torch.zeros(3).to(device)
    mask, source = torch.ones(3, dtype=torch.bool).to(device), torch.ones(1).to(device)
    told = 0
    x.masked_scatter_(mask, source)
    for act in (torch_xla.sync, lambda: time.sleep(0.2), x.cpu):
        try:
            act()
        except RuntimeError as error:
            assert "Number of elements of source" in str(error)
            told += 1
    assert told == 1
    assert torch.equal(x.cpu(), torch.zeros(3))


@pytest.mark.parametrize("pause", [0, 0.1], ids=["behind", "after"])
def test_a_copy_that_shared_its_memory_is_taken_back(device, pause):
    """An average is changed behind, or after, the step that fails; the next step changes the weights alone."""
    w = torch.ones(4, 4, device=device)
    average = torch.zeros(4, 4, device=device)
    average.copy_(w)
    with pytest.raises(IndexError, match="out of bounds"):
        loss = w[torch.tensor([0, 9], device=device)].sum()
        w.mul_(0.5)
        torch_xla.sync()
        time.sleep(pause)
        average.lerp_(w, 0.1)
        loss.item()
    w.mul_(2)
    torch_xla.sync(wait=True)
    assert w.sum().item() == 32
    assert average.sum().item() == 16


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_whose_first_step_failed_goes_on(device, optimizer):
    def train(d):
        torch.manual_seed(0)
        layer = nn.Linear(4, 4).to(d)
        x = torch.randn(4, 4).to(d)
        steps = optimizer(layer.parameters())
        events = []
        for step in range(5):
            target = torch.tensor([0, 1, 2, 9 if step == 0 else 3], device=d)
            steps.zero_grad()
            try:
                loss = F.cross_entropy(layer(x), target)
                loss.backward()
                steps.step()
                loss.item()
                events.append("ended")
            except IndexError:
                events.append("raised")
        return events, layer.weight.detach().cpu()

    (expected_events, expected), (events, actual) = train("cpu"), train(device)
    assert events == expected_events
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_an_optimizer_of_sparse_gradients_goes_on_after_an_error(device):
    with pytest.raises(IndexError):
        torch.ones(4, device=device)[torch.tensor([9], device=device)].sum().item()
    embedding = nn.Embedding(10, 4, sparse=True).to(device)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    before = embedding.weight.detach().cpu()
    for _ in range(2):
        optimizer.zero_grad()
        embedding(torch.tensor([1, 2], device=device)).sum().backward()
        optimizer.step()
    changed = torch.zeros(10, 4).index_fill(0, torch.tensor([1, 2]), 0.1 + 0.19)
    torch.testing.assert_close(before - embedding.weight.detach().cpu(), changed)
