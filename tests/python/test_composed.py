"""Operations that are others put together give eager's values, without a fallback."""

import pytest
import torch
from eager import check
from test_operators import both

import torch_xla

aten = torch.ops.aten
X = torch.linspace(-2, 2, 24).reshape(4, 6)
IMAGE = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4)
VOLUME = torch.linspace(-1, 1, 162).reshape(1, 2, 3, 9, 3)
KERNEL = torch.linspace(-1, 1, 108).reshape(4, 3, 3, 3)
CUBE = torch.linspace(-1, 1, 108).reshape(2, 2, 3, 3, 3)


def like(x, *shape, fill=1.0):
    return torch.full(shape, fill, device=x.device, dtype=x.dtype)


def scan(helper, x):
    values, indices = torch.empty_like(x), torch.empty_like(x, dtype=torch.long)
    helper(x, values, indices, 1)
    return values, indices


def norm(x):
    return like(x, 3), like(x, 3, fill=0.5), like(x, 3, fill=0.2), like(x, 3, fill=2.0)


def norm_with_statistics(call, x, *options):
    weight, bias, mean, variance = norm(x)
    results = call(x, weight, bias, mean, variance, *options)
    return (*results, mean, variance)


def norm_statistics(x):
    _, _, mean, variance = norm(x)
    return (*aten.batch_norm_update_stats(x, mean, variance, 0.1), mean, variance)


def norm_backward(x):
    weight, _, mean, variance = norm(x)
    reserve = torch.empty(0, dtype=torch.uint8, device=x.device)
    return aten.batch_norm_backward(
        x.cos(), x, weight, mean, variance, mean, variance, True, 1e-5, (True, True, True), reserve
    )


def slow_convolution_backward(x, k):
    return aten._slow_conv2d_backward.output_mask(like(x, 2, 4, 4, 4), x, k, (3, 3), (1, 1), (1, 1), (True, True, True))


def out_of(call, dtype, *args):
    out = torch.empty(0, dtype=dtype, device=args[0].device)
    call(*args, out=out)
    return out


CASES = {
    "_add_relu": (lambda x: aten._add_relu(x, x.flip(0), alpha=2), X),
    "_add_relu.Scalar": (lambda x: aten._add_relu(x, 1.5), X),
    "_add_relu_": (lambda x: aten._add_relu_(x.clone(), 0.5), X),
    "_aminmax": (aten._aminmax, X),
    "_aminmax.dim": (lambda x: aten._aminmax(x, 1, True), X),
    "_compute_linear_combination": (lambda x: aten._compute_linear_combination(x, x[:3, :4].contiguous()), X),
    "_cummax_helper": (lambda x: scan(aten._cummax_helper, x.sin()), X),
    "_cummin_helper": (lambda x: scan(aten._cummin_helper, x.sin()), X),
    "_efficientzerotensor": (lambda x: x + torch._efficientzerotensor((4, 6), device=x.device), X),
    "_transform_bias_rescale_qkv": (lambda x: aten._transform_bias_rescale_qkv(x.reshape(2, 2, 6), x[0], 2), X),
    "dequantize": (lambda x: x.half().dequantize(), X),
    "bincount": (lambda x: torch.bincount((x.flatten().abs() * 3).long(), minlength=9), X),
    "bincount of weights": (lambda x: torch.bincount((x.flatten().abs() * 3).long(), x.flatten().double()), X),
    "_native_batch_norm_legit": (
        lambda x: norm_with_statistics(aten._native_batch_norm_legit, x, True, 0.1, 1e-5),
        IMAGE,
    ),
    "_native_batch_norm_legit.no_stats": (
        lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
        IMAGE,
    ),
    "_batch_norm_with_update": (lambda x: norm_with_statistics(aten._batch_norm_with_update, x, 0.1, 1e-5), IMAGE),
    "batch_norm_update_stats": (norm_statistics, IMAGE),
    "batch_norm_backward": (norm_backward, IMAGE),
    "_slow_conv2d_forward": (lambda x, k: aten._slow_conv2d_forward(x, k, (3, 3), None, (1, 1), (1, 1)), IMAGE, KERNEL),
    "_slow_conv2d_backward": (slow_convolution_backward, IMAGE, KERNEL),
    "slow_conv_dilated2d": (
        lambda x, k: aten.slow_conv_dilated2d(x, k, (3, 3), None, (1, 1), (2, 2), (2, 2)),
        IMAGE,
        KERNEL,
    ),
    "slow_conv3d_forward": (
        lambda x, k: aten.slow_conv3d_forward(x, k, (3, 3, 3), None, (1, 1, 1), (1, 1, 1)),
        VOLUME,
        CUBE,
    ),
    "slow_conv_dilated3d": (
        lambda x, k: aten.slow_conv_dilated3d(x, k, (3, 3, 3), None, (1, 1, 1), (2, 2, 2), (2, 2, 2)),
        VOLUME,
        CUBE,
    ),
    "slow_conv_transpose3d": (lambda x, k: aten.slow_conv_transpose3d(x, k, (3, 3, 3)), VOLUME, CUBE),
    "rrelu_with_noise": (lambda x: aten.rrelu_with_noise(x, torch.zeros_like(x), 0.1, 0.3), X),
    "adaptive_avg_pool2d.out": (
        lambda x: out_of(lambda t, out: aten.adaptive_avg_pool2d.out(t, (2, 2), out=out), torch.float32, x),
        IMAGE,
    ),
    "mvlgamma.out": (lambda x: out_of(lambda t, out: torch.mvlgamma(t, 2, out=out), torch.float64, x.abs() + 3), X),
}


