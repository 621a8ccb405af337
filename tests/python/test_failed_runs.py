"""Errors of runs: what they cost, what keeps its value, who is told and when, and how work is cancelled."""

import random
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla

CLASSES = 5
OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
}


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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
def test_tensors_that_share_a_value_keep_their_own(device):
    a, b = torch.zeros(3, device=device), torch.ones(3, device=device)
    torch_xla.sync(wait=True)
    b.mul_(5)
    a.copy_(b)
    bad = F.embedding(torch.tensor([99], device=device), torch.ones(4, 2, device=device))
    b.mul_(2)
    a.add_(1)
    with pytest.raises(IndexError):
        bad.cpu()
    assert a.tolist() == [5, 5, 5]
    assert b.tolist() == [5, 5, 5]


@pytest.mark.checks_values
@pytest.mark.parametrize("before", [True, False], ids=["kept", "taken back"])
def test_a_transposed_write_has_its_own_order(device, before):
    x = torch.arange(6.0).reshape(2, 3).to(device)
    torch_xla.sync(wait=True)
    for fails in (not before, before):
        if fails:
            bad = F.embedding(torch.tensor([99], device=device), torch.ones(4, 2, device=device))
        else:
            x.t().copy_(torch.ones(3, 2, device=device) + x.t())
    x.copy_(torch.zeros(2, 3, device=device) + 1)
    with pytest.raises(IndexError):
        bad.cpu()
    assert x.tolist() == ([[1, 2, 3], [4, 5, 6]] if before else [[0, 1, 2], [3, 4, 5]])


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
@pytest.mark.parametrize("seed", range(60))
def test_random_writes_are_as_in_eager(device, seed):
    for got, expected in zip(write_and_fail(device, seed), write_and_fail("cpu", seed), strict=True):
        if got is not None:
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.checks_values
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


@pytest.mark.parametrize("kept", [True, False], ids=["result", "scratch"])
def test_running_out_of_memory_is_told_once_and_costs_no_weights(device, kept):
    network, optimizer = make_network(device, "adam")
    (ids, classes), (other_ids, other_classes) = make_batches(2, -1, "index")
    train_step(network, optimizer, ids.to(device), classes.to(device)).item()
    before = {name: value.cpu().clone() for name, value in network.state_dict().items()}
    huge = None
    with pytest.raises(torch.OutOfMemoryError):
        column = torch.ones(2**19 + 64, 1, device=device) * classes[0].item()
        huge = column @ column.t()
        scale = huge.sum() * 0 + 1
        if not kept:
            huge = None
        optimizer.zero_grad()
        (F.cross_entropy(network(other_ids.to(device)), other_classes.to(device)) * scale).backward()
        optimizer.step()
        torch_xla.sync(wait=True)
    del huge, scale
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value.cpu(), before[name], rtol=0, atol=0)
    optimizer.zero_grad()
    train_step(network, optimizer, ids.to(device), classes.to(device)).item()
    torch_xla.sync(wait=True)


def test_a_library_call_out_of_memory_is_of_pytorchs_class(device):
    # Convolutions allocate while they run.
    x = torch.ones(1, 1, 2**10, 2**10, device=device)
    torch_xla.sync(wait=True)
    with pytest.raises(torch.OutOfMemoryError):
        y = F.conv2d(x, torch.ones(2**19, 1, 1, 1, device=device))
        torch_xla.sync(wait=True)
    del y
    assert x[0, 0, 0, :2].tolist() == [1, 1]


@pytest.mark.checks_values
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


# ---- Cancelled work ----
INTERRUPTED = """
    import os, signal, threading
    import torch, torch_xla
    p = torch.zeros(3, device="xla")
    x = torch.randn(2500, 2500, device="xla")
    torch_xla.sync(wait=True)
    {handler}
    try:
        for _ in range(2):
            for _ in range(1000):  # more than the time limit of the process
                x = x @ x * 1e-3
            p.add_(1)
            torch_xla.sync()
        # Now that all is queued: what an interrupt leaves recorded would run at the next sync.
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.{signal})).start()
        torch_xla.sync(wait=True)
        print("ended")
    except {error}:
        print("interrupted")
    torch_xla.sync(wait=True)
    print(p.tolist())
    try:
        x.cpu()
    except RuntimeError as error:
        print("cancelled" in str(error))
    p.add_(2)
    torch_xla.sync(wait=True)
    print(p.tolist())
"""


