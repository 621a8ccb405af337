"""torch.compile's default backend on the device: a graph is recorded once, its calls join the trace."""

import contextlib
import copy
import threading

import pytest
import torch
from release_differences import CHECKPOINTS_TAKE_GENERATORS
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import torch_xla
from torch_xla import _dynamo


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def recordings(monkeypatch):
    """The regions that are recorded, None for a graph that cannot be."""
    made = []
    record = _dynamo._record
    monkeypatch.setattr(_dynamo, "_record", lambda *args: made.append(record(*args)) or made[-1])
    return made


def train(model, forward, x, y, steps=4, **options):
    """Losses of steps with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **options)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


class Attending(nn.Module):
    """Embedding, attention with a mask, dropout 0, tied weights."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        mask = torch.ones(tokens.shape[1], tokens.shape[1], device=tokens.device).tril() == 0
        return self.head(self.layer(self.embed(tokens), src_mask=mask)).mean(1)


class Convolving(nn.Module):
    """Batch norm with running statistics, channels-last weights, pooling, a residual."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 11)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        y = F.max_pool2d(y + self.second(y), 2)
        return self.head(y.mean((2, 3)))


class Recurrent(nn.Module):
    """A cell in a loop (of nn.LSTM dynamo makes no graph)."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(6, 12)
        self.head = nn.Linear(12, 11)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("make", [Attending, Convolving, Recurrent])
def test_training_is_eagers(device, recordings, make, memory_format):
    torch.manual_seed(0)
    on_cpu = make()
    x = {Attending: torch.randint(0, 11, (4, 7)), Convolving: torch.randn(4, 3, 8, 8), Recurrent: torch.randn(4, 5, 6)}
    x, y = x[make], torch.randint(0, 11, (4,))
    on_device = copy.deepcopy(on_cpu).to(device, memory_format=memory_format)
    expected = train(on_cpu, on_cpu, x, y)
    actual = train(on_device, torch.compile(on_device), x.to(device), y.to(device))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    for name, value in on_cpu.state_dict().items():
        torch.testing.assert_close(on_device.state_dict()[name].cpu(), value, rtol=1e-3, atol=1e-4)
    assert recordings and None not in recordings, "each graph is recorded once"
    count = len(recordings)
    train(on_device, torch.compile(on_device), x.to(device), y.to(device))
    assert len(recordings) <= count + 2, "and not again, but for a state that dynamo sees anew"


def executed() -> int:
    return torch_xla._XLAC._xla_counter_value("ExecuteComputation") or 0


def test_a_step_stays_one_program(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 11)).to(device)
    x, y = torch.randn(4, 6, device=device), torch.randint(0, 11, (4,), device=device)
    compiled = torch.compile(model)
    train(model, compiled, x, y)
    before = executed()
    train(model, compiled, x, y, steps=3)
    torch_xla.sync()
    assert executed() - before <= 4, "forward, backward and optimizer: a program a step, and the losses"


def test_random_numbers_are_new_in_each_call(device):
    @torch.compile
    def draw(x):
        return F.dropout(x, 0.5), torch.rand_like(x)

    ones = torch.ones(1000, device=device)

    def plain(x):
        return F.dropout(x, 0.5), torch.rand_like(x)

    torch.manual_seed(3)
    expected = [t for _ in range(3) for t in plain(ones)]
    torch.manual_seed(3)
    actual = [t for _ in range(3) for t in draw(ones)]
    for a, b in zip(actual, expected):
        assert torch.equal(a, b), "and those of the program without torch.compile"
    assert not torch.equal(actual[0], actual[2]) and not torch.equal(actual[1], actual[3])


def test_recording_repeats_no_random_numbers_of_another_thread(device):
    """The thread draws while this one records the graph, which draws when it is called."""
    is_recording, has_drawn, others = threading.Event(), threading.Event(), []

    def draw():
        assert is_recording.wait(30)
        others.extend(torch.rand(4, device=device) for _ in range(3))
        has_drawn.set()

    def let_draw(x):
        is_recording.set()
        assert has_drawn.wait(30)
        return x

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    noise = graph.call_function(torch.rand_like, (x,))
    graph.output(graph.call_function(let_draw, (noise,)))
    thread = threading.Thread(target=draw)
    thread.start()
    call = _dynamo.RecordedGraph(torch.fx.GraphModule(nn.Module(), graph))
    own = [call([torch.zeros(4, device=device)]) for _ in range(2)]
    own.extend(torch.rand(4, device=device) for _ in range(3))
    thread.join()
    assert len(torch.stack([*own, *others]).cpu().unique()) == 8 * 4


