"""Small programs run operation by operation before they are compiled: values, errors, counts, what is compiled.

Each program here is a process of its own, as the other tests compile everything. The operators' values:
`make test-interpreted`.
"""

import pytest

pytestmark = pytest.mark.skipif("os.environ.get('PJRT_DEVICE', 'CPU') != 'CPU'", reason="plugins compile everything")

START = """
import torch
import torch_xla
import torch_xla.debug.metrics as met
from torch_xla import _XLAC

def count():
    return tuple(met.counter_value(name) or 0 for name in ("UncachedCompile", "ReplannedProgram", "PromotedProgram"))

def steps(function):
    "The steps of what runs, as (kind, name)."
    _XLAC._start_events()
    function()
    torch_xla.sync(wait=True)
    return [(e["phase"], e["name"]) for e in _XLAC._stop_events() if e["phase"] in ("kernel", "library", "update")]
"""


def interpreted(run_python, source: str, operations: int = 5000, **env) -> list[str]:
    """Runs a program with so many operations of each small program interpreted. The words that it prints."""
    environment = {"XLA_PERSISTENT_CACHE_PATH": "", "XLA_INTERPRETED_OPERATIONS": str(operations), **env}
    return run_python(START + source, **environment).split()


def test_values_are_eagers_to_the_bit_until_it_is_compiled(run_python):
    source = """
def f(x):
    return torch.softmax(torch.tanh(x @ x.t()) * 3, -1).exp().sum(0)

cpu = torch.randn(5, 5)
x = cpu.xla()
torch_xla.sync(wait=True)
for _ in range(4):
    assert torch.equal(f(x).cpu(), f(cpu))
print(*count())
for _ in range(4):
    torch.testing.assert_close(f(x).cpu(), f(cpu))
print(*count())
"""
    assert interpreted(run_python, source, operations=4 * 7) == ["1", "0", "0", "1", "0", "1"]


def test_whole_numbers_of_floats(run_python):
    source = """
for dtype in (torch.int64, torch.int32, torch.uint8, torch.float32):
    for numbers in ((0, 64, 2.0), (0.5, 9), (1.5, 20.5, 2.5)):
        assert torch.equal(torch.arange(*numbers, dtype=dtype, device="xla").cpu(), torch.arange(*numbers, dtype=dtype))
print(*count())
"""
    assert interpreted(run_python, source)[2] == "0"


def test_other_sizes_are_no_compiles(run_python):
    source = """
for size in range(2, 30):
    x = torch.arange(float(size)).xla()
    assert torch.equal((x.flip(0) * 2 + 1).cpu(), torch.arange(float(size)).flip(0) * 2 + 1)
print(*count())
"""
    assert interpreted(run_python, source) == ["1", "27", "0"]


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_gradients_that_a_fused_update_leaves_as_they_are_keep_their_memory(run_python, name):
    source = f"""
w = torch.nn.Parameter(torch.ones(4, 8, device="xla"))
optimizer = torch.optim.{name}([w], fused=True)
(w * torch.arange(8.0, device="xla")).sum().backward()
torch_xla.sync(wait=True)
optimizer.step()
torch_xla.sync(wait=True)
others = [torch.full((4, 8), 0.5, device="xla") + i for i in range(20)]  # memory that is free by now
torch_xla.sync(wait=True)
assert torch.equal(w.grad.cpu(), torch.arange(8.0).expand(4, 8))
"""
    interpreted(run_python, source)


def test_a_probability_above_one_costs_nothing_that_was_recorded_before_it(run_python):
    source = """
x = torch.zeros(3, device="xla")
torch_xla.sync()
x.add_(1)
drawn = torch.bernoulli(x + 1)
x.mul_(5)
try:
    drawn.cpu()
except RuntimeError as error:
    print(*x.tolist())
"""
    assert interpreted(run_python, source) == ["1.0", "1.0", "1.0"]


def test_values_that_share_memory_are_values_of_their_own(run_python):
    source = """
x = torch.arange(12.0).view(3, 4).xla()
torch_xla.sync(wait=True)
t, row, same, half = x.t(), x[1], x + 0, x.view(2, 6)[:, ::2]
y = x.relu().expand(2, 3, 4)
z = y.contiguous()
torch_xla.sync(wait=True)
z[0] += 1
row.mul_(10)
expected = torch.arange(12.0).view(3, 4)
assert torch.equal(same.cpu(), expected) and torch.equal(y.cpu(), expected.expand(2, 3, 4))
assert torch.equal(z.cpu(), torch.stack([expected + 1, expected]))
expected[1] *= 10
assert torch.equal(x.cpu(), expected) and torch.equal(t.cpu(), expected.t())
assert torch.equal(half.cpu(), expected.view(2, 6)[:, ::2])
buffer = torch.zeros(4, 3, device="xla")
for i in range(4):
    buffer[i] = i
    torch_xla.sync()
assert buffer.tolist() == [[float(i)] * 3 for i in range(4)]
print("good")
"""
    assert interpreted(run_python, source) == ["good"]


def test_training_is_eagers_to_the_bit(run_python):
    source = """
def train(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3), torch.nn.Softplus()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = torch.randn(5, 6).to(device), torch.tensor([0, 1, 2, 1, 0]).to(device)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return [loss.detach(), *[p.detach() for p in model.parameters()]]

for a, b in zip(train("xla"), train("cpu")):
    assert torch.equal(a.cpu(), b)
print(count()[2])
"""
    assert interpreted(run_python, source) == ["0"]


