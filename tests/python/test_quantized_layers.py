"""Quantized layers in plain PyTorch: products and convolutions of 8-bit integers, weights of 8 bits, quantize_dynamic.

What these compute is defined by integers and their scales, so float64 gives the exact value.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_ops import fallen_operations
from torch._higher_order_ops.out_dtype import out_dtype

import torch_xla
import torch_xla.debug.metrics as met

INTEGER_FORMS = {
    "_int_mm": torch._int_mm,
    "int32": lambda x, w: x.to(torch.int32) @ w.to(torch.int32),
    "transposed later": lambda x, w: x.to(torch.int32) @ w.t().contiguous().to(torch.int32).t(),
    "out_dtype": lambda x, w: out_dtype(torch.ops.aten.mm.default, torch.int32, x, w),
    "reshaped": lambda x, w: (x.to(torch.int32).view(1, *x.shape) @ w.to(torch.int32)).view(x.shape[0], -1),
}
SHAPES = [(1, 64, 32), (5, 77, 130), (70, 300, 65), (16, 2048, 24)]


def run(function, *tensors, threads=2):
    """function(*tensors) on the device by that many threads, without a fallback."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        met.clear_all()
        result = function(*(t.to("xla") for t in tensors)).cpu()
        assert not fallen_operations()
        return result
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("form", INTEGER_FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("is_transposed", [True, False])
def test_products_of_integers_are_exact(device, form, shape, is_transposed):
    rows, inner, columns = shape
    x = torch.randint(-128, 128, (rows, inner), dtype=torch.int8)
    w = torch.randint(-128, 128, (inner, columns), dtype=torch.int8)
    w = w.t().contiguous().t() if is_transposed else w
    found = run(INTEGER_FORMS[form], x, w)
    assert found.dtype == torch.int32 and torch.equal(found.long(), x.long() @ w.long())


def test_products_of_unsigned_integers_are_exact(device):
    x, w = torch.randint(0, 256, (33, 100), dtype=torch.uint8), torch.randint(-128, 128, (40, 100), dtype=torch.int8)
    assert torch.equal(run(lambda x, w: torch._int_mm(x, w.t()), x, w).long(), x.long() @ w.long().t())


def test_products_of_other_integers_raise_eagers_error(device):
    x = torch.zeros(4, 4, dtype=torch.int16)
    with pytest.raises(RuntimeError) as expected:
        torch._int_mm(x, x)
    with pytest.raises(RuntimeError) as found:
        torch._int_mm(x.to(device), x.to(device))
    assert str(found.value).split("\n")[0] == str(expected.value).split("\n")[0]


def dynamic_linear(x, w, scale, bias):
    """Rows of x rounded to 8 bits, as torchao's Int8DynamicActivationInt8WeightConfig writes it."""
    step = (x.amax(1, keepdim=True).maximum(-x.amin(1, keepdim=True)).float() / 127.5).clamp(min=1.2e-7)
    rounded = (x * (1 / step)).round().clamp(-128, 127).to(torch.int8)
    product = rounded.to(torch.int32) @ w.t().to(torch.int32)
    return ((product * step).to(x.dtype) * scale).to(x.dtype) + bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 50])
def test_a_dynamic_layer_is_within_its_rounding(device, dtype, rows):
    x, bias = torch.randn(rows, 256).to(dtype), torch.randn(96).to(dtype)
    w, scale = torch.randint(-127, 128, (96, 256), dtype=torch.int8), torch.rand(96) * 1e-2
    found, alone = (run(dynamic_linear, x, w, scale, bias, threads=threads) for threads in (2, 1))
    assert torch.equal(found, alone)
    weight = w.double() * scale[:, None]
    exact = x.double() @ weight.t() + bias.double()
    half_step = x.double().abs().amax(1, keepdim=True) / 127.5 * 0.51  # of each number of x
    of_type = 4 * torch.finfo(dtype).eps * (exact.abs() + bias.double().abs() + x.double().abs() @ weight.t().abs())
    assert ((found.double() - exact).abs() <= half_step * weight.abs().sum(1) + of_type).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 64])
def test_weights_of_integers_are_within_the_types_rounding(device, dtype, rows):
    x, w = torch.randn(rows, 300).to(dtype), torch.randint(-127, 128, (130, 300), dtype=torch.int8)
    scale = torch.rand(130).to(dtype) * 1e-2

    def linear(x, w, scale):
        return torch.mm(x, w.t().to(x.dtype)) * scale

    found, alone = (run(linear, x, w, scale, threads=threads) for threads in (2, 1))
    assert torch.equal(found, alone)
    exact = x.double() @ w.t().double() * scale.double()
    magnitude = x.double().abs() @ w.t().double().abs() * scale.double()
    bound = 2 * torch.finfo(dtype).eps * exact.abs() + 40 * torch.finfo(torch.float32).eps * magnitude
    assert ((found.double() - exact).abs() <= bound).all()


