"""The programs of the original's documentation run as they are written there."""

import contextlib
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim

import torch_xla  # noqa: F401
import torch_xla.core.xla_model as xm

IMPORTS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
"""


def run(source: str, **names) -> tuple[str, dict]:
    """Runs a program with the given globals. Returns what it printed and its globals."""
    namespace = {"torch": torch, "nn": nn, "optim": optim, "xm": xm, **names}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(source, namespace)
    return out.getvalue(), namespace


class MNIST(nn.Module):
    """A small stand-in of the network that the documents name."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 6 * 6, 10)

    def forward(self, x):
        return F.log_softmax(self.fc(torch.flatten(F.relu(self.conv(x)), 1)), dim=1)


def batches(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(8, 1, 8, 8, generator=generator)
    target = torch.randint(10, (8,), generator=generator)
    return [(data, target)] * count


@pytest.mark.parametrize("imports", [IMPORTS, IMPORTS.replace("torch_xla.core.xla_model", "torch_xla_py.xla_model")])
def test_create_and_print(imports):
    """Also by the first release's name of the module."""
    out, names = run(
        imports
        + """
t = torch.randn(4, 2, device=xm.xla_device())
print(t.device)
print(t)
"""
    )
    assert out.startswith("xla:0\ntensor([[") and "device='xla:0'" in out
    assert names["t"].shape == (4, 2)


def test_arithmetic_matmul_and_modules():
    out, names = run(
        IMPORTS
        + """
t0 = torch.randn(2, 2, device=xm.xla_device())
t1 = torch.randn(2, 2, device=xm.xla_device())
print(t0 + t1)
print(t0.mm(t1))

l_in = torch.randn(10, device=xm.xla_device())
linear = torch.nn.Linear(10, 20).to(xm.xla_device())
l_out = linear(l_in)
print(l_out)
"""
    )
    t0, t1 = names["t0"].cpu(), names["t1"].cpu()
    torch.testing.assert_close((names["t0"] + names["t1"]).cpu(), t0 + t1)
    torch.testing.assert_close(names["t0"].mm(names["t1"]).cpu(), t0.mm(t1))
    expected = names["linear"].cpu()(names["l_in"].cpu())
    torch.testing.assert_close(names["l_out"].cpu(), expected)
    assert out.count("tensor(") == 3
    assert "grad_fn" in out


def test_weights_on_the_cpu_raise_an_error_that_names_both_devices():
    with pytest.raises(RuntimeError, match=r"(?s)(xla.*cpu|cpu.*xla)"):
        run(
            IMPORTS
            + """
l_in = torch.randn(10, device=xm.xla_device())
linear = torch.nn.Linear(10, 20)
l_out = linear(l_in)
print(l_out)
"""
        )


def train(device_type: str, lr: float = 0.05, momentum: float = 0.9) -> list[float]:
    """Losses of the single-device loop."""
    torch.manual_seed(0)
    source = """
import torch_xla.core.xla_model as xm


device = xm.xla_device() if device_type == "xla" else torch.device("cpu")
model = MNIST().train().to(device)
loss_fn = nn.NLLLoss()
optimizer = optim.SGD(model.parameters(), lr=lr, momentum=momentum)


for data, target in train_loader:
  optimizer.zero_grad()
  data = data.to(device)
  target = target.to(device)
  output = model(data)
  loss = loss_fn(output, target)
  loss.backward()


  xm.optimizer_step(optimizer, barrier=True)
  losses.append(loss.detach())
"""
    losses: list[torch.Tensor] = []
    run(source, MNIST=MNIST, train_loader=batches(), lr=lr, momentum=momentum, losses=losses, device_type=device_type)
    return [loss.item() for loss in losses]


def test_single_device_loop_trains_as_eager_does():
    losses = train("xla")
    assert losses == pytest.approx(train("cpu"), rel=1e-3)
    assert losses[-1] < losses[0]


def test_save_and_load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, names = run(
        IMPORTS
        + """
device = xm.xla_device()


t0 = torch.randn(2, 2, device=device)
t1 = torch.randn(2, 2, device=device)


tensors = (t0.cpu(), t1.cpu())


torch.save(tensors, 'tensors.pt')


tensors = torch.load('tensors.pt')


t0 = tensors[0].to(device)
t1 = tensors[1].to(device)
"""
    )
    torch.testing.assert_close(names["t0"].cpu(), names["tensors"][0])
    assert names["t1"].device.type == "xla"


CLIPPING = """
def clip_grad_norm_(parameters, max_norm, norm_type):
    parameters = [p for p in parameters if p.grad is not None]
    if norm_type == float("inf"):
      total_norm = max(p.grad.data.abs().max() for p in parameters)
    else:
      device = parameters[0].device
      total_norm = torch.zeros([], device=device if parameters else None)
      for p in parameters:
        param_norm = p.grad.data.norm(norm_type) ** norm_type
        total_norm.add_(param_norm)
      total_norm = (total_norm ** (1. / norm_type))
    clip_coef = torch.tensor(max_norm, device=device) / (total_norm + 1e-6)
    for p in parameters:
      p.grad.data.mul_(torch.where(clip_coef < 1, clip_coef, torch.tensor(1., device=device)))
"""


@pytest.mark.parametrize("max_norm", [0.1, 100.0])
def test_gradient_clipping_without_item(device, max_norm):
    _, names = run(CLIPPING)
    torch.manual_seed(0)
    model = MNIST()
    clone = MNIST()
    clone.load_state_dict(model.state_dict())
    clone.to(device)
    data, target = batches()[0]
    F.nll_loss(model(data), target).backward()
    F.nll_loss(clone(data.to(device)), target.to(device)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    names["clip_grad_norm_"](clone.parameters(), max_norm, 2.0)
    for expected, got in zip(model.parameters(), clone.parameters()):
        torch.testing.assert_close(got.grad.cpu(), expected.grad)


def test_metrics_report_line(device):
    (torch.ones(2, device=device) + 1).cpu()
    out, _ = run("import torch_xla\nprint(torch_xla._XLAC._xla_metrics_report())")
    assert "Counter: " in out
    assert "Metric: ExecuteTime" in out


# ---- The tutorial on PrivateUse1: its Python programs with this device's name ----
def test_name_and_module_of_the_device():
    _, names = run(
        """
import torch
torch.utils.rename_privateuse1_backend("xla")
x = torch.rand((2,2),device='xla:0')
"""
    )
    assert names["x"].device == torch.device("xla", 0)
    with pytest.raises(RuntimeError, match=r"has already been registered with .*torch_xla._device_module"):
        run("torch._register_device_module('xla', torch.xla)")
    with pytest.raises(RuntimeError, match="Current backend: xla"):
        run('torch.utils.rename_privateuse1_backend("npu")')


def test_methods_and_attributes_of_the_device(device):
    """The tutorial has them made by generate_methods_for_privateuse1_backend(); here the import has made them."""
    x = torch.rand(2, 2)
    assert x.xla().device == x.xla(0).device == device and x.xla().is_xla and not x.is_xla
    assert torch.equal(x.xla(non_blocking=True).cpu(), x)
    storage = x.untyped_storage()
    assert storage.xla().is_xla and storage.xla().device == device and not storage.is_xla
    assert nn.Linear(2, 2).xla().weight.is_xla
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1]), batch_first=True).xla()
    assert packed.is_xla and packed.data.device == device
    with pytest.raises(RuntimeError, match="is_xla"):
        run(
            """
unsupported_dtype = [torch.quint8]
torch.utils.generate_methods_for_privateuse1_backend(
    for_tensor=True, for_module=True, for_storage=True, unsupported_dtype=unsupported_dtype)
"""
        )


def test_autocast_of_the_devices_module(device):
    assert torch.bfloat16 in torch.xla.get_amp_supported_dtype()
    assert not torch.xla.is_autocast_enabled() and torch.xla.get_autocast_dtype() is torch.bfloat16
    x = torch.ones(2, 2, device=device)
    torch.xla.set_autocast_enabled(True)
    torch.xla.set_autocast_dtype(torch.float16)
    try:
        assert torch.xla.is_autocast_enabled() and torch.xla.get_autocast_dtype() is torch.float16
        assert (x @ x).dtype is torch.float16
    finally:
        torch.xla.set_autocast_enabled(False)
        torch.xla.set_autocast_dtype(torch.bfloat16)
    assert (x @ x).dtype is torch.float32
