"""assume_pure: functions that are recorded at their first call, their gradients, and what another form is."""

import copy
import functools
import threading

import pytest
import torch
from torch import nn

from torch_xla.experimental.assume_pure import assume_pure, PureModule


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.calls = 0
        self._function = function

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self._function(*args, **kwargs)


def test_values_and_gradients_of_calls_that_run_no_python(device):
    counted = Counted(lambda a, b, scale: {"sin": torch.sin(a @ b) * scale, "text": ["kept", None]})
    pure = assume_pure(counted)
    for i in range(5):
        a, b = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
        ours = [t.detach().to(device).requires_grad_() for t in (a, b)]
        first = counted.calls if i == 1 else None
        result = pure(*ours, scale=2.0)
        assert result["text"] == ["kept", None] and first in (None, counted.calls)
        result["sin"].sum().backward()
        (torch.sin(a @ b) * 2).sum().backward()
        for own, eager in zip(ours, (a, b)):
            torch.testing.assert_close(own.grad.cpu(), eager.grad)


def test_what_makes_another_form(device):
    counted = Counted(lambda x, scale=1, *rest: x * scale)
    pure = assume_pure(counted)
    x = torch.ones(2, 3, device=device)
    forms = [
        lambda: pure(x),
        lambda: pure(x.double()),
        lambda: pure(x.t().contiguous().t()),
        lambda: pure(x[:1]),
        lambda: pure(x.clone().requires_grad_()),
        lambda: pure(x, 2),
        lambda: pure(x, 2.0),
        lambda: pure(x, scale=2),
        lambda: pure(x, 1, [x]),
        lambda: pure(x, 1, {"a": x}),
        lambda: torch.no_grad()(pure)(x),
        lambda: torch.autocast("xla", dtype=torch.bfloat16)(pure)(x),
    ]
    for form in forms:
        before = counted.calls
        first = form()
        between = counted.calls
        assert torch.equal(first, form()) and first.dtype == form().dtype
        assert before < between == counted.calls


def test_a_module_in_training_and_evaluation(device):
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    ours = PureModule(copy.deepcopy(eager).to(device))
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (eager, ours)]
    for _ in range(4):
        x = torch.randn(16, 4)
        for model, optimizer, where in zip((eager, ours), optimizers, ("cpu", device)):
            optimizer.zero_grad()
            model(x.to(where)).square().mean().backward()
            optimizer.step()
    eager.eval(), ours.eval()
    torch.testing.assert_close(ours(x.to(device)).cpu(), eager(x))
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(ours._module.state_dict()[name].cpu(), value)


def test_a_seed_is_for_the_calling_thread(device):
    """Another thread that draws meanwhile gets numbers by the device's generator: of two calls with one seed others."""
    drawn, others = [], []

    def draw():
        others.append(torch.rand(4, device=device))

    def noisy(x):
        thread = threading.Thread(target=draw)
        thread.start()
        thread.join()
        return x + torch.rand_like(x)

    pure = assume_pure(noisy, add_rng_seed_argument=True)
    for dims in ((8,), (4, 2)):  # each form is recorded
        drawn.append(pure(torch.zeros(dims, device=device), rng_seed=3).flatten().tolist())
    assert drawn[0] == drawn[1]
    assert len(others) >= 2 and len(torch.stack(others).cpu().unique()) == 4 * len(others)


def test_random_numbers(device):
    x = torch.zeros(50, device=device)
    pure = assume_pure(lambda x: x + torch.rand_like(x))
    assert not torch.equal(pure(x), pure(x))
    # The first draw is used by nobody.
    draw = functools.partial(assume_pure, add_rng_seed_argument=True)
    seeded = draw(lambda x: x + (torch.rand_like(x), torch.rand_like(x))[1])
    state = torch.xla.get_rng_state()
    draws = [seeded(x, rng_seed=seed) for seed in (0, 1, 0)]
    assert torch.equal(draws[0], draws[2]) and not torch.equal(draws[0], draws[1])
    assert torch.equal(state, torch.xla.get_rng_state())
    with pytest.raises(AssertionError, match="rng_seed must be an int"):
        seeded(x)


def test_functions_within_functions_and_arguments_that_are_written(device):
    inner = assume_pure(lambda a, b: a @ b)

    def outer(a, b):
        b.mul_(2)
        return inner(a, b) + 1

    pure = assume_pure(outer)
    for _ in range(3):
        a, b = torch.randn(3, 3), torch.randn(3, 3)
        ours = b.to(device)
        torch.testing.assert_close(pure(a.to(device), ours).cpu(), outer(a, b))
        torch.testing.assert_close(ours.cpu(), b)


def test_transforms(device):
    pure, x = assume_pure(lambda x: x.sin().sum()), torch.randn(4, 3)
    torch.testing.assert_close(torch.func.vmap(pure)(x.to(device)).cpu(), x.sin().sum(1))
    torch.testing.assert_close(torch.func.grad(pure)(x.to(device)).cpu(), x.cos())


def test_bad_arguments_and_tensors_of_the_cpu(device):
    pure = assume_pure(lambda x, other=None: x + 1)
    with pytest.raises(TypeError, match="tensors and hashable values: unhashable type: 'set'"):
        pure(torch.ones(2, device=device), {1, 2})
    assert pure(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="broadcast"):
        assume_pure(lambda a, b: a + b)(torch.ones(2, device=device), torch.ones(3, device=device))