def test_bincount_of_weights_elsewhere_is_refused(device):
    bins, weights = torch.tensor([0, 2, 2], device=device), torch.ones(3)
    with pytest.raises(RuntimeError, match="device"):
        torch.bincount(bins, weights)


@pytest.mark.parametrize("name", CASES)
def test_composed_operations(device, name):
    function, *inputs = CASES[name]
    expected, actual = both(function, *inputs)
    as_list = [list(r) if isinstance(r, (tuple, list)) else [r] for r in (expected, actual)]
    torch.testing.assert_close([t.cpu() for t in as_list[1]], as_list[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arguments", [(9,), (9, False), (8, True, 4.5), (1,), (0,)], ids=str)
def test_kaiser_windows(device, arguments):
    for dtype in (torch.float32, torch.float64):
        actual = torch.kaiser_window(*arguments, dtype=dtype, device=device)
        assert actual.device.type == "xla"
        torch.testing.assert_close(actual.cpu(), torch.kaiser_window(*arguments, dtype=dtype))
    for wrong in ({"dtype": torch.int64}, {"window_length": -1}):
        with pytest.raises(RuntimeError):
            torch.kaiser_window(**{"window_length": 5, "device": device, **wrong})


def test_equal_is_asked_of_the_device(device):
    x = X.to(device)
    assert torch.equal(x, X.to(device)) and not torch.equal(x, x + 1) and not torch.equal(x, x[:2])
    assert not torch.equal(x.log(), x.log()), "a NaN equals nothing"


def test_combinations_are_added_to_the_out_tensor(device):
    check(lambda d: aten._compute_linear_combination.out(X.to(d), X[:3, :4].to(d), out=torch.ones(3, 6, device=d)))


def test_slopes_that_are_drawn(device):
    x = torch.full((4000,), -1.0, device=device)
    noise = torch.zeros_like(x)
    result = aten.rrelu_with_noise(x, noise, 0.2, 0.4, True)
    torch_xla.sync()
    slopes = noise.cpu()
    assert slopes.min() >= 0.2 and slopes.max() <= 0.4 and abs(slopes.mean() - 0.3) < 0.01
    assert torch.equal(result.cpu(), -slopes)


@pytest.mark.parametrize("bad", [torch.tensor([[1]]), torch.tensor([-1]), torch.tensor([1.5])])
def test_bincount_refuses_what_eager_refuses(device, bad):
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="bincount"):
            torch.bincount(bad.to(place))