def convolve_dequantized(x, w, scales, zeros, bias, zero, **options):
    """As the graphs of PT2E dequantize them: an image of uint8, a weight with a scale for each channel."""
    image = (x.to(torch.float32) - zero) * 0.02
    shape = [-1, 1, 1, 1]
    weight = (w - zeros.view(shape)) * scales.view(shape)
    return F.conv2d(image, weight.to(torch.float32), bias, **options)


CONVOLUTIONS = {  # channels of a group, zero, options
    "3 x 3": (64, 0, {"padding": 1}),
    "stride": (64, 7, {"stride": 2, "padding": 1}),
    "dilation": (64, 128, {"dilation": 2}),
    "groups": (16, 3, {"groups": 4, "padding": 1}),
    "depthwise": (1, 0, {"groups": 64, "padding": 1}),
    "zeros of the weight": (64, 5, {"padding": 1}),
    "without bias": (64, 0, {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_integers_are_within_float32s_rounding(device, name):
    channels, zero, options = CONVOLUTIONS[name]
    x = torch.randint(0, 256, (2, 64, 9, 11), dtype=torch.uint8)
    w, scales = torch.randint(-128, 128, (64, channels, 3, 3), dtype=torch.int8), torch.rand(64) * 1e-2
    zeros = torch.randint(-3, 4, (64,)) if name == "zeros of the weight" else torch.zeros(64, dtype=torch.int64)
    bias = [] if name == "without bias" else [torch.randn(64)]

    def convolve(x, w, scales, zeros, bias=None):
        results = []
        for _ in range(3):  # from the third on by the packed weight
            results.append(convolve_dequantized(x, w, scales, zeros, bias, zero, **options))
            torch_xla.sync()
        return torch.stack(results)

    found, alone = (run(convolve, x, w, scales, zeros, *bias, threads=threads) for threads in (2, 1))
    assert torch.equal(found, alone) and torch.equal(found[0], found[2])
    image, weight = (x.double() - zero) * 0.02, (w.double() - zeros.view(-1, 1, 1, 1)) * scales.view(-1, 1, 1, 1)
    exact = F.conv2d(image, weight, *[b.double() for b in bias], **options)
    magnitude = F.conv2d(image.abs(), weight.abs(), *[b.double().abs() for b in bias], **options)
    assert ((found[0].double() - exact).abs() <= 20 * torch.finfo(torch.float32).eps * magnitude).all()


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(48, 64), torch.nn.Linear(64, 10, bias=False)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def quantized_dynamically(per_channel):
    qconfig = torch.ao.quantization.per_channel_dynamic_qconfig if per_channel else None
    spec = {torch.nn.Linear: qconfig} if per_channel else {torch.nn.Linear}
    return torch.ao.quantization.quantize_dynamic(Layers().eval(), spec)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [(5, 48), (2, 3, 48), (0, 48)], ids=str)
def test_layers_of_quantize_dynamic(device, per_channel, shape):
    model = quantized_dynamically(per_channel)
    x = torch.randn(shape) * 3 + 1
    expected = model(x)
    met.clear_all()
    found = copy.deepcopy(model).to(device)(x.to(device))
    assert not fallen_operations()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-2, atol=1e-2)  # one may round to a neighbour


@pytest.mark.parametrize("x", [torch.zeros(3, 48), torch.full((3, 48), 2.0), torch.full((3, 48), -1e-6)])
def test_dynamic_layers_round_constant_inputs_as_eager(device, x):
    layer = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(48, 8)), {torch.nn.Linear})
    torch.testing.assert_close(layer.to(device)(x.to(device)).cpu(), layer(x), rtol=1e-5, atol=1e-6)


def test_a_dynamic_layer_and_relu(device):
    packed = torch.ops.quantized.linear_prepack(
        torch.quantize_per_tensor(torch.randn(6, 16), 0.02, 3, torch.qint8), torch.randn(6)
    )
    x = torch.randn(4, 16)
    expected = torch.ops.quantized.linear_relu_dynamic(x, packed)
    torch.testing.assert_close(torch.ops.quantized.linear_relu_dynamic(x.to(device), packed).cpu(), expected)


@pytest.mark.parametrize(
    "x, match",
    [
        (torch.zeros(2, 48, dtype=torch.float16), "expected an input of float32, but got Half"),
        (torch.zeros(2, 47), "expected an input of 48 features, but got 47"),
        (torch.zeros(48), "expected an input of two dims at least, but got 1"),
    ],
)
def test_inputs_that_do_not_fit_a_dynamic_layer(device, x, match):
    with pytest.raises(RuntimeError, match=match):
        quantized_dynamically(False).first(x.to(device))


def test_a_dynamic_layer_is_copied_to_the_device_once(device):
    model, x = quantized_dynamically(False).to(device), torch.randn(4, 48, device=device)
    model(x)
    torch_xla.sync()
    met.clear_all()
    model(x)
    torch_xla.sync()
    assert not met.metric_data("TransferToDeviceTime")
