"""Random tensor programs as text: views, in-place writes, arithmetic, reductions and autograd, the same on any device.

`generate` draws a program from a seed, one Python statement per line, and runs it on the CPU as it goes, so that it
knows shapes and values.
"""

import math
import random

import torch

from tests.fuzz.play import ERRORS, make_scope

SHAPES = [(3, 4), (2, 3, 4), (4,), (), (1, 4), (2, 1, 4), (5, 3), (6, 2), (0, 3), (2, 3, 2, 2)]
DTYPES = ["float32"] * 6 + ["float64", "int64", "int32", "bool", "bfloat16"]
EXACT_UNARY = ["abs", "neg", "relu", "floor", "sign", "square"]
INEXACT_UNARY = ["exp", "tanh", "sigmoid", "sin", "sqrt", "rsqrt"]
BINARY = ["add", "sub", "mul", "maximum", "minimum", "eq", "lt", "div", "where"]
FLOAT_BITS = [0, 0x3F800000, -0x41000000]  # 0, 1 and -0.5
LIVE = 12


class Generator:
    """Draws lines. `inexact` holds storages whose values depend on rounding, `bits` those seen as another dtype."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.names: list[str] = []
        self.scope = make_scope("cpu")
        self.count = 0
        self.inexact: dict[int, torch.UntypedStorage] = {}  # keeps the storages, so that no address comes twice
        self.bits: dict[int, torch.UntypedStorage] = {}

    # ---- Statements ----
    def emit(self, line: str) -> bool:
        """Appends a statement and runs it. Returns whether it ran."""
        self.lines.append(line)
        try:
            exec(line, self.scope)
        except NotImplementedError:  # such a dtype may well work on the device
            self.lines.pop()
            return False
        except ERRORS:
            return False
        return True

    def new(self, expression: str, *sources: str, exact: bool = True) -> None:
        """A new variable; it is as exact as its sources unless the expression rounds."""
        name = f"t{self.count}"
        if not self.emit(f"{name} = {expression}"):
            return
        self.count += 1
        self.names.append(name)
        if not exact or any(self.is_inexact(source) for source in sources):
            self.mark(name)

    def mark(self, name: str) -> None:
        """From now on the storage of `name` holds rounded values; large ones are cut, lest rounding grows."""
        t = self.scope[name]
        storage = t.untyped_storage()
        self.inexact[storage._cdata] = storage
        if t.numel() and t.is_floating_point() and not t.detach().abs().amax() < 1000:
            self.emit(f"{name} = {name}.nan_to_num(1.0, 8.0, -8.0).clamp(-8, 8)")
            storage = self.scope[name].untyped_storage()
            self.inexact[storage._cdata] = storage

    def is_inexact(self, name: str) -> bool:
        return self.scope[name].untyped_storage()._cdata in self.inexact

    def is_bits(self, name: str) -> bool:
        return self.scope[name].untyped_storage()._cdata in self.bits

    def pick(self) -> str:
        return self.rng.choice(self.names)

    # ---- Kinds of statement ----
    def view(self, a: str) -> None:
        """A view of a."""
        t, rng = self.scope[a], self.rng
        if t.dim() == 0:
            self.new(rng.choice([f"{a}.unsqueeze(0)", f"{a}.expand(3)", f"{a}.view(1)", f"{a}.view_as({a})"]), a)
            return
        dim = rng.randrange(t.dim())
        size = t.shape[dim]
        options = [
            f"{a}.transpose(0, {dim})",
            f"{a}.unsqueeze({dim})",
            f"{a}.squeeze()",
            f"{a}.movedim({dim}, -1)",
            f"{a}.view(-1)",
            f"{a}.view({list(reversed(t.shape))})",
            f"{a}.reshape(-1)",
            f"{a}.expand(2, {', '.join(['-1'] * t.dim())})",
            f"{a}.detach()",
            f"{a}.data",
            f"{a}.flatten()",
        ]
        if size > 0:
            options += [
                f"{a}.select({dim}, {rng.randrange(size)})",
                f"{a}.unbind({dim})[-1]",
                f"{a}.unfold({dim}, 1, 1)",
            ]
        if size > 1 and t.numel() > 0:
            start = rng.randrange(size - 1)
            index = ", ".join([":"] * dim + [f"{rng.randrange(2)}::2"])
            options += [
                f"{a}.narrow({dim}, {start}, {rng.randrange(1, size - start + 1)})",
                f"{a}[{index}]",
                f"{a}.split({rng.randrange(1, size)}, {dim})[0]",
                f"{a}.chunk(2, {dim})[1]",
                self.strided(a),
            ]
        if t.dim() >= 2:
            options += [f"{a}.diagonal()", f"{a}.mT"]
        self.new(rng.choice(options), a)

    def strided(self, a: str) -> str:
        """An as_strided within a's storage."""
        t, rng = self.scope[a], self.rng
        items = t.untyped_storage().nbytes() // t.element_size()
        size, strides, room, step = [], [], items - 1, 1
        for _ in range(rng.randrange(1, 3)):
            stride = 0 if rng.random() < 0.1 else step * rng.randrange(1, 3)
            extent = min(rng.randrange(1, 4), room // max(stride, 1) + 1)
            room -= stride * (extent - 1)
            step += stride * (extent - 1)
            size.insert(0, extent)
            strides.insert(0, stride)
        return f"{a}.as_strided({size}, {strides}, {rng.randrange(room + 1)})"

    def dtype_view(self, a: str) -> None:
        """float32 seen as int32 and back; such storages are only moved and filled."""
        t = self.scope[a]
        if self.is_inexact(a) or t.requires_grad or t.dtype != torch.float32:
            return
        storage = t.untyped_storage()
        self.bits[storage._cdata] = storage
        self.new(f"{a}.view(torch.int32)", a)
        self.emit(f"{self.names[-1]}.fill_({self.rng.choice(FLOAT_BITS)})")

    def compute(self, a: str, b: str) -> None:
        """A new tensor from a and b."""
        if self.is_bits(a) or self.is_bits(b):
            self.new(self.rng.choice([f"{a}.clone()", f"{a}.contiguous()", f"({a} == {b})"]))
            if self.scope[self.names[-1]].dtype == torch.int32:
                storage = self.scope[self.names[-1]].untyped_storage()
                self.bits[storage._cdata] = storage
            return
        rng = self.rng
        rng.choice([self.unary, self.binary, self.binary, self.reduce, self.shuffle, self.combine, self.convert])(a, b)

    def unary(self, a: str, _: str) -> None:
        floating = self.scope[a].is_floating_point()
        if self.rng.random() < 0.5:
            op = self.rng.choice(INEXACT_UNARY)
            # Plus 0: in eager it depends on the place in a vector which zero a maximum of both is; rsqrt shows it.
            bounded = f"{a}.clamp(-4, 4)" + (" + 0.0" if op == "rsqrt" else "")
            self.new(f"torch.{op}({bounded})" if floating else f"torch.{op}({a})", a, exact=False)
        else:
            self.new(
                f"torch.{self.rng.choice(EXACT_UNARY[: 3 if self.is_inexact(a) else 6])}({a})",
                a,
                exact=self.is_exact_format(a),
            )

    def is_exact_format(self, *names: str) -> bool:
        """float32 and float64 hold the small multiples that programs begin with; bfloat16 soon rounds."""
        return all(self.scope[name].dtype not in (torch.bfloat16, torch.float16) for name in names)

    def binary(self, a: str, b: str) -> None:
        op = self.rng.choice(BINARY)
        rounds = self.is_inexact(a) or self.is_inexact(b)
        exact = self.is_exact_format(a, b)
        if op in ("eq", "lt") and rounds:
            op = "add"
        if op == "where":
            self.new(
                f"torch.where({a} > 0, {a}, {b})" if not rounds else f"torch.where(torch.ones_like({a}) > 0, {a}, {b})",
                a,
                b,
            )
        elif op == "div":
            self.new(f"{a} / ({b}.abs() + 0.5)", exact=False)
        elif self.rng.random() < 0.3:
            self.new(f"{a} * {self.rng.choice([2, -1, 0.5])} + {self.rng.choice([1, 0.25])}", a, exact=exact)
        else:
            self.new(f"torch.{op}({a}, {b})", a, b, exact=exact)

    def reduce(self, a: str, _: str) -> None:
        t, rng = self.scope[a], self.rng
        dim, keep = rng.randrange(max(t.dim(), 1)), rng.random() < 0.5
        arguments = f"{dim}, keepdim={keep}" if t.dim() else ""
        # Not of bfloat16: its last digit is rounding's, and a wider type that is made of it is compared in more digits.
        rounded = ["mean", "logsumexp", "var", "softmax"] if t.dtype != torch.bfloat16 else []
        op = rng.choice(["sum", "sum", "amax", "amin", "any", "cumsum", "argmax", *rounded])
        if op in ("softmax", "cumsum"):
            arguments = f"{dim}"
        elif op == "var":
            arguments = f"{dim}, correction=0, keepdim={keep}"
        elif op == "any" or (op == "sum" and rng.random() < 0.3):
            arguments = ""
        if op in ("argmax", "any") and (self.is_inexact(a) or t.dtype == torch.bool):
            op, arguments = "sum", ""
        self.new(
            f"{a}.{op}({arguments})",
            a,
            exact=op not in ("mean", "logsumexp", "var", "softmax") and self.is_exact_format(a),
        )

    def shuffle(self, a: str, b: str) -> None:
        """Copies in another order."""
        t, rng = self.scope[a], self.rng
        dim = rng.randrange(max(t.dim(), 1))
        options = [
            f"{a}.clone()",
            f"{a}.contiguous()",
            f"{a}.flip({dim})",
            f"{a}.roll(1)",
            f"{a}.repeat({', '.join(['2'] * max(t.dim(), 1))})",
        ]
        options += [f"{a}.mT.contiguous()", f"{a}.mT.clone()", f"torch.empty_like({a}).copy_({a})"]
        if t.dim() == 4:
            options += [f"{a}.contiguous(memory_format=torch.channels_last)"] * 4
        if t.dim() and t.shape[dim]:
            index = [rng.randrange(t.shape[dim]) for _ in range(3)]
            options += [
                f"{a}.index_select({dim}, index({index}))",
                f"{a}.contiguous()[index({[i % t.shape[0] for i in index]})]" if t.shape[0] else f"{a}.clone()",
            ]
        self.new(rng.choice(options), a)

    def combine(self, a: str, b: str) -> None:
        exact = self.is_exact_format(a, b)
        options = [
            f"torch.cat([{a}, {b}])",
            f"torch.stack([{a}, {a}])",
            f"torch.cat([{a}, {a}], -1)",
            f"torch.stack([{a}, {b}], -1)",
        ]
        options += [f"torch.matmul({a}, {b})", f"torch.matmul({a}, {a}.mT)"]
        self.new(self.rng.choice(options), a, b, exact=exact)

    def convert(self, a: str, _: str) -> None:
        t = self.scope[a]
        small = t.numel() == 0 or (
            not self.is_inexact(a) and (not t.is_floating_point() or bool(t.detach().abs().amax() < 1000))
        )
        dtype = self.rng.choice(["float32", "float64", "bfloat16"] + (["int64", "bool", "int32"] if small else []))
        self.new(f"{a}.to(torch.{dtype})", a, exact=dtype != "bfloat16")

    def write(self, a: str, b: str) -> None:
        """An in-place operation on a, which may be a view."""
        rng = self.rng
        if self.is_bits(a):
            t = self.scope[a]
            self.emit(f"{a}.fill_({rng.choice(FLOAT_BITS) if t.dtype == torch.int32 else rng.choice([0, 1, 0.5])})")
            return
        if self.is_bits(b):
            b = a
        ta, tb = self.scope[a], self.scope[b]
        if (
            a != b
            and ta.untyped_storage()._cdata == tb.untyped_storage()._cdata
            and not (ta.is_contiguous() and tb.is_contiguous())
        ):
            c = f"{b}.clone()"  # eager does not define what a write does to a source that overlaps in part
        else:
            c = b
        c = f"{c}.to({a}.dtype)" if rng.random() < 0.8 else c
        if self.is_inexact(b) and not self.scope[a].is_floating_point():
            c, b = "1", a
        options = [
            f"{a}.fill_({rng.choice([0, 1, 2])})",
            f"{a}.zero_()",
            f"{a}.add_({c})",
            f"{a}.add_({c}, alpha=2)",
            f"{a}.sub_({c})",
        ]
        options += [
            f"{a}.mul_({c})",
            f"{a}.copy_({c})",
            f"{a}.copy_({c})",
            f"{a}.masked_fill_(torch.ones_like({a}) > 0, 2)",
        ]
        options += [f"{a}.clamp_(-1, 2)", f"{a}.neg_()", f"torch.add({a}, {c}, out={a})"]
        if self.scope[b].numel() > 1:  # PyTorch fills from one element on the CPU and copies on devices
            options.append(f"{a}[...] = {c}")
        line = rng.choice(options)
        exact = self.is_exact_format(a, b) and not (c != "1" and self.is_inexact(b))
        if self.emit(line) and not exact:
            self.mark(a)

    def reshape_storage(self, a: str, b: str) -> None:
        """resize_, set_ and .data =, which change what a tensor is."""
        t, rng = self.scope[a], self.rng
        if rng.random() < 0.5:
            size = list(rng.choice(SHAPES))
            room = t.untyped_storage().nbytes() // t.itemsize - t.storage_offset()  # an expanded tensor has less
            fill = ".fill_(1)" if math.prod(size) > min(t.numel(), room) else ""  # the new memory is not defined
            if not self.is_bits(a):
                self.emit(f"{a}.resize_({size}){fill}")
        elif t.dtype == self.scope[b].dtype and not self.scope[b].requires_grad:
            self.emit(
                rng.choice([f"{a}.data = {b}", f"{a}.set_({b}.detach())"])
                if not t.requires_grad
                else f"{a}.data = {b}.clone()"
            )

    def step(self) -> None:
        a, b = self.pick(), self.pick()
        kind = self.rng.random()
        if kind < 0.3:
            self.view(a)
        elif kind < 0.62:
            self.compute(a, b)
        elif kind < 0.92:
            self.write(a, b)
        elif kind < 0.95:
            self.dtype_view(a)
        elif kind < 0.98:
            self.reshape_storage(a, b)
        if self.rng.random() < 0.1:
            self.lines.append("sync()")
        while len(self.names) > LIVE:
            self.lines.append(f"del {self.names.pop(0)}")

    def generate(self, steps: int) -> list[str]:
        """The lines of a program of about `steps` steps."""
        grads = self.rng.random() < 0.4
        for _ in range(4):
            shape, dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
            grad = grads and dtype in ("float32", "float64") and self.rng.random() < 0.6
            name = f"x{self.count}" if grad else f"t{self.count}"
            self.emit(f"{name} = make_input({self.rng.randrange(1 << 30)}, {shape}, {dtype!r}, {grad})")
            self.count += 1
            self.names.append(name)
        for _ in range(steps):
            self.step()
        if grads:
            self.emit("backward()")
        return self.lines


def generate(seed: int, steps: int = 25) -> list[str]:
    """The lines of program `seed`."""
    return Generator(seed).generate(steps)
