"""Random programs of tensor subclasses, function and dispatch modes, Parameters of subclasses and lazy modules."""

from tests.fuzz.draw import Draw

CLASSES = r"""
import copy, pickle
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

class Counted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(made, cls):
            made.calls = 1 + max((getattr(a, "calls", 0) for a in args if isinstance(a, torch.Tensor)), default=0)
        return made

class Scaled:
    def __init__(self, t, scale):
        self.t, self.scale = t, scale
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = tree_map(lambda a: a.t * a.scale if isinstance(a, cls) else a, (args, kwargs or {}))
        made = func(*plain[0], **plain[1])
        return cls(made / 2, 2) if isinstance(made, torch.Tensor) and made.dim() == 2 else made

class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, wrapped):
        return torch.Tensor._make_wrapper_subclass(
            cls, wrapped.shape, strides=wrapped.stride(), dtype=wrapped.dtype, device=wrapped.device)
    def __init__(self, wrapped):
        self.wrapped = wrapped
    def __tensor_flatten__(self):
        return ["wrapped"], None
    @classmethod
    def __tensor_unflatten__(cls, parts, meta, size, stride):
        return cls(parts["wrapped"])
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = tree_map_only(cls, lambda a: a.wrapped, (args, kwargs or {}))
        made = func(*plain[0], **plain[1])
        if func._schema.name.endswith("_") and isinstance(args[0], cls):
            return args[0]
        return tree_map_only(torch.Tensor, cls, made)

class Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made * 2 if func in (torch.relu, torch.Tensor.relu, torch.tanh, torch.Tensor.matmul) else made

class Halving(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made * 0.5 if func in (torch.ops.aten.relu.default, torch.ops.aten.mm.default) else made

class Checking(TorchDispatchMode):
    found = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for t in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(t, torch.Tensor) and t.is_floating_point() and t.isnan().any():
                Checking.found += 1
        return made
"""
MAKE = [
    "{a}.as_subclass(Counted)",
    "Wrapped({a}.detach().clone())",
    "torch.Tensor._make_subclass(Counted, {a}.detach())",
    "nn.Parameter({a}.detach().clone())",
    "nn.Parameter({a}.detach().clone().as_subclass(Counted))",
    "nn.Parameter(Wrapped({a}.detach().clone()))",
    "nn.Buffer({a}.detach().clone())",
    "torch.Tensor({a}.cpu()).to(device, copy=True)",
]
USE = [
    "{a} + {b}",
    "{a} * 2",
    "torch.relu({a})",
    "{a}.matmul({b})",
    "torch.mm({a}, {b})",
    "{a}[1:3].repeat(2, 1)",
    "{a}.t()",
    "torch.cat([{a}[:2], {b}[2:]])",
    "{a}.softmax(1)",
    "torch.tanh({a}) - {b}",
    "{a}.clone()",
    "F.linear({a}, {b})",
    "torch.where({a} > 0, {a}, {b})",
    "{a}.sum(0, keepdim=True) + {b}",
    "{a}.view(-1).view(4, 4)",
    "torch.stack([{a}, {b}]).mean(0)",
    "{a}.to(torch.float64).to(torch.float32)",
    "{a}.detach()",
    "copy.deepcopy({a}.detach())",
    "{a}.new_zeros(4, 4) + {b}",
    "torch.zeros_like({a}) + 1",
    "{a}.sort(1).values",
    "{a}.chunk(2)[0].repeat(2, 1)",
    "F.layer_norm({a}, (4,))",
    "{a}[{b} > 0].sum() + {a}",
    "torch.einsum('ij,jk->ik', {a}, {b})",
    "{a}.unsqueeze(0).expand(2, 4, 4)[1]",
    "-{a} ** 2 // 1",
    "{a}.max(1, keepdim=True)[0] + {b}",
]
WRITE = ["{a}.add_(1)", "{a}.mul_({b})", "{a}[0] = 2", "{a}[:, 1:].zero_()", "{a}.copy_({b})", "{a}.clamp_(-1, 1)"]
MODES = [
    "Doubling()",
    "Halving()",
    "Checking()",
    "torch.device(device)",
    "torch._C.DisableTorchFunctionSubclass()",
    "torch.no_grad()",
    "torch.no_grad()",
]
LAZY = [
    "_l = nn.LazyLinear(3, device=device); _o = _l({a}); lazy = [torch.tensor(p.shape) for p in _l.parameters()]",
    "_l = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()).to(device); lazy = _l({a}.detach() * 0)[0] * 0",
    "_u = nn.UninitializedParameter(device=device); _u.materialize((2, 2)); _ = _u.data.fill_(3); u = _u.detach()",
    "_l = nn.LazyConv1d(2, 3).to(device); lazy = torch.tensor(_l({a}.detach()[None]).shape)",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("subclasses", seed)
    draw.line(CLASSES)
    names = []
    for i in range(3):
        x = draw.tensor((4, 4), grad=draw.maybe(0.3))
        draw.line(f"a{i} = {x}")
        names.append(f"a{i}")
        if draw.maybe(0.6):
            draw.line(f"a{i} = {draw.choice(MAKE).format(a=f'a{i}')}")
    for i in range(3, 3 + draw.randint(2, 9)):
        a, b = draw.choice(names), draw.choice(names)
        if draw.maybe(0.05):
            draw.line(draw.choice(LAZY).format(a=a))
            continue
        mode = f"with {draw.choice(MODES)}: " if draw.maybe(0.3) else ""
        if draw.maybe(0.25):
            draw.line(mode + draw.choice(WRITE).format(a=a, b=b))
            continue
        draw.line(f"{mode}a{i} = {draw.choice(USE).format(a=a, b=b)}")
        names.append(f"a{i}")
    draw.line("kinds = torch.tensor([len(type(t).__name__) for t in [" + ", ".join(names) + "]])")
    draw.line("calls = torch.tensor([getattr(t, 'calls', 0) for t in [" + ", ".join(names) + "]])")
    draw.line(
        "plain = [t.wrapped if isinstance(t, Wrapped) else t.detach().as_subclass(torch.Tensor) for t in ["
        + ", ".join(names)
        + "]]"
    )
    draw.line("_ps = [" + ", ".join(names) + "]; " + "; ".join(f"{n} = None" for n in names))
    if draw.maybe(0.4):
        draw.line(
            "_t = sum(t.sum() for t in _ps if t.requires_grad); _t.backward() if isinstance(_t, torch.Tensor) else None"
        )
    return draw.lines
