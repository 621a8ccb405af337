"""Recurrent layers of every kind and form have eager's values and gradients, natively."""

import copy
import functools

import pytest
import torch
from eager import check, differentiated, tensors_of
from test_ops import fallen_operations
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torch_xla
import torch_xla.debug.metrics as met

FORMS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "bidirectional": {"bidirectional": True},
    "layers": {"num_layers": 3},
    "all": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no_bias": {"bias": False, "batch_first": True},
}
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": lambda *a, **k: nn.RNN(*a, nonlinearity="tanh", **k),
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "lstm_projected": lambda *a, **k: nn.LSTM(*a, proj_size=5, **k),
}


def _compare(module, call, *inputs, grad=True):
    """Values, and gradients of all parameters and inputs."""
    met.clear_all()
    check(differentiated(call, *inputs, model=module, grad=grad), tolerance=1e-4, atol=2e-5)
    assert not fallen_operations()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind, form, grad):
    torch.manual_seed(0)
    model = KINDS[kind](8, 12, **FORMS[form]).eval()
    _compare(model, lambda m, x: m(x), torch.randn(4, 6, 8), grad=grad)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_states_given(kind, grad):
    torch.manual_seed(0)
    model = KINDS[kind](8, 12, num_layers=2)
    states = [torch.randn(2, 6, 12) for _ in range(2 if kind == "lstm" else 1)]

    def call(m, x, *h):
        return m(x, h if kind == "lstm" else h[0])

    _compare(model, call, torch.randn(4, 6, 8), *states, grad=grad)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("layout", ["transposed", "permuted", "sliced", "expanded", "unbatched", "one_step"])
def test_inputs_in_other_memory_orders(kind, layout, grad):
    torch.manual_seed(0)
    model = KINDS[kind](8, 12, batch_first=layout == "sliced")
    x = torch.randn(6, 4, 8)

    def lay_out(x):
        return {
            "transposed": lambda: x.transpose(0, 1),
            "permuted": lambda: x.permute(2, 1, 0).contiguous().permute(2, 1, 0).transpose(0, 1).contiguous(),
            "sliced": lambda: torch.cat([x, x], 2)[1:, 1:, ::2],
            "expanded": lambda: x[:1].expand(5, 4, 8),
            "unbatched": lambda: x[0],
            "one_step": lambda: x[:1],
        }[layout]()

    _compare(model, lambda m, x: m(lay_out(x)), x, grad=grad)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("form", ["plain", "all"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_packed_sequences(kind, form, grad):
    torch.manual_seed(0)
    model = KINDS[kind](8, 12, **FORMS[form])
    x = torch.randn(4, 6, 8)

    def call(m, x):
        packed = pack_padded_sequence(x, [6, 2, 5, 1], batch_first=m.batch_first, enforce_sorted=False)
        output, states = m(packed)
        return pad_packed_sequence(output, batch_first=m.batch_first)[0], states

    x = x if model.batch_first else x.transpose(0, 1)
    check(differentiated(call, x, model=model, grad=grad), tolerance=1e-4, atol=2e-5)


@pytest.mark.parametrize("make", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_cells(make, bias, grad):
    torch.manual_seed(0)

    def call(m, x):
        state = m(x[0])
        for step in x[1:]:
            state = m(step, state)
        return state

    _compare(make(8, 12, bias=bias), call, torch.randn(3, 6, 8), grad=grad)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_dropout_between_layers(kind):
    torch.manual_seed(0)
    model = KINDS[kind](8, 12, num_layers=2, dropout=0.5).to("xla")
    x = torch.randn(4, 6, 8).to("xla")
    a, b = model(x)[0], model(x)[0]
    assert not torch.equal(a.cpu(), b.cpu())
    model.eval()
    assert torch.equal(model(x)[0].cpu(), model(x)[0].cpu())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(kind, dtype):
    torch.manual_seed(0)
    model = KINDS[kind](8, 12, batch_first=True).to(dtype)
    x = torch.randn(4, 6, 8).to(dtype)
    tolerance = 1e-6 if dtype == torch.float64 else 3e-2
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            actual = copy.deepcopy(model).to("xla")(x.to("xla"))[0]
            torch.testing.assert_close(actual.cpu(), model(x)[0], rtol=tolerance, atol=tolerance)


def _penalty(model, x):
    """The program of the gradient of the gradient of a layer's output, by the input and the parameters."""

    def program(device):
        moved, leaf = copy.deepcopy(model).to(device), x.to(device).requires_grad_()
        (grad,) = torch.autograd.grad(tensors_of(moved(leaf))[0].square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), [leaf, *moved.parameters()])

    return program


def test_second_derivatives():
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
    check(_penalty(nn.GRUCell(3, 4).double(), x))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_second_derivatives_of_layers(kind):
    torch.manual_seed(0)
    check(_penalty(KINDS[kind](8, 12, num_layers=2), torch.randn(4, 6, 8)), tolerance=1e-4, atol=1e-5)


@functools.cache
def _eager_has_bfloat16_lstm() -> bool:
    try:
        with torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(2, 2)(torch.zeros(1, 1, 2))
    except RuntimeError as error:  # oneDNN's, on processors without AVX-512
        if "primitive descriptor" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "tanh"])
