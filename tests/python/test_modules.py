"""The modules of PyTorch's ModuleInfo database compute, train and save on the device as on the CPU."""

import copy

import pytest
import torch
from test_ops import assert_same, gradients, tensors_of, to_device
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

RANDOM = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.RReLU,
    torch.nn.FractionalMaxPool2d,
    torch.nn.FractionalMaxPool3d,
)


def pytest_generate_tests(metafunc):
    if "info" in metafunc.fixturenames:
        whole = metafunc.config.option.whole
        metafunc.parametrize(
            "info,dtype,training",
            [
                pytest.param(
                    info, dtype, training, id=f"{info.name}-{str(dtype)[6:]}-{'train' if training else 'eval'}"
                )
                for info in module_db
                for dtype in (info.supported_dtypes("cpu") if whole else info.supported_dtypes("cpu")[:1])
                for training in (True, False)
            ],
        )


def is_random(module):
    return any(
        isinstance(part, RANDOM)
        or (getattr(part, "dropout", 0) not in (0, None) and not isinstance(part.dropout, torch.nn.Module))
        for part in module.modules()
    )


def build(info, case, dtype, training):
    """The module on the CPU with parameters of the type, which lazy modules draw when they are called."""
    torch.manual_seed(0)
    module = info.module_cls(*case.constructor_input.args, **case.constructor_input.kwargs).to(dtype)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        module(*case.forward_input.args, **case.forward_input.kwargs)
    return module.train(training)


def test_module_agrees_with_eager(device, info, dtype, training):
    torch.manual_seed(0)
    for case in info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=dtype.is_floating_point, training=training
    ):
        module = build(info, case, dtype, training)
        if training and is_random(module):
            continue
        ours = copy.deepcopy(module).to(device)
        results = []
        for place, model in (("cpu", module), (device, ours)):
            args, kwargs = to_device((case.forward_input.args, case.forward_input.kwargs), place)
            try:
                output = model(*args, **kwargs)
                grads = gradients(output, [*tensors_of((args, kwargs)), *model.parameters()])
                state = list(model.state_dict().values())
                results.append(pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), (output, grads, state)))
            except Exception as error:
                results.append(error)
        expected, actual = results
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            assert type(expected) is type(actual), f"{case.desc}: {expected!r} on the CPU, {actual!r} on the device"
        else:
            assert_same(expected, actual, dtype)