def test_results_keep_aliases_and_strides(device):
    def program(x, y):
        y.mul_(2)
        t = (x + 1).t()
        return x, t, t, x[0], y

    compiled = torch.compile(program)
    for _ in range(3):
        x, y = torch.randn(3, 4), torch.randn(4)
        a, b = x.to(device), y.to(device)
        version = b._version
        expected, actual = program(x, y), compiled(a, b)
        assert actual[0] is a and actual[4] is b and b._version > version
        for e, r in zip(expected, actual):
            assert torch.equal(r.cpu(), e) and r.stride() == e.stride()
        actual[1].zero_()
        assert torch.equal(actual[2].cpu(), torch.zeros(4, 3)), "two results that are one tensor share their memory"
        assert actual[3].untyped_storage().data_ptr() == a.untyped_storage().data_ptr()


def test_results_of_arguments_in_any_order(device):
    for see in (lambda x: x[:, ::2].t(), lambda x: x.t()[1:4], lambda x: x[:, :1].expand(6, 4), lambda x: x.t().t()):
        for f in (lambda x: x * 2, lambda x: x.sin().cos() + 1):
            torch._dynamo.reset()
            x = torch.randn(6, 8)
            expected, actual = f(see(x)), torch.compile(f)(see(x.to(device)))
            torch.testing.assert_close(actual.cpu(), expected)
            assert actual.stride() == expected.stride()


def test_conjugates(device):
    """Arguments, what they are written with, results and tangents that are conj() of what lies in memory."""
    values = torch.tensor([1 + 2j, 3 - 1j])

    def run(device, compile):
        x, y, z = (values.to(device, copy=True).requires_grad_(i == 2) for i in range(3))
        program = compile(lambda x: (x * 2, (x * 2).conj().imag))
        results = [r.cpu() for t in (x, x.conj(), x) for r in program(t)]
        imag = y.conj().imag
        compile(lambda t: t.add_(1))(imag)
        compile(lambda t: t.mul_(2))(y.conj())
        compile(lambda t: t * (2 + 1j))(z).backward((values * 1j).to(device).conj())
        return [*results, imag.cpu(), y.cpu(), z.grad.cpu()]

    for e, a in zip(run("cpu", lambda f: f), run(device, torch.compile), strict=True):
        torch.testing.assert_close(a, e)


def test_results_that_share_memory(device):
    """Views of what the graph has computed, which AOTAutograd leaves to it where nothing needs a gradient."""

    def joined(x):
        y = torch.cat([x, x])
        return y[::2], y.view(2, -1), y.view(2, -1), x

    def expanded(x):
        y = x * 2
        return y.expand(3, *y.shape), y, y.t()

    for f in (lambda x: (x + 1, (x + 1)[1:]), lambda x: (y := x + 1, y[1:]), joined, expanded):
        torch._dynamo.reset()
        compiled, results = torch.compile(f), []
        for call, where in ((f, "cpu"), (compiled, device), (compiled, device)):
            x = torch.zeros(4, 3, device=where)
            results.append(call(x))
            results[-1][1].add_(5)
        for expected, first, second in zip(*results, strict=True):
            for actual in (first, second):
                assert torch.equal(actual.cpu(), expected) and actual.stride() == expected.stride()


class Image(torch.Tensor):
    """A tensor that only has another name."""


@pytest.mark.parametrize("backend", ["openxla", "inductor"])
def test_arguments_and_buffers_of_a_subclass(device, backend):
    torch._dynamo.reset()
    kernel = torch.nn.Buffer(torch.ones(4).as_subclass(Image))
    model = torch.nn.Linear(4, 4)
    model.kernel = kernel
    model.to(device)
    x = torch.ones(2, 4, device=device).as_subclass(Image)
    result = torch.compile(lambda x: model(x * 2) + model.kernel, backend=backend)(x)
    assert type(result) is Image
    torch.testing.assert_close(result.as_subclass(torch.Tensor), model(x * 2).as_subclass(torch.Tensor) + 1)


def test_an_argument_with_another_storage(device):
    @torch.compile
    def replace(x):
        x.data = x + 1

    x = torch.ones(3, device=device)
    for i in range(3):
        before = x.detach()
        replace(x)
        assert x.tolist() == [i + 2] * 3 and before.tolist() == [i + 1] * 3


