"""Random modules of `torch.nn` with random options: training and inference, in several dtypes and layouts."""

from collections.abc import Callable

from tests.fuzz.draw import Draw

ACTIVATIONS = [
    "ReLU()",
    "GELU()",
    "GELU('tanh')",
    "SiLU()",
    "Mish()",
    "ELU(0.7)",
    "CELU(1.3)",
    "SELU()",
    "Tanh()",
    "ReLU6()",
]
ACTIVATIONS += [
    "Sigmoid()",
    "LogSigmoid()",
    "Softplus(2, 1)",
    "Softshrink(0.2)",
    "Hardshrink(0.2)",
    "Hardtanh(-.3, .4)",
]
ACTIVATIONS += [
    "Hardswish()",
    "Hardsigmoid()",
    "LeakyReLU(0.2)",
    "Threshold(0.1, 2)",
    "Softsign()",
    "Tanhshrink()",
    "GLU(-1)",
]
ACTIVATIONS += ["Softmax(-1)", "LogSoftmax(0)", "Softmin(-1)", "PReLU()", "Identity()", "Flatten()", "Dropout(0.0)"]
PADS = ["ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad", "ConstantPad"]
LOSSES = ["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "PoissonNLLLoss"]
SPATIAL = {1: (9,), 2: (8, 7), 3: (5, 4, 6)}


def options(draw: Draw, **choices: list) -> str:
    """Keyword arguments, each left out half the time."""
    return ", ".join(f"{name}={draw.choice(values)!r}" for name, values in choices.items() if draw.maybe())


def image(draw: Draw, channels: int, nd: int, **kwargs) -> str:
    batch = () if draw.maybe(0.15) else (draw.randint(1, 3),)
    return draw.tensor((*batch, channels, *SPATIAL[nd]), **kwargs)


def convolution(draw: Draw, kwargs: dict) -> tuple[str, str]:
    nd, groups = draw.randint(1, 3), draw.choice([1, 1, 2, 4])
    kernel = draw.choice([1, 2, 3])
    if draw.maybe(0.35):
        text = f"nn.ConvTranspose{nd}d(4, {groups * 2}, {kernel}, groups={groups}, "
        return text + options(draw, stride=[2], padding=[1], dilation=[2], bias=[False]) + ")", image(
            draw, 4, nd, **kwargs
        )
    text = f"nn.Conv{nd}d(4, {groups * 2}, {kernel}, groups={groups}, "
    modes = ["zeros", "reflect", "replicate", "circular"]
    if draw.maybe(0.2):
        return text + f"padding='same', padding_mode={draw.choice(modes)!r})", image(draw, 4, nd, **kwargs)
    rest = options(draw, stride=[1, 2], padding=[1, 2], dilation=[1, 2], bias=[False], padding_mode=modes)
    return text + rest + ")", image(draw, 4, nd, **kwargs)


def pool(draw: Draw, kwargs: dict) -> tuple[str, str]:
    nd = draw.randint(1, 3)
    kind = draw.choice(["MaxPool", "AvgPool", "LPPool", "AdaptiveAvgPool", "AdaptiveMaxPool"])
    if kind.startswith("Adaptive"):
        return f"nn.{kind}{nd}d({draw.choice([1, 2, 3])})", image(draw, 4, nd, **kwargs)
    rest = options(draw, stride=[1, 2, 3], ceil_mode=[True])
    if kind == "MaxPool":
        rest += ", " + options(draw, padding=[1], dilation=[2], return_indices=[True])
    elif kind == "AvgPool":
        rest += ", " + options(draw, padding=[1], count_include_pad=[False])
    norm = f"{draw.choice([1, 2, 3])}, " if kind == "LPPool" else ""
    return f"nn.{kind}{nd}d({norm}{draw.choice([2, 3])}, {rest})".replace(", ,", ","), image(draw, 4, nd, **kwargs)


def norm(draw: Draw, kwargs: dict) -> tuple[str, str]:
    nd = draw.randint(1, 3)
    text = draw.choice(
        [
            f"nn.BatchNorm{nd}d(4, {options(draw, affine=[False], track_running_stats=[False], momentum=[0.3, None])})",
            f"nn.InstanceNorm{nd}d(4, {options(draw, affine=[True], track_running_stats=[True])})",
            f"nn.GroupNorm({draw.choice([1, 2, 4])}, 4, {options(draw, affine=[False], eps=[1e-3])})",
            f"nn.LayerNorm({SPATIAL[nd][-1]}, {options(draw, elementwise_affine=[False], bias=[False])})",
            f"nn.LayerNorm({SPATIAL[nd]})",
            f"nn.RMSNorm({SPATIAL[nd][-1]}, {options(draw, eps=[1e-3], elementwise_affine=[False])})",
            f"nn.LocalResponseNorm({draw.choice([2, 3])})",
            f"nn.CrossMapLRN2d({draw.choice([2, 3])})",
        ]
    )
    return text, draw.tensor((draw.randint(2, 3), 4, *SPATIAL[nd]), **kwargs)


def reshape(draw: Draw, kwargs: dict) -> tuple[str, str]:
    nd = draw.randint(1, 3)
    pad = f"{draw.choice(PADS)}{nd}d"
    value = ", 0.5" if pad.startswith("Constant") else ""
    modes = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[nd]
    mode = draw.choice([*modes, "nearest", "nearest-exact"])
    resize = f"nn.Upsample(scale_factor={draw.choice([2, 1.5, 0.5])}, mode={mode!r}"
    corners = "" if "nearest" in mode else f", align_corners={draw.maybe()}"
    if draw.maybe(0.3):
        text = draw.choice(
            ["nn.PixelShuffle(2)", "nn.PixelUnshuffle(2)", "nn.ChannelShuffle(2)", "nn.Unfold(2, stride=2)"]
        )
        return text, draw.tensor((draw.randint(0, 2), 4, 6, 8), **kwargs)
    text = draw.choice(
        [
            f"nn.{pad}({draw.choice([1, tuple(draw.randint(0, 2) for _ in range(2 * nd))])}{value})",
            resize + corners + ")",
        ]
    )
    return text, draw.tensor((2, 4, *SPATIAL[nd]), **kwargs)


def activation(draw: Draw, kwargs: dict) -> tuple[str, str]:
    return f"nn.{draw.choice(ACTIVATIONS)}", draw.tensor((*draw.shape(draw.randint(0, 3)), 6), **kwargs)


def dense(draw: Draw, kwargs: dict) -> tuple[str, str]:
    leading = draw.shape(draw.randint(0, 3), 0 if draw.maybe(0.1) else 1)
    if draw.maybe(0.25):
        return "nn.Bilinear(4, 4, 3)", ", ".join([draw.tensor((*leading, 4), **kwargs)] * 2)
    return f"nn.Linear(4, {draw.randint(1, 5)}, bias={draw.maybe()})", draw.tensor((*leading, 4), **kwargs)


def recurrent(draw: Draw, kwargs: dict) -> tuple[str, str]:
    kind = draw.choice(["LSTM", "GRU", "RNN"])
    if draw.maybe(0.25):
        return f"nn.{kind}Cell(4, 5, {options(draw, bias=[False])})", draw.tensor((3, 4), **kwargs)
    extra = {"RNN": {"nonlinearity": ["relu", "tanh"]}, "LSTM": {"proj_size": [3]}, "GRU": {}}[kind]
    rest = options(draw, num_layers=[2], bidirectional=[True], batch_first=[True], bias=[False], **extra)
    shape = (draw.randint(1, 5), draw.randint(1, 3), 4) if draw.maybe(0.85) else (4, 4)
    return f"nn.{kind}(4, 5, {rest})", draw.tensor(shape, **kwargs)


def transformer(draw: Draw, kwargs: dict) -> tuple[str, str]:
    mask = f"make_index({draw.randrange(1000)}, (2, 5), 0, 2, 'bool') & (torch.arange(5, device=device) > 0)"
    first = "batch_first=True"
    x = draw.tensor((2, 5, 8), dense=True, **kwargs)  # rows of equal numbers have no variance to divide by
    layer = (
        f"nn.TransformerEncoderLayer(8, 2, 16, 0.0, {first}, {options(draw, norm_first=[True], activation=['gelu'])})"
    )
    padding = f", src_key_padding_mask={mask}" if draw.maybe() else ""
    if draw.maybe(0.3):
        return layer, x + padding
    if draw.maybe(0.4):
        # The CPU's nested tensors give zeros for padded tokens, which the device computes: docs/lazy.md.
        return f"nn.TransformerEncoder({layer}, 2, enable_nested_tensor=False)", x + padding
    padding = f", key_padding_mask={mask}" if draw.maybe() else ""
    rest = options(draw, add_zero_attn=[True], add_bias_kv=[True], bias=[False])
    return f"nn.MultiheadAttention(8, {draw.choice([1, 2, 4])}, {first}, {rest})", f"{x}, {x}, {x}{padding}"


def embedding(draw: Draw, kwargs: dict) -> tuple[str, str]:
    index = f"make_index({draw.randrange(1000)}, (3, 4), 0, 7, {draw.choice(['int64', 'int32'])!r})"
    if draw.maybe():
        return f"nn.Embedding(7, 5, {options(draw, padding_idx=[2], scale_grad_by_freq=[True], max_norm=[1.0])})", index
    return f"nn.EmbeddingBag(7, 5, {options(draw, mode=['sum', 'mean', 'max'], padding_idx=[2])})", index


def loss(draw: Draw, kwargs: dict) -> tuple[str, str]:
    reduction = f"reduction={draw.choice(['mean', 'sum', 'none'])!r}"
    if draw.maybe(0.4):
        name = draw.choice(LOSSES)
        target = draw.tensor((4, 5), kwargs.get("dtype", "float32"))
        target = f"torch.sign({target} + 0.1)" if name == "SoftMarginLoss" else target
        return f"nn.{name}({reduction})", f"{draw.tensor((4, 5), **kwargs)}, {target}"
    labels = f"make_index({draw.randrange(1000)}, (4,), 0, 5, 'int64')"
    rest = options(draw, label_smoothing=[0.1], ignore_index=[2])
    if draw.maybe():
        return f"nn.CrossEntropyLoss({reduction}, {rest})", f"{draw.tensor((4, 5), **kwargs)}, {labels}"
    if draw.maybe():
        return (
            f"nn.BCEWithLogitsLoss({reduction})",
            f"{draw.tensor((4, 5), **kwargs)}, {draw.tensor((4, 5), kwargs['dtype'])}.abs()",
        )
    choice = draw.choice(["MultiMarginLoss", "NLLLoss"])
    return f"nn.{choice}({reduction})", f"{draw.tensor((4, 5), **kwargs)}, {labels}"


def pairwise(draw: Draw, kwargs: dict) -> tuple[str, str]:
    text = draw.choice(
        ["nn.CosineSimilarity(1)", "nn.PairwiseDistance(2)", "nn.CosineEmbeddingLoss()", "nn.TripletMarginLoss()"]
    )
    arguments = [draw.tensor((4, 5), **kwargs) + " + 0.1", draw.tensor((4, 5), **kwargs)]
    if "Cosine" in text and "Loss" in text:
        arguments.append("torch.ones(4, device=device)")
    if "Triplet" in text:
        arguments.append(draw.tensor((4, 5), **kwargs) + " + 2")
    return text, ", ".join(arguments)


KINDS: list[Callable[[Draw, dict], tuple[str, str]]] = [
    *(convolution, convolution, pool, pool, norm, norm, reshape, activation, dense),
    *(recurrent, recurrent, transformer, embedding, loss, pairwise),
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("modules", seed)
    mode = draw.choice(["grad", "grad", "no_grad", "inference_mode"])
    # Sums of gradients cancel, and of bfloat16 only rounding is left.
    dtype = draw.choice(["float32", "float32", "float32", "float64", "float32" if mode == "grad" else "bfloat16"])
    text, arguments = draw.choice(KINDS)(draw, {"dtype": dtype, "grad": mode == "grad"})
    draw.line(f"m = make_module({draw.randrange(1000)}, {text.replace(', )', ')')!r}, {dtype!r})")
    if draw.maybe(0.4):
        draw.line("m = m.eval()")
    if mode == "grad":
        draw.line(f"y = m({arguments})")
        draw.line("backward()")
    else:
        draw.line(f"with torch.{mode}(): y = m({arguments})")
    return draw.lines
