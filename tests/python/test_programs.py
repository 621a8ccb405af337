"""What is pending, as text: StableHLO, the original's IR, graphs in files; barriers; options of the compiler."""

import os
import re

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch_xla import _XLAC
from torch_xla.debug import graph_saver
from torch_xla.experimental.scan import scan
from torch_xla.utils.checkpoint import checkpoint


def executions() -> int:
    return met.counter_value("ExecuteComputation") or 0


# ---- StableHLO ----
def test_stablehlo_of_a_tensor_is_what_it_needs(device):
    x, y = torch.ones(2, 3).to(device), torch.ones(2, 3).to(device)
    torch_xla.sync()
    before = executions()
    z, other = (x + y).exp(), torch.sin(x)
    text = xm.get_stablehlo([z])
    assert "stablehlo.exponential" in text and "stablehlo.add" in text and "stablehlo.sine" not in text
    (arguments,) = re.findall(r"func\.func.*@main\((.*?)\)", text)
    assert arguments.count("tensor<2x3xf32>") == 2
    assert "test_programs.py" in text
    both = xm.get_stablehlo()
    assert "stablehlo.exponential" in both and "stablehlo.sine" in both
    assert xm.get_stablehlo_bytecode([z]) == text.encode()
    assert executions() == before
    assert torch.equal(z.cpu(), (torch.ones(2, 3) * 2).exp()) and other.shape == (2, 3)


def test_stablehlo_of_views_and_values(device):
    x = torch.arange(6.0).to(device)
    text = xm.get_stablehlo([x, (x * 2)[1:3]])
    assert re.search(r"-> \(tensor<6xf32>, tensor<2xf32>\)|return.*tensor<6xf32>, tensor<2xf32>", text)


def test_parts_of_heads_keep_their_dims(device):
    """Query, key and value in one product: a transpose of all three, whose batches stay two dims of the product."""
    x = torch.randn(2, 6, 24)

    def scores(x):
        query, key, _ = x.unflatten(-1, (3, 4, 2)).permute(2, 0, 3, 1, 4).unbind(0)
        return query @ key.mT

    y = scores(x.to(device))
    text = xm.get_stablehlo([y])
    assert "-> (tensor<3x2x4x6x2xf32>)" in text and "lhs_batching_dimensions = [0, 1]" in text
    assert torch.allclose(y.cpu(), scores(x), atol=1e-5)