def test_a_backward_under_a_dispatch_mode(device):
    class Zero(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            result = op(*args, **(kwargs or {}))
            return result * 0 if op is torch.ops.aten.cos.default else result

    compiled = torch.compile(lambda x: x.sin().sum())
    for mode in (Zero(), contextlib.nullcontext(), Zero()):
        x = torch.zeros(2, device=device, requires_grad=True)
        loss = compiled(x)
        with mode:
            loss.backward()
        assert x.grad.tolist() == [0 if isinstance(mode, Zero) else 1] * 2


def test_views_of_a_buffer_that_a_compiled_forward_has_made(device):
    class Model(nn.Module):
        buffer = None

        def forward(self, x):
            if self.buffer is None:
                self.buffer = torch.zeros(4, device=x.device)
                self.part = self.buffer[:2]
            self.part.add_(1)
            return x + self.buffer

    model = torch.compile(Model())
    for i in range(1, 4):
        assert model(torch.zeros(4, device=device)).tolist() == [i, i, 0, 0]


def test_a_backward_with_and_without_autocast(device):
    torch.manual_seed(0)
    x, w = torch.randn(4, 8, device=device), torch.randn(8, 8, device=device, requires_grad=True)

    def program(x):
        return ((x @ w) @ w).sum()

    forms = [torch.compile(program, backend=backend) for backend in ("aot_eager", "inductor")]
    for cast in (True, False, True):
        gradients = []
        for f in forms:
            loss = f(x)
            with torch.autocast("xla", dtype=torch.bfloat16, enabled=cast):
                gradients += torch.autograd.grad(loss, w)
        torch.testing.assert_close(gradients[1], gradients[0])


def test_sizes_that_change(device, recordings):
    def program(x):
        return torch.softmax(x * x.shape[0], -1).sum(0)

    compiled = torch.compile(program, dynamic=True)
    for rows in (2, 5, 3, 5, 2, 7):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x.to(device)).cpu(), program(x))
    assert len(recordings) == 4, "one recording for each size"


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: x * y.item(),
        lambda x, y: x[x > 0].sum() + y,
        lambda x, y: torch.unique(x).sum() * y,
        lambda x, y: x + y.to("xla") * 2,
    ],
    ids=["item", "mask", "unique", "copy"],
)
def test_graphs_that_need_values_are_recorded_by_each_call(device, program):
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        compiled = torch.compile(program)
        for i in range(3):
            x, y = torch.randn(5), torch.tensor(float(i))
            expected = program(x.to(device), y.to(device)).cpu()
            torch.testing.assert_close(compiled(x.to(device), y.to(device)).cpu(), expected)
            torch.testing.assert_close(compiled(x.to(device), y).cpu(), expected)  # a tensor of the CPU among them
    finally:
        torch._dynamo.config.capture_scalar_outputs = False
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_a_graph_break_and_print_within(device, capsys):
    def program(x):
        y = torch.sin(x)
        print("sum", round(y.sum().item(), 4))
        return y * 2

    x = torch.ones(3, device=device)
    torch.testing.assert_close(torch.compile(program)(x).cpu(), torch.sin(torch.ones(3)) * 2)
    assert capsys.readouterr().out == "sum 2.5244\n"


@pytest.mark.checks_values
def test_errors_are_eagers(device):
    compiled = torch.compile(lambda x, i: x[i] + 1)
    x = torch.ones(3, device=device)
    torch_xla.sync()
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        compiled(x, torch.tensor([5], device=device)).cpu()
    assert compiled(x, torch.tensor([1], device=device)).item() == 2


def test_a_graph_that_holds_its_parameters_sees_their_updates(device):
    from torch_xla.core.dynamo_bridge import extract_compiled_graph

    layer = torch.fx.symbolic_trace(nn.Linear(3, 2)).to(device)
    x = torch.ones(1, 3, device=device)
    run = extract_compiled_graph(layer, [x])
    assert isinstance(run, torch.fx.GraphModule)
    assert [node.op for node in run.graph.nodes] == ["placeholder", "call_function", "output"]
    with torch.no_grad():
        for i in range(3):
            layer.weight.fill_(i)
            torch.testing.assert_close(run(x).cpu(), layer(x).cpu())


def test_a_mode_sees_an_extracted_graph_only_while_it_is_recorded(device):
    from torch_xla.core.dynamo_bridge import extract_compiled_graph

    class Counts(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, 3, device=device)
    run = extract_compiled_graph(torch.fx.symbolic_trace(lambda x: x @ x.T), [x])
    with Counts() as mode:
        first, recorded = run(x), mode.calls
        second = run(x)
    assert recorded > 0 and mode.calls == recorded
    assert torch.equal(first.cpu(), second.cpu()) and second[0, 0].item() == 3


def test_dtypes_that_no_node_can_have(device):
    compiled = torch.compile(lambda x: x.to(torch.float32) * 2)
    for dtype in (torch.float8_e5m2, torch.complex64, torch.int8):
        x = torch.tensor([1.0, 2.0]).to(dtype)
        for _ in range(2):
            assert compiled(x.to(device)).tolist() == [2, 4]