def test_an_interrupt_cancels_queued_work_and_the_process_goes_on(run_python):
    out = run_python(INTERRUPTED.format(handler="", signal="SIGINT", error="KeyboardInterrupt"))
    assert out == "interrupted\n[0.0, 0.0, 0.0]\nTrue\n[2.0, 2.0, 2.0]\n"


def test_a_handler_of_sigterm_cancels_queued_work(run_python):
    handler = "signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(3)))"
    out = run_python(INTERRUPTED.format(handler=handler, signal="SIGTERM", error="SystemExit"))
    assert out == "interrupted\n[0.0, 0.0, 0.0]\nTrue\n[2.0, 2.0, 2.0]\n"


@pytest.mark.parametrize(
    "program",
    [
        "f(8), f(5000)",  # the same program, which was short
        "torch.zeros(1 << 38, device='xla').sum().item()",  # of no memory
    ],
)
def test_ctrl_c_ends_a_program_that_looks_short(run_python, program):
    out = run_python(
        f"""
        import os, signal, threading, time
        import torch, torch_xla
        def f(n):
            ones = torch.ones(n, n, device="xla")
            return sum((ones * i @ ones).tanh().sum() for i in range(1, 30)).item()
        start = time.monotonic()
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            {program}
        except KeyboardInterrupt:
            print(time.monotonic() - start < 8, flush=True)
        os._exit(0)
        """,
        PJRT_DEVICE="CPU",  # the embedded engine, also where a plugin is under test: its programs end as a whole
    )
    assert out == "True\n"


# ---- The end of the process ----
@pytest.mark.checks_values
def test_an_error_that_nobody_was_told_is_printed_at_exit_with_status_1(run_python):
    source = """
        import torch, torch_xla
        table, x = torch.ones(4, 2, device="xla"), torch.randn(1500, 1500, device="xla")
        for _ in range(20):  # keeps the queue from the error, which the sync would tell if it knew
            x = x @ x * 1e-3
        torch_xla.sync()
        lost = torch.nn.functional.embedding(torch.tensor([99], device="xla"), table)
        torch_xla.sync()
        {last}
    """
    out = run_python(source.format(last="pass"), returncode=1)
    assert "Exception ignored" in out
    assert "aten::embedding" in out
    assert "<string>:7" in out
    told = "\n        try: lost.cpu()\n        except IndexError: print('told')"
    assert run_python(source.format(last=told)) == "told\n"
    out = run_python(source.format(last="raise SystemExit(5)"), returncode=5)
    assert "Exception ignored" in out


def test_a_process_that_ends_by_an_exception_drops_its_queue(run_python):
    out = run_python(
        """
        import torch, torch_xla
        x = torch.randn(2500, 2500, device="xla")
        for _ in range(3):
            for _ in range(20):
                x = x @ x * 1e-3
            torch_xla.sync()
        raise KeyError("the user's own")
        """,
        returncode=1,
    )
    assert "the user's own" in out
    assert "XLA" not in out.split("KeyError")[1]


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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


@pytest.mark.checks_values
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


# ---- What the system refuses ----
REFUSING = """
    import contextlib, encodings.idna, os, resource  # idna: another user may not read what Python imports late
    import torch, torch_xla

    @contextlib.contextmanager
    def no_more_threads():
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        is_root = os.getuid() == 0
        if is_root:
            os.setresuid(65534, 65534, 0)  # root has no limit
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
            if is_root:
                os.setresuid(0, 0, 0)

    def refusal_of(call):
        with no_more_threads():
            try:
                call()
            except RuntimeError as error:
                return str(error)
"""