def test_autocast_gives_eagers_types_and_values(kind, grad):
    if kind == "lstm" and not _eager_has_bfloat16_lstm():
        pytest.skip("eager has no LSTM in bfloat16 on this processor")
    torch.manual_seed(0)
    model, types = KINDS[kind](8, 12, num_layers=2, bidirectional=True), []

    def call(m, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            results = tensors_of(m(x))
        types.append([t.dtype for t in results])
        return [t.float() for t in results]

    check(differentiated(call, torch.randn(4, 6, 8), model=model, grad=grad), tolerance=5e-2)
    assert types[0] == types[1]


def test_lstm_without_onednn():
    torch.manual_seed(0)
    with torch.backends.mkldnn.flags(enabled=False):
        _compare(nn.LSTM(8, 12, num_layers=2), lambda m, x: m(x), torch.randn(4, 6, 8))


def test_lstm_of_changing_lengths():
    torch.manual_seed(0)
    model = nn.LSTM(8, 12, bidirectional=True)
    for steps in (1, 7, 3, 7, 12):
        _compare(model, lambda m, x: m(x), torch.randn(steps, 5, 8))


class Classifier(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = KINDS[kind](8, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0].mean(1))


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_training(kind):
    torch.manual_seed(0)
    model, x, target = Classifier(kind), torch.randn(5, 7, 8), torch.randint(0, 4, (5,))
    losses = {}
    for device in ("cpu", "xla"):
        trained = copy.deepcopy(model).to(device)
        optimizer = torch.optim.Adam(trained.parameters(), lr=0.01)
        losses[device] = []
        met.clear_all()
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(x.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            losses[device].append(loss.detach())
        losses[device] = torch.stack(losses[device]).cpu()
    torch.testing.assert_close(losses["xla"], losses["cpu"], rtol=1e-3, atol=1e-4)
    assert not fallen_operations()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_bad_sizes_raise(kind):
    model = KINDS[kind](8, 12).to("xla")
    with pytest.raises((RuntimeError, ValueError)):
        model(torch.randn(4, 6, 9).to("xla"))
    with pytest.raises(RuntimeError):
        cell = nn.GRUCell(8, 12).to("xla")
        cell(torch.randn(6, 8).to("xla"), torch.randn(5, 12).to("xla"))
    x, state = torch.randn(4, 6, 9).to("xla"), torch.zeros(1, 6, 12).to("xla")
    weights = [w.detach() for w in model.parameters()]
    hx = (state, state) if kind == "lstm" else state
    with pytest.raises(RuntimeError):
        getattr(torch, kind)(x, hx, weights, True, 1, 0.0, False, False, False)
    torch_xla.sync()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["GRUCell", "LSTMCell", "GRU"])
def test_forward_mode_gradients(device, name, bias):
    torch.manual_seed(0)
    module, x = getattr(nn, name)(3, 4, bias=bias), torch.randn(2, 3) if "Cell" in name else torch.randn(5, 2, 3)
    found = []
    for d in ("cpu", device):
        module.to(d)

        def function(x):
            result = module(x)
            return result[0] if isinstance(result, tuple) else result

        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.to(d), torch.ones_like(x, device=d))
            tangent = torch.autograd.forward_ad.unpack_dual(function(dual)).tangent.detach()
        _, pushed = torch.func.jvp(function, (x.to(d),), (torch.ones_like(x, device=d),))
        hessian = torch.func.hessian(lambda x: function(x).square().sum())(x.to(d))
        found.append([t.cpu() for t in (tangent, pushed.detach(), hessian.detach())])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)