def test_attention_between_views_of_it(device):
    """The tracer merges views by the strides that it expects of the gradients."""
    layer = nn.Linear(32, 32).to(device)

    def attend(x):
        q, k, v = (layer(x).view(2, 6, 4, 8).transpose(1, 2).contiguous() for _ in range(3))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 6, 32)

    x = torch.randn(2, 6, 32, device=device)
    expected, actual = (torch.autograd.grad(f(x).sum(), layer.weight)[0] for f in (attend, torch.compile(attend)))
    torch.testing.assert_close(actual.cpu(), expected.cpu())


def test_autocast_and_no_grad_are_part_of_the_graph(device):
    layer = nn.Linear(8, 8).to(device)
    compiled = torch.compile(layer)
    x = torch.randn(2, 8, device=device)
    with torch.autocast("xla", torch.bfloat16):
        assert compiled(x).dtype == torch.bfloat16
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad


def test_graphs_of_the_cpu_go_to_inductor(device, monkeypatch):
    asked = []
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", lambda graph, *_, **__: asked.append(graph) or graph)
    compiled = torch.compile(lambda x: x.sin() + 1)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
    assert len(asked) == 1
    torch.testing.assert_close(compiled(torch.ones(3, device=device)).cpu(), torch.sin(torch.ones(3)) + 1)
    assert len(asked) == 1


def test_modes_and_options_are_accepted(device):
    x = torch.randn(3, 3, device=device)
    for options in ({"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"options": {"max_autotune": True}}):
        compiled = torch.compile(lambda x: x @ x + 1, **options)
        torch.testing.assert_close(compiled(x).cpu(), x.cpu() @ x.cpu() + 1)


class Turning(nn.Module):
    """Causal attention with rotary positions, which a checkpoint computes again in the backward."""

    def __init__(self, has_checkpoint):
        super().__init__()
        self.has_checkpoint = has_checkpoint
        self.qkv = nn.Linear(16, 48)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        angles = torch.arange(length, device=x.device)[:, None] * 0.1 ** torch.arange(4, device=x.device)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        q, k = (t * cos + torch.cat([-t[..., 4:], t[..., :4]], -1) * sin for t in (q, k))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)

    def forward(self, x):
        return checkpoint(self.attend, x, use_reentrant=False) if self.has_checkpoint else self.attend(x)


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_attention_of_lengths_that_change(device, recordings, dynamic, has_checkpoint):
    torch.manual_seed(0)
    on_cpu = Turning(has_checkpoint)
    on_device = copy.deepcopy(on_cpu).to(device)
    compiled = torch.compile(on_device, dynamic=dynamic)
    for length in (6, 5, 9, 5, 4):
        x = torch.randn(2, length, 16)
        for model, place in ((on_cpu, "cpu"), (compiled, device)):
            model(x.to(place)).square().sum().backward()
    torch.testing.assert_close(on_device.qkv.weight.grad.cpu(), on_cpu.qkv.weight.grad, rtol=1e-4, atol=1e-4)
    assert (None in recordings) == (has_checkpoint and CHECKPOINTS_TAKE_GENERATORS)


@pytest.mark.parametrize("capturable", [False, True])
def test_an_optimizers_step(device, recordings, capturable):
    torch.manual_seed(0)
    on_cpu = nn.Linear(8, 8)
    on_device = copy.deepcopy(on_cpu).to(device)
    optimizers = [
        torch.optim.AdamW(on_cpu.parameters(), lr=0.01),
        torch.optim.AdamW(on_device.parameters(), lr=0.01, capturable=capturable),
    ]
    steps = [optimizers[0].step, torch.compile(optimizers[1].step)]
    for _ in range(4):
        for model, optimizer, step in zip((on_cpu, on_device), optimizers, steps):
            optimizer.zero_grad()
            model(torch.ones(2, 8, device=model.weight.device)).square().sum().backward()
            step()
    torch.testing.assert_close(on_device.weight.cpu(), on_cpu.weight, rtol=1e-4, atol=1e-5)
    assert (None in recordings) != capturable, "counts of steps on the CPU: its graph cannot be recorded once"


def test_a_cache_that_is_written_at_an_index(device):
    @torch.compile
    def write(cache, index, value):
        cache.index_copy_(1, index, value)
        return (cache * 2).sum(1)

    cache, on_device = torch.zeros(2, 5), torch.zeros(2, 5, device=device)
    for i in range(5):
        value = torch.randn(2, 1)
        result = write(on_device, torch.tensor([i], device=device), value.to(device))
        cache[:, i : i + 1] = value
        torch.testing.assert_close(result.cpu(), (cache * 2).sum(1))
    torch.testing.assert_close(on_device.cpu(), cache)