def test_errors_of_runs(run_python):
    source = """
x, index = torch.arange(4.0).xla(), torch.tensor([1, 9]).xla()
torch_xla.sync(wait=True)
try:
    x.index_select(0, index).cpu()
except Exception as error:
    print(type(error).__name__, "index_select" in str(error), "<string>" in str(error))
print(*(x + 1).tolist())
"""
    assert interpreted(run_python, source) == ["IndexError", "True", "True", "1.0", "2.0", "3.0", "4.0"]


STEPS = """
x = torch.ones(4, device="xla")
torch_xla.sync(wait=True)
{before}
print(*sorted({{phase for phase, _ in steps(lambda: globals().update(y={what}))}}))
"""


@pytest.mark.parametrize(
    ("what", "before", "kind"),
    [
        ("x * 2 + 1", "", "library"),
        ("x * 2 + 1", "torch.use_deterministic_algorithms(True)", "kernel"),
        ("torch.full((1 << 16,), 2.0, device='xla').exp()", "", "kernel"),  # large
    ],
    ids=["small", "deterministic", "large"],
)
def test_what_is_compiled_at_once(run_python, what, before, kind):
    assert interpreted(run_python, STEPS.format(what=what, before=before)) == [kind]


def test_operations_without_a_kernel_of_atens(run_python):
    source = """
torch.manual_seed(0)
cell = torch.nn.GRUCell(3, 4).xla()
x, state = torch.ones(2, 3).xla().requires_grad_(), torch.ones(2, 4).xla().t().contiguous().t()

def work():
    dropped = torch.nn.functional.dropout(cell(x, state), 0.5)
    (dropped * torch.rand(4, device="xla")).sum().backward()

torch_xla.sync(wait=True)
alone = {"aten::_thnn_fused_gru_cell", "aten::native_dropout"} <= {name for _, name in steps(work)}
print(alone, *count(), *x.grad.flatten().tolist(), *cell.weight_hh.grad.flatten().tolist())
"""
    first, compiled = interpreted(run_python, source), interpreted(run_python, source, operations=0)
    assert first[0] == "True" and first[3] == "0" and compiled[0] == "False"
    numbers, expected = [float(word) for word in first[4:]], [float(word) for word in compiled[4:]]
    assert any(numbers) and numbers == pytest.approx(expected, rel=1e-5)


def test_errors_of_operations_without_a_kernel_of_atens(run_python):
    source = """
weights, x = torch.tensor([0.0, 0.0]).xla(), torch.ones(3).xla()
torch_xla.sync(wait=True)
try:
    torch.multinomial(weights, 1).cpu()
except Exception as error:
    print(type(error).__name__, str(error).count("aten::multinomial: "), "<string>" in str(error))
print(*(x + 1).tolist())
"""
    assert interpreted(run_python, source) == ["RuntimeError", "1", "True", "2.0", "2.0", "2.0"]


def test_switched_off(run_python):
    assert interpreted(run_python, STEPS.format(what="x * 2 + 1", before=""), operations=0) == ["kernel"]


def test_a_deterministic_program_takes_the_place_of_an_interpreted_one(run_python):
    source = """
x = torch.ones(4, device="xla")
torch_xla.sync(wait=True)
for deterministic in (False, True, False):
    torch.use_deterministic_algorithms(deterministic)
    print(*{phase for phase, _ in steps(lambda: globals().update(y=x * 2 + 1))})
"""
    assert interpreted(run_python, source) == ["library", "kernel", "kernel"]


def test_a_captured_step_is_compiled(run_python):
    source = """
step = torch_xla.compile(lambda x: x * 2 + 1, replay=True)
x = torch.ones(4, device="xla")
step(x), step(x)
torch_xla.sync(wait=True)
print(*{phase for phase, _ in steps(lambda: step(x))})
"""
    assert interpreted(run_python, source) == ["kernel"]


def test_a_second_start_counts_nothing(run_python, tmp_path):
    source = """
x = torch.ones(4, device="xla")
print(*(x * 2 + 1).tolist(), *count(), met.counter_value("PersistentCacheHit") or 0)
"""
    values = ["3.0"] * 4
    path = str(tmp_path)
    assert interpreted(run_python, source, XLA_PERSISTENT_CACHE_PATH=path) == [*values, "1", "0", "0", "0"]
    assert interpreted(run_python, source, XLA_PERSISTENT_CACHE_PATH=path) == [*values, "0", "0", "0", "1"]
    # One that compiles everything does not take it for a program, and leaves its own in its place.
    assert interpreted(run_python, source, 0, XLA_PERSISTENT_CACHE_PATH=path) == [*values, "1", "0", "0", "0"]
    assert interpreted(run_python, source, 0, XLA_PERSISTENT_CACHE_PATH=path) == [*values, "0", "0", "0", "1"]


def test_threads(run_python):
    source = """
import threading

def work(number):
    for size in range(1, 60):
        x = torch.full((size,), float(number), device="xla")
        assert (x * 2).sum().item() == 2 * number * size
        done.append(number)

done = []
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(len(done))
"""
    assert interpreted(run_python, source) == ["236"]
