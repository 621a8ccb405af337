"""What traces programs: torch.compile's backends, export, make_fx, fake and functional tensors, torch.func, modes."""

import copy
import io

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

BACKENDS = ["inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "openxla"]


def pointwise(x, y):
    return torch.relu(x * y + 2).sin()


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def pair(device):
    """Two CPU tensors."""
    return torch.randn(4, 4), torch.randn(4, 4)


def check(on_device, expected):
    assert on_device.device.type == "xla"
    torch.testing.assert_close(on_device.detach().cpu(), expected.detach())


# ---- torch.compile ----
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compile(pair, device, backend, dynamic):
    compiled = torch.compile(pointwise, backend=backend, dynamic=dynamic, fullgraph=True)
    x, y = (t.clone().requires_grad_() for t in pair)
    a, b = (t.to(device).requires_grad_() for t in pair)
    result, expected = compiled(a, b), pointwise(x, y)
    check(result, expected)
    result.sum().backward()
    expected.sum().backward()
    check(a.grad, x.grad)
    check(b.grad, y.grad)
    check(compiled(a[:3], b[:3]), pointwise(x[:3], y[:3]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_compile_writes_into_its_input(pair, device, backend):
    def write(x):
        x.add_(1)
        x[0].mul_(2)
        return x.t()

    x, a = pair[0].clone(), pair[0].to(device)
    result = torch.compile(write, backend=backend)(a)
    check(result, write(x))
    check(a, x)
    assert result._is_view() and result.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager", "openxla"])
def test_compiled_module_trains(device, backend):
    on_cpu = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.GELU())
    on_device = copy.deepcopy(on_cpu).to(device)
    x = torch.randn(2, 3, 8, 8)
    compiled = torch.compile(on_device, backend=backend)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (on_cpu, on_device)]
    for _ in range(3):
        losses = [on_cpu(x).square().mean(), compiled(x.to(device)).square().mean()]
        for loss, optimizer in zip(losses, optimizers):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(losses[1].cpu(), losses[0], rtol=1e-3, atol=1e-5)
    for name, value in on_cpu.state_dict().items():
        torch.testing.assert_close(on_device.state_dict()[name].cpu(), value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reduces", [False, True])
def test_inductor_itself_says_what_to_use(device, reduces):
    from torch._inductor.compile_fx import compile_fx

    def program(x):
        return x.var(0) if reduces else x + 1

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r'"inductor" does not generate.*"aot_eager"'):
        torch.compile(program, backend=compile_fx)(torch.ones(3, 4, device=device))


# ---- Tracers ----
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(pair, device, mode):
    x, y = (t.to(device) for t in pair)
    graph = make_fx(pointwise, tracing_mode=mode)(x, y)
    assert [str(n.target) for n in graph.graph.nodes if n.op == "call_function"] == [
        "aten.mul.Tensor",
        "aten.add.Tensor",
        "aten.relu.default",
        "aten.sin.default",
    ]
    check(graph(x, y), pointwise(*pair))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_make_fx_of_a_gradient(pair, device, mode):
    def gradient(x, y):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(pointwise(x, y).sum(), x)[0]

    x, y = (t.to(device) for t in pair)
    check(make_fx(gradient, tracing_mode=mode)(x, y)(x, y), gradient(*pair))


class Counting(nn.Module):
    """A module with a buffer that it writes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return pointwise(self.linear(x), self.calls)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("strict", [False, True])
def test_export(pair, device, strict):
    on_cpu = Counting()
    shapes = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(
        copy.deepcopy(on_cpu).to(device), (pair[0].to(device),), dynamic_shapes=shapes, strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    expected = on_cpu(pair[0][:3])
    for each in (program, torch.export.load(file).run_decompositions()):
        check(each.module()(pair[0][:3].to(device)), expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(pair, device, sign):
    def choose(p, x):
        return torch.cond(p > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))

    x, a = pair[0].clone().requires_grad_(), pair[0].to(device).requires_grad_()
    expected, result = choose(torch.tensor(sign), x), choose(torch.tensor(sign, device=device), a)
    check(result, expected)
    expected.sum().backward()
    result.sum().backward()
    check(a.grad, x.grad)


# ---- Fake and functional tensors, torch.func, modes ----
def test_fake_tensors(pair, device):
    mode = FakeTensorMode()
    x = mode.from_tensor(pair[0].to(device).requires_grad_())
    with mode:
        result = pointwise(x, torch.ones(4, device=device))
        result.sum().backward()
    assert result.device == x.grad.device == device and x.grad.shape == (4, 4)


def test_functional_tensors(pair, device):
    def write(x):
        x = x.clone()
        x.view(-1).add_(1)
        return x.relu_()

    on_device = pair[0].to(device)
    check(torch.func.functionalize(write)(on_device), write(pair[0]))
    with FunctionalTensorMode():
        result = write(FunctionalTensor.to_functional(on_device))
        torch._sync(result)
        plain = torch._from_functional_tensor(result.elem)
    check(plain, write(pair[0]))


@pytest.mark.parametrize(
    "transform",
    [
        torch.vmap(pointwise),
        torch.vmap(pointwise, in_dims=(0, None)),
        torch.func.grad(lambda x, y: pointwise(x, y).sum()),
        torch.vmap(torch.func.grad(lambda x, y: pointwise(x, y).sum())),
        torch.func.jacrev(pointwise, argnums=1),
        torch.func.jacfwd(pointwise),
        torch.func.hessian(lambda x, y: pointwise(x, y).sum()),
        lambda x, y: torch.func.jvp(pointwise, (x, y), (y, x))[1],
        lambda x, y: torch.func.vjp(pointwise, x, y)[1](y)[0],
    ],
    ids=["vmap", "in_dims", "grad", "vmap_grad", "jacrev", "jacfwd", "hessian", "jvp", "vjp"],
)
def test_function_transforms(pair, device, transform):
    check(transform(*(t.to(device) for t in pair)), transform(*pair))
    compiled = torch.compile(transform, backend="aot_eager")
    check(compiled(*(t.to(device) for t in pair)), transform(*pair))


def test_a_dispatch_mode_sees_each_operation(pair, device):
    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    x, a = pair[0].clone(), pair[0].to(device)
    for t in (x, a):
        with Log():
            pointwise(t, t)
            t.add_(1)
            torch.mul(t, t, out=t)
            with torch.no_grad():
                t.neg_()
    assert seen == ["mul", "add", "relu", "sin", "add_", "mul", "neg_"] * 2
    check(a, x)


@pytest.mark.parametrize("training", [False, True])
def test_attention_layer_by_aot_eager(device, training):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).train(training)
    x = torch.randn(2, 5, 16)
    expected = layer(x)
    layer.to(device)
    actual = torch.compile(layer, backend="aot_eager")(x.to(device))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    actual.sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


@pytest.mark.parametrize("packed", [False, True])
def test_attention_keeps_the_order_of_its_operands(device, packed):
    qkv = torch.randn(3, 2, 5, 4, 8) if packed else torch.randn(3, 2, 4, 5, 8)
    results = []
    for place in ("cpu", device):
        q, k, v = (t.detach().requires_grad_() for t in (qkv.transpose(2, 3) if packed else qkv).to(place).unbind(0))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        results.append((y.stride(), y.transpose(1, 2).is_contiguous()))
    assert results[0] == results[1]


@pytest.mark.parametrize("nest", [lambda t: t, lambda t: t.t(), lambda t: [t, t + 1]], ids=["tensor", "view", "list"])
def test_copies_of_tensors(device, nest):
    def copy_twice(t):
        return copy.deepcopy(nest(t)), copy.deepcopy(nest(t + 1))

    x = torch.arange(6.0).view(2, 3)
    torch.testing.assert_close(
        torch.utils._pytree.tree_map(torch.Tensor.cpu, torch.compile(copy_twice, backend="eager")(x.to(device))),
        copy_twice(x),
    )


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning", "error:Dynamo does not know:UserWarning")
def test_a_compiled_step_of_an_optimizer_is_quiet(device):
    parameter = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.25)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    for _ in range(3):
        parameter.grad = torch.ones(2, device=device)
        step()
    assert parameter.tolist() == [0.25, 0.25]