def test_rows_by_numbers_that_count_up(device):
    """A slice where the numbers of arange() are constants."""
    table = torch.randn(6, 3)
    on_device = table.to(device)
    for count in (4, 6):
        rows = torch.nn.functional.embedding(torch.arange(count, device=device), on_device)
        columns = on_device.index_select(1, torch.arange(count // 2, device=device))
        assert torch.equal(rows.cpu(), table[:count]) and torch.equal(columns.cpu(), table[:, : count // 2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_cross_entropy_is_not_summed(device, dtype):
    x, targets = torch.randn(5, 7, dtype=dtype), torch.tensor([0, 6, 2, -100, 3])

    def gradient(x, targets):
        x.requires_grad_()
        return torch.autograd.grad(torch.nn.functional.cross_entropy(x, targets), x)[0]

    actual = gradient(x.to(device), targets.to(device))
    assert xm.get_stablehlo([actual]).count('"stablehlo.reduce"') == 3  # two of softmax, one counts the targets
    assert torch.allclose(actual.cpu(), gradient(x, targets), atol=1e-2 if dtype == torch.bfloat16 else 1e-6)


def test_asking_changes_no_key(device, compiles):
    x = torch.ones(3, 5).to(device)
    torch_xla.sync()

    def step():
        return x.t()[1:].cos()

    y = step()
    torch_xla.sync()
    compiles.reset()
    z = step()
    xm.get_stablehlo([z, z[0], x.t()])
    torch_xla.sync()
    assert compiles.value == 0
    assert torch.equal(y.cpu(), z.cpu())


def test_what_has_no_stablehlo(device):
    with pytest.raises(NotImplementedError, match="there is no StableHLO of this graph: aten::_fft_r2c"):
        xm.get_stablehlo([torch.fft.rfft(torch.ones(4, device=device)).real])
    with pytest.raises(ValueError, match=r"expected a tensor on xla:0, but got one on cpu"):
        xm.get_stablehlo([torch.ones(2)])
    with pytest.raises(TypeError, match="expected tensors"):
        xm.get_stablehlo([3])


# ---- XLA's HLO ----
def test_hlo_of_a_tensor_is_what_it_needs(device):
    x = torch.ones(2, 3).to(device)
    torch_xla.sync()
    before = executions()
    y = (x + 1).exp()
    text = _XLAC._get_xla_tensors_hlo([y])
    assert text.startswith("HloModule program\n") and "ENTRY %main (" in text
    assert re.search(r"%exponential\.\d+ = f32\[2,3\]\{1,0\} exponential\(f32\[2,3\]\{1,0\} %add\.\d+\)", text)
    assert re.search(r'metadata=\{source_file="[^"]*test_programs.py" source_line=\d+\}', text)
    assert text.count(" parameter(") == 2  # x, and the number 1
    assert executions() == before


def test_hlo_of_a_loop(device):
    def step(carry, x):
        return carry + x, carry.sin()

    last, _ = scan(step, torch.zeros(3, device=device), torch.ones(5, 3, device=device))
    text = _XLAC._get_xla_tensors_hlo([last])
    condition, body = re.search(r" while\(.*\), condition=(%region\.\d+), body=(%region\.\d+)", text).groups()
    assert f"\n{condition} (" in text and f"\n{body} (" in text


def test_what_has_no_hlo(device):
    with pytest.raises(NotImplementedError, match="there is no StableHLO of this graph: aten::_fft_r2c"):
        _XLAC._get_xla_tensors_hlo([torch.fft.rfft(torch.ones(4, device=device)).real])


# ---- The original's IR ----
def test_text_of_pending_tensors(device):
    x = torch.ones(4, 2).to(device)
    torch_xla.sync()
    w, _ = torch.max(x @ x.t() * 3, 1)
    lines = _XLAC._get_xla_tensors_text([w]).splitlines()
    assert (lines[0], lines[-1]) == ("IR {", "}")
    hardware = torch_xla.runtime.device_type()
    assert f"%0 = f32[4,2]{{1,0}} xla::device_data(), xla_shape=f32[4,2]{{1,0}}, device={hardware}:0" in lines[1]
    assert any(re.search(r"= f64\[\] prim::Constant\(\), xla_shape=f64\[\], value=3$|value=3$", line) for line in lines)
    assert any("f32[4,4]{1,0} aten::mm(%0, %" in line and "location=" in line for line in lines)
    assert re.search(r"\(f32\[4\]\{0\}, s64\[4\]\{0\}\) aten::max\(.*ROOT=0$", lines[-2])


def test_a_value_that_is_there_is_device_data(device):
    x = torch.ones(3, dtype=torch.bool).to(device)
    assert "pred[3]{0} xla::device_data()" in _XLAC._get_xla_tensors_text([x])
    assert "ROOT=0" in _XLAC._get_xla_tensors_text([x])


def test_views_of_pending_tensors(device):
    x = torch.ones(4, 3).to(device).t() * 2
    for view, shape in [(x[1:], "f32[2,4]{1,0}"), (x.view(torch.int32), "s32[3,4]{1,0}")]:
        root = _XLAC._get_xla_tensors_text([view]).splitlines()[-2]
        assert f"= {shape} aten::as_strided(" in root and "ROOT=0" in root
    z = torch.ones(4, dtype=torch.complex64).to(device)
    assert "= f32[4,2]{1,0} aten::as_strided(" in _XLAC._get_xla_tensors_text([torch.view_as_real(z)])


def test_dot_of_pending_tensors(device):
    x = torch.ones(2).to(device)
    text = _XLAC._get_xla_tensors_dot([torch.atan2(x, x * x)])
    assert text.startswith("digraph G {\n") and text.endswith("}\n")
    nodes = dict(re.findall(r'^  (node\d+) \[label="([a-z0-9_:]+)', text, re.MULTILINE))
    edges = {(nodes[a], nodes[b], i) for a, b, i in re.findall(r'(node\d+) -> (node\d+) \[label="i=(\d)"\]', text)}
    assert {("aten::mul", "aten::atan2", "1"), ("xla::device_data", "aten::atan2", "0")} <= edges


def test_what_a_tensor_is(device):
    assert "Not a XLATensor" in _XLAC._get_xla_tensor_debug_info(torch.ones(2))
    x = torch.ones(5).to(device) + 5
    info = _XLAC._get_xla_tensor_debug_info(x)
    assert "XLA Shape: f32[5]" in info and "aten::add" in info and "XLAData: None" in info
    torch_xla.sync(wait=True)
    info = _XLAC._get_xla_tensor_debug_info(x)
    assert "IR: None" in info and "Data Shape: f32[5]" in info and "State: ready" in info


@pytest.mark.parametrize("form, begin", [("text", "IR {"), ("dot", "digraph"), ("hlo", "HloModule"), (None, "IR {")])
def test_graphs_are_saved(device, tmp_path, monkeypatch, form, begin):
    if form:
        monkeypatch.setenv("SAVE_GRAPH_FMT", form)
    x = torch.ones(2).to(device) * 2
    for _ in range(2):
        graph_saver.save_tensors_graph(str(tmp_path), f"loss-{form}", [x])
    files = sorted(tmp_path.iterdir())
    assert [re.sub(r"-\d+-(\d)", r"-\1", file.name) for file in files] == [
        f"loss-{form}-{i}.{form or 'text'}" for i in (0, 1)
    ]
    assert all(file.read_text().startswith(begin) for file in files)


def test_a_graph_stays_in_its_folder(device, tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match=r"without /, but got '../out'"):
        graph_saver.save_tensors_graph(str(tmp_path / "in"), "../out", [torch.ones(2).to(device) * 2])
    assert os.listdir(tmp_path) == ["in"]


def test_graphs_of_an_unknown_form(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SAVE_GRAPH_FMT", "svg")
    with pytest.raises(ValueError, match="SAVE_GRAPH_FMT=svg is not understood; it can be text, dot, hlo"):
        graph_saver.save_tensors_graph(str(tmp_path), "x", [])


SAVED = """
    import torch, torch_xla
    def step():
        x = torch.ones(3, device="xla")
        return (x * 2).sin()
    with torch_xla.compile(name="stage"):
        y = step()
    z = y.cos()
    torch_xla.sync()
    print(y.cpu().shape)
"""


@pytest.mark.parametrize(
    "form, body",
    [
        ("text", r"IR \{\n  %0 = .*aten::sin\("),
        ("dot", "digraph G"),
        ("hlo", r" sine\(f32\[3\]"),
        ("stablehlo", "stablehlo.sine"),
    ],
)
def test_the_graph_of_each_sync_goes_into_a_file(run_python, tmp_path, form, body):
    run_python(SAVED, XLA_SAVE_TENSORS_FILE=str(tmp_path / "graphs"), XLA_SAVE_TENSORS_FMT=form)
    text = (tmp_path / "graphs.0").read_text()
    blocks = text.split("[ScheduleSyncTensorsGraph]\n")[1:]
    assert len(blocks) == text.count("## END_GRAPH") == 2
    assert blocks[0].startswith("Graph Name: stage\nTensorsGraphInfo:\n")
    assert blocks[1].startswith("TensorsGraphInfo:\n")
    assert "  <module> (<string>:" in blocks[0]
    graphs = [re.search(r"## BEGIN_GRAPH\n(.*)\nGraph Hash: ([0-9a-f]{32})\n", block, re.DOTALL) for block in blocks]
    assert re.search(body, graphs[0][1], re.DOTALL) and graphs[0][2] != graphs[1][2]


def test_each_process_has_a_file_of_graphs(run_python, tmp_path):
    run_python(SAVED, XLA_SAVE_TENSORS_FILE=str(tmp_path / "graphs"), RANK="3")
    assert [path.name for path in tmp_path.iterdir()] == ["graphs.3"]


def test_a_program_without_stablehlo_runs_all_the_same(run_python, tmp_path):
    env = {"XLA_SAVE_TENSORS_FILE": str(tmp_path / "graphs"), "XLA_SAVE_TENSORS_FMT": "stablehlo"}
    out = run_python(
        "import torch, torch_xla\nprint(torch.fft.rfft(torch.ones(2, device='xla')).abs().tolist())", **env
    )
    assert out == "[2.0, 0.0]\n"
    assert "there is no StableHLO of this graph: aten::_fft_r2c is not" in (tmp_path / "graphs.0").read_text()


def test_files_and_forms_that_cannot_be(run_python, tmp_path):
    use = "import torch, torch_xla\n(torch.ones(2, device='xla') + 1).cpu()"
    out = run_python(use, returncode=1, XLA_SAVE_TENSORS_FILE=str(tmp_path / "a"), XLA_SAVE_TENSORS_FMT="svg")
    assert "ValueError: the graph format svg is not known; it can be text, dot, hlo or stablehlo" in out
    out = run_python(use, returncode=1, XLA_SAVE_TENSORS_FILE=str(tmp_path / "none/a"))
    assert "ValueError: the file that XLA_SAVE_TENSORS_FILE names" in out


# ---- Barriers ----
def test_a_barrier_keeps_values(device):
    base = torch.arange(12.0).reshape(3, 4)
    x = base.to(device)
    view, number, flags = x.t()[1:], torch.tensor(3, device=device), x > 4
    xm.optimization_barrier_([x, view, number, flags, torch.empty(0, device=device)])
    xm.optimization_barrier_([])
    view += 1
    base.t()[1:].add_(1)
    assert torch.equal(x.cpu(), base) and number.item() == 3
    assert torch.equal(flags.cpu(), torch.arange(12.0).reshape(3, 4) > 4)


def test_what_has_no_storage_has_no_barrier(device):
    x = torch.eye(3, device=device)

    def check(t):
        for look_into in (xm.optimization_barrier_, xm.get_stablehlo, torch_xla._XLAC._get_xla_tensors_text):
            with pytest.raises(RuntimeError, match="no storage of the XLA device's own: it is sparse"):
                look_into([t])
        return t.sum()

    check(x.to_sparse())
    check(x.to_sparse_csr())
    torch.func.grad(lambda t: check(t * 3))(x)
    torch.vmap(lambda t: check(t * 3))(x)


def test_autograd_does_not_see_a_barrier(device):
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    xm.optimization_barrier_([x, y])
    y.exp().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.full((3,), 2.0).exp() * 2)


def test_nothing_is_merged_across_a_barrier(device):
    x = torch.ones(5).to(device)

    def twice(barrier: bool):
        a = (x * x).exp()
        if barrier:
            xm.optimization_barrier_([x])
        return xm.get_stablehlo([a, (x * x).exp()])

    assert twice(barrier=False).count("stablehlo.exponential") == 1
    text = twice(barrier=True)
    assert text.count("stablehlo.exponential") == 2 and text.count("stablehlo.optimization_barrier") == 1
    xm.optimization_barrier_([x])
    assert xm.get_stablehlo([x]).count("stablehlo.optimization_barrier") == 2


def test_a_barrier_waits_for_all_it_takes(device):
    x, y = torch.ones(5).to(device), torch.ones(7).to(device)
    a, b = x.sin(), y.cos()
    xm.optimization_barrier_([a, b])
    text = xm.get_stablehlo([a.exp()])
    cosine, barrier, exponential = (text.index(f"stablehlo.{op}") for op in ("cosine", "optimization_barrier", "expon"))
    assert cosine < barrier < exponential


def test_a_barrier_in_a_run(device):
    x = torch.linspace(0, 1, 1000).to(device)
    torch_xla.sync(wait=True)
    _XLAC._start_events()
    a = (x * x).exp()
    xm.optimization_barrier_([x])
    b = (x * x).exp()
    torch_xla.sync(wait=True)
    steps = [event["name"] for event in _XLAC._stop_events() if event["phase"] in ("kernel", "library")]
    assert len(steps) == 3 and steps[1] == "xla::optimization_barrier"
    torch.testing.assert_close(a.cpu(), torch.linspace(0, 1, 1000).square().exp())
    assert torch.equal(a.cpu(), b.cpu())


def test_a_barrier_copies_nothing_that_ends_there(device):
    weight = torch.ones(1 << 22, device=device)
    torch_xla.sync(wait=True)
    torch.xla.reset_peak_memory_stats()
    before = torch.xla.memory_allocated()
    xm.optimization_barrier_([weight])
    torch_xla.sync(wait=True)
    assert torch.xla.max_memory_allocated() - before < 1 << 22
    assert weight[-1].item() == 1


def test_tensors_that_no_barrier_takes(device):
    with pytest.raises(
        ValueError, match="optimization_barrier_ expected tensors on the device xla, but got one on cpu"
    ):
        xm.optimization_barrier_([torch.ones(2)])
    with pytest.raises(TypeError, match="expected tensors"):
        xm.optimization_barrier_(["x"])


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_compute_again(device, use_reentrant):
    """What a checkpoint drops is not kept for its second computation: that one is another."""

    def peak(run) -> int:
        x = torch.linspace(-1, 1, 1 << 18).to(device).requires_grad_()
        torch_xla.sync(wait=True)
        torch.xla.reset_peak_memory_stats()
        before = torch.xla.memory_allocated()
        y = x
        for _ in range(6):
            y = run(lambda t: ((t.sort()[0] * 2).cumsum(0) / 9).sort()[0].cumsum(0), y)
        y.sum().backward()
        torch_xla.sync(wait=True)
        grads.append(x.grad.cpu())
        return torch.xla.max_memory_allocated() - before

    grads: list[torch.Tensor] = []
    kept = peak(lambda f, y: f(y))
    computed_again = peak(lambda f, y: checkpoint(f, y, use_reentrant=use_reentrant))
    torch.testing.assert_close(*grads)
    assert computed_again < 0.7 * kept


# ---- Options ----
def test_options_of_the_embedded_engine(device):
    with pytest.raises(ValueError, match="embedded engine has no compile options, but got xla_level"):
        torch_xla.set_custom_compile_options({"xla_level": 3})
    with pytest.raises(ValueError, match="has no compile options"):
        torch_xla.compile(lambda: None, custom_compile_options={"a": 1})
    with pytest.raises(TypeError, match="compile options are str, bool, int or float, but a is not"):
        torch_xla.set_custom_compile_options({"a": object()})
    torch_xla.set_custom_compile_options({})
    assert torch_xla.compile(lambda: 3, custom_compile_options={})() == 3
