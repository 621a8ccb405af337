"""The modules of PyTorch's ModuleInfo database give the CPU's results, gradients and states on the device."""

import copy

import pytest
import torch
from test_ops import assert_agree, gradients, on_both, ROUNDED_OFTEN, tensors_of, to_device
from torch.testing._internal.common_modules import module_db

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
        models = {"cpu": module, "xla": copy.deepcopy(module).to(device)}

        def run(place, case=case, models=models):
            args, kwargs = to_device((case.forward_input.args, case.forward_input.kwargs), place)
            output = models[place](*args, **kwargs)
            grads = gradients(output, [*tensors_of((args, kwargs)), *models[place].parameters()])
            return output, grads, list(models[place].state_dict().values())

        assert_agree(*on_both(run), dtype, rough=dtype in ROUNDED_OFTEN, what=case.desc)
