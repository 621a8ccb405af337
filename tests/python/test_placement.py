"""Placing tensors on the host or the device: identities with a gradient, which stand in graphs."""

import pytest
import torch
from functorch.compile import aot_function, make_boxed_func

import torch_xla.debug.metrics as met
from torch_xla.experimental.stablehlo_custom_call import place_to_device, place_to_host
from torch_xla.stablehlo import exported_program_to_stablehlo


@pytest.mark.parametrize("place", [place_to_host, place_to_device])
def test_values_and_gradients(device, place):
    x = torch.arange(3.0, device=device, requires_grad=True)
    met.clear_all()
    y = place(x * 2)
    y.square().sum().backward()
    assert met.counter_value("ExecuteComputation") is None
    assert y.device == x.device and y.tolist() == [0, 2, 4] and x.grad.tolist() == [0, 8, 16]
    assert [name for name in met.counter_names() if name.startswith("aten::") and "scalar" not in name] == []


def test_a_write_stays_with_one(device):
    x = torch.ones(3, device=device)
    y = place_to_host(x)
    x += 1
    assert y.tolist() == [1, 1, 1] and x.tolist() == [2, 2, 2]


def test_they_stand_in_graphs(device):
    graphs = []

    def keep(graph, _inputs):
        graphs.append(graph.code)
        return make_boxed_func(graph)

    x = torch.ones(3, device=device, requires_grad=True)
    aot_function(lambda t: place_to_device(place_to_host(t.sin())).sum(), keep)(x).backward()
    torch.testing.assert_close(x.grad.cpu(), torch.ones(3).cos())
    forward, backward = graphs
    assert "xla.place_to_host" in forward and "xla.place_to_device" in forward and "xla.place" not in backward


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x):
            return place_to_device(place_to_host(x.sin())) + 1

    x = torch.ones(3)
    module = exported_program_to_stablehlo(torch.export.export(Model(), (x,)))
    assert "stablehlo.sine" in module.get_stablehlo_text()
    torch.testing.assert_close(module(x).cpu(), x.sin() + 1)
