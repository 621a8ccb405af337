"""The optimizers of PyTorch's OptimizerInfo database take the CPU's steps in each of their forms."""

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

FORMS = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"capturable": True, "foreach": False},
    "differentiable": {"differentiable": True},
}
WITHOUT_FORMS = {"LBFGS", "SparseAdam", "Muon"}
# A sign or a line search decides the steps of these: sums in another order lead elsewhere, in eager's own forms too.
IN_FLOAT64 = {"LBFGS", "Rprop"}


def supports(info, form):
    if form == "capturable":
        return info.has_capturable_arg
    return form == "single" or form in info.supported_impls


def cases():
    for info in optim_db:
        for form in FORMS:
            if supports(info, form):
                yield pytest.param(info, form, id=f"{info.name}-{form}")


def is_allowed(options):
    """Whether the options leave the form open."""
    return not {"foreach", "fused"} & options.keys()


def arguments(info, form, options, place):
    """What the optimizer is made with; a capturable step on the CPU is refused, so there it is another one."""
    chosen = {k: v for k, v in {**options, **FORMS[form]}.items() if k != "capturable" or place != "cpu"}
    if info.name in WITHOUT_FORMS:
        chosen.pop("foreach", None)
    return {k: v.to(place) if isinstance(v, torch.Tensor) and form == "fused" else v for k, v in chosen.items()}


def problem(info, place):
    """Parameters, and a function that sets their gradients."""
    torch.manual_seed(1)
    dtype = torch.float64 if info.name in IN_FLOAT64 else torch.float32
    if info.only_supports_sparse_grads:
        table = torch.nn.Embedding(9, 4, sparse=True).to(place, dtype)
        return [table.weight], lambda: table(torch.tensor([1, 2, 2, 5], device=place)).square().sum()
    weight = torch.randn(5, 3, dtype=dtype).to(place).requires_grad_()
    bias = torch.randn(5, 3, dtype=dtype).mul(0.3).to(place).requires_grad_()
    target = torch.randn(4, 3, dtype=dtype).to(place)
    inputs = torch.randn(4, 5, dtype=dtype).to(place)
    return [weight, bias], lambda: ((inputs @ weight).tanh() - target).square().mean() + (weight * bias).square().sum()


def train(info, options, place, steps=6):
    parameters, loss = problem(info, place)
    optimizer = info.optim_cls(parameters, **options)

    def closure():
        optimizer.zero_grad()
        value = -loss() if options.get("maximize") else loss()
        value.backward()
        return value

    for _ in range(steps):
        closure()
        if info.step_requires_closure:
            optimizer.step(closure)
        elif options.get("differentiable"):
            with torch.no_grad():
                optimizer.step()
        else:
            optimizer.step()
    # LBFGS estimates a curvature from differences that are nearly zero by now.
    states = [] if info.name == "LBFGS" else [sorted(optimizer.state[p].items(), key=str) for p in parameters]
    state = [value for items in states for _, value in items if isinstance(value, torch.Tensor)]
    return [t.detach().cpu() for t in (*parameters, *state)]


@pytest.mark.parametrize("info,form", list(cases()))
def test_optimizer_agrees_with_eager(device, info, form):
    for case in info.optim_inputs_func("cpu"):
        if not is_allowed(case.kwargs):
            continue
        results = []
        for place in ("cpu", device):
            try:
                results.append(train(info, arguments(info, form, case.kwargs, place), place))
            except Exception as error:
                results.append(error)
        expected, actual = results
        what = f"{case.desc} {case.kwargs}"
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            assert type(expected) is type(actual), f"{what}: {expected!r} on the CPU, {actual!r} on the device"
            continue
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, msg=lambda m: f"{what}: {m}")  # noqa: B023


@pytest.mark.filterwarnings("ignore:.*swap")
def test_parameters_can_be_swapped_after_a_step(device, monkeypatch):
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    module = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    weight = module.weight
    module.double()
    assert module.weight is weight and weight.dtype is torch.float64


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_a_fused_step_refuses_a_state_of_another_dtype(device, name):
    def step(place):
        weight = torch.nn.Parameter(torch.ones(3, device=place))
        optimizer = getattr(torch.optim, name)([weight], fused=True, **({"momentum": 0.9} if name == "SGD" else {}))
        for dtype in (torch.float32, torch.float64):
            weight.data = weight.data.to(dtype)
            weight.grad = torch.ones_like(weight)
            optimizer.step()

    with pytest.raises(RuntimeError) as expected:
        step("cpu")
    with pytest.raises(RuntimeError) as actual:
        step(device)
    assert str(expected.value) in str(actual.value)