@pytest.mark.parametrize("call", ["torch_xla.sync()", "x.sum().item()", "y.cpu()", "torch.linalg.svd(x)"])
def test_a_device_whose_thread_cannot_start_works_later(run_python, call):
    out = run_python(
        REFUSING
        + f"""
    weight = torch.ones(4, device="xla")
    x = torch.ones(4, 4, device="xla") * 2
    y = x + 1
    weight.add_(1)
    text = refusal_of(lambda: {call})
    assert "cannot start the thread xla_executor_0" in text and "ulimit -u" in text, text
    {call}
    torch_xla.sync(wait=True)
    print(weight.tolist(), x[0].tolist(), y[0].tolist())
    """,
        timeout=60,
    )
    assert out == f"{[2.0] * 4} {[2.0] * 4} {[3.0] * 4}\n"


def test_kernels_are_compiled_without_more_threads(run_python):
    out = run_python(
        REFUSING
        + """
    torch.set_num_threads(1)
    (torch.ones(4, device="xla") + 1).tolist()  # the device has its thread
    xs = [torch.ones(n, 64, device="xla") for n in range(2, 8)]
    results = []
    text = refusal_of(lambda: results.extend(x.cumsum(0).sin().sum(1).sort()[0].tanh().sum().item() for x in xs))
    print(text, len(results))
    """,
        XLA_PERSISTENT_CACHE_PATH="",
        timeout=60,
    )
    assert out == "None 6\n"


THREADS_OF_PYTHON = {
    "step closure": (
        "xm.add_step_closure(lambda: told.append(1), run_async=True)",
        "torch_xla.sync()",
        "torch_xla.sync(); time.sleep(0.5); torch_xla.sync()",
    ),
    "profiler server": ("", "xp.start_server(port)", "xp.start_server(port) and told.append(1)"),
    "loader": ("", "next(iter(loader))", "next(iter(loader)); told.append(1)"),
    "data parallel": (
        "CALLS = []",
        "run_replicas([torch.device('xla:0')] * 2, CALLS.append)",
        "run_replicas([torch.device('xla:0')], CALLS.append); told.extend(c + 1 for c in CALLS)",
    ),
}


@pytest.mark.parametrize("name", THREADS_OF_PYTHON)
def test_a_thread_of_the_package_that_cannot_start_starts_later(run_python, name):
    before, call, again = THREADS_OF_PYTHON[name]
    out = run_python(
        REFUSING
        + f"""
    import socket, time
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.profiler as xp
    from torch_xla.distributed.data_parallel import run_replicas
    from torch_xla.distributed.parallel_loader import MpDeviceLoader
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    loader = MpDeviceLoader([torch.ones(2)] * 3, torch_xla.device())
    (torch.ones(4, device="xla") + 1).tolist()  # the device has its thread
    told = []
    {before}
    print(refusal_of(lambda: {call}))
    {again}
    print(told)
    """,
        timeout=60,
    )
    assert out == "can't start new thread\n[1]\n"


def test_a_compile_without_memory_is_an_error_and_the_device_works_later(run_python):
    out = run_python(
        """
    import resource, torch, torch_xla
    from torch_xla import _XLAC
    def limit(more):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (-1 if more is None else now + more, -1))
    given, weight = torch.arange(8.0).to("xla"), torch.ones(8).to("xla")
    (torch.ones(4, device="xla") + 1).tolist()
    refused = 0
    for attempt in range(12):
        y = given
        for _ in range(20 + attempt):
            y = torch.where(y > attempt, y.sin() * attempt, y.cos().sqrt())  # a kernel that needs memory to be compiled
        weight.add_(y.sum() * 0)
        _XLAC._set_buffer_donation(given, True)
        limit(attempt << 21)
        try:
            torch_xla.sync(wait=True)
            limit(None)
        except torch.OutOfMemoryError as error:
            limit(None)
            refused += 1
            assert _XLAC._get_buffer_donation(given) and not _XLAC._is_placecholder(given), str(error)
        else:
            given = torch.arange(8.0).to("xla")
        assert given.tolist() == list(range(8)), attempt
        assert weight.tolist() == [1] * 8, attempt
        del y
    print(refused > 0, (torch.ones(3, device="xla") * 2).tolist())
    """,
        XLA_PERSISTENT_CACHE_PATH="",
        timeout=100,
    )
    assert out == "True [2.0, 2.0, 2.0]\n"
