"""StableHLO of the same computations as JAX writes it, for the page beside this device's texts.

    python -m compilers.jax_programs FOLDER

writes FOLDER/NAME.TYPE.mlir for each name of programs.py's FUNCTIONS and STEPS, and FOLDER/NAME.float32.highest.mlir
with products in full precision. Needs jax alone; nothing is computed.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

Tree = dict
DROPOUT = 0.1
_I32 = jnp.int32


def _attention(q, k, v, mask=None, drop=lambda x: x):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return drop(jax.nn.softmax(scores, -1)) @ v


def _causal(length: int):
    return jnp.tril(jnp.ones((length, length), bool))


def _norm(x, weight, bias):
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return (scaled * weight + bias).astype(x.dtype)


def _cross_entropy(logits, targets):
    """The mean over targets that are not -100, in float32."""
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    counts = targets != -100
    picked = jnp.take_along_axis(logs, jnp.where(counts, targets, 0)[:, None], 1)[:, 0]
    return -jnp.where(counts, picked, 0).sum() / counts.sum()


def _embedding_backward(rows, tokens):
    return jnp.zeros((32000, 512), rows.dtype).at[tokens].add(rows)


def _sort(x):
    places = jax.lax.broadcasted_iota(_I32, x.shape, x.ndim - 1)
    return jax.lax.sort((x, places), num_keys=1)


_TOKENS = ((4096,), _I32)
_HEADS = ((4, 8, 512, 64), None)
_ROWS = ((4096, 1024), None)
_SQUARE = ((1024, 1024), None)
_WEIGHT = ((1024,), None)
FUNCTIONS: dict[str, tuple[Callable, list]] = {
    "product": (jnp.matmul, [_SQUARE, _SQUARE]),
    "linear": (lambda x, w, b: x @ w.T + b, [((512, 1024), None), ((4096, 1024), None), ((4096,), None)]),
    "softmax": (jax.nn.softmax, [_ROWS]),
    "layer_norm": (_norm, [_ROWS, _WEIGHT, _WEIGHT]),
    "attention": (_attention, [_HEADS] * 3),
    "attention_causal": (lambda q, k, v: _attention(q, k, v, _causal(512)), [_HEADS] * 3),
    "cross_entropy_with_gradient": (jax.value_and_grad(_cross_entropy), [((1024, 8192), None), ((1024,), _I32)]),
    "embedding": (lambda tokens, table: table[tokens], [_TOKENS, ((32000, 512), None)]),
    "embedding_backward": (_embedding_backward, [((4096, 512), None), _TOKENS]),
    "argmax": (functools.partial(jnp.argmax, axis=-1), [((1024, 4096), None)]),
    "cumsum": (functools.partial(jnp.cumsum, axis=-1), [_SQUARE]),
    "topk": (lambda x: jax.lax.top_k(x, 8), [((1024, 4096), None)]),
    "sort": (_sort, [_SQUARE]),
}


# ---- Models: those of models.py at the sizes of programs.py. Weights are float32; products are of `dtype` ----
def _shapes(tree):
    """Shapes as what stands for arrays."""
    is_shape = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
    return jax.tree.map(lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32), tree, is_leaf=is_shape)


def _linear_shapes(inputs: int, outputs: int) -> Tree:
    return {"w": (outputs, inputs), "b": (outputs,)}


def _block_shapes(width: int) -> Tree:
    norm = {"w": (width,), "b": (width,)}
    parts = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return {"norms": [norm, norm], **{name: _linear_shapes(*sizes) for name, sizes in parts.items()}}


class _Net:
    """Layers in one type, with a key for their dropout; None: no dropout."""

    def __init__(self, dtype, key=None):
        self.dtype, self._key = dtype, key

    def linear(self, p, x):
        return x.astype(self.dtype) @ p["w"].astype(self.dtype).T + p["b"].astype(self.dtype)

    def drop(self, x):
        if self._key is None:
            return x
        self._key, key = jax.random.split(self._key)
        return jnp.where(jax.random.bernoulli(key, 1 - DROPOUT, x.shape), x / (1 - DROPOUT), 0)

    def attend(self, p, x, mask, heads):
        batch, length, width = x.shape
        parts = self.linear(p["qkv"], x).reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
        attended = _attention(*parts, mask=mask, drop=self.drop)
        return self.linear(p["out"], attended.transpose(0, 2, 1, 3).reshape(batch, length, width))

    def feed(self, p, x, approximate):
        return self.linear(p["down"], jax.nn.gelu(self.linear(p["up"], x), approximate=approximate))


_GPT = {"batch": 4, "length": 256, "width": 256, "heads": 4, "layers": 2, "words": 8192}


def _transformer_shapes(sizes: Tree) -> Tree:
    width, words = sizes["width"], sizes["words"]
    blocks = [_block_shapes(width) for _ in range(sizes["layers"])]
    norm = {"w": (width,), "b": (width,)}
    return {"words": (words, width), "places": (sizes["length"], width), "blocks": blocks, "norm": norm}


def _gpt(p, tokens, net):
    x = p["words"][tokens] + p["places"]
    for block in p["blocks"]:
        norms = block["norms"]
        x = x + net.attend(block, _norm(x, **_named(norms[0])), _causal(tokens.shape[1]), _GPT["heads"])
        x = x + net.feed(block, _norm(x, **_named(norms[1])), True)
    return _norm(x, **_named(p["norm"])).astype(net.dtype) @ p["words"].astype(net.dtype).T


def _named(norm):
    return {"weight": norm["w"], "bias": norm["b"]}


def _bert(p, tokens, net):
    mask = (tokens != 0)[:, None, None, :]
    x = net.drop(_norm(p["words"][tokens] + p["places"], **_named(p["norm"])))
    for block in p["blocks"]:
        norms = block["norms"]
        x = _norm(x + net.drop(net.attend(block, x, mask, _GPT["heads"])), **_named(norms[0]))
        x = _norm(x + net.drop(net.feed(block, x, False)), **_named(norms[1]))
    return net.linear(p["head"], x)


def _mlp(p, x, net):
    for layer in p["layers"][:-1]:
        x = net.drop(jax.nn.relu(net.linear(layer, x)))
    return net.linear(p["layers"][-1], x)


def _loss(model, p, inputs, targets, net):
    logits = model(p, inputs, net)
    return _cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def _clip(gradients):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), gradients)


def _sgd_step(p, g, momenta, count):
    momenta = jax.tree.map(lambda m, g, w: 0.9 * m + g + 1e-4 * w, momenta, g, p)
    return jax.tree.map(lambda w, m: w - 0.01 * m, p, momenta), momenta, count


def _adamw_step(p, g, state, count):
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], g)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state[1], g)
    rate, root = 1e-4 / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
    new = jax.tree.map(lambda w, m, v: w * (1 - 1e-4 * 0.1) - rate * m / (jnp.sqrt(v) / root + 1e-8), p, first, second)
    return new, (first, second), count


def _training(model, update, has_dropout, dtype):
    def step(p, state, count, inputs, targets, key):
        net = _Net(dtype, key if has_dropout else None)
        loss, gradients = jax.value_and_grad(functools.partial(_loss, model))(p, inputs, targets, net)
        return loss, *update(p, _clip(gradients), state, count)

    return step


def _arguments_of(shapes: Tree, inputs, targets, is_adam: bool) -> list:
    weights = _shapes(shapes)
    state = (weights, weights) if is_adam else weights
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return [weights, state, jax.ShapeDtypeStruct((), jnp.float32), inputs, targets, key]


def _steps(dtype) -> dict[str, tuple[Callable, list]]:
    tokens = jax.ShapeDtypeStruct((_GPT["batch"], _GPT["length"]), _I32)
    gpt = _transformer_shapes(_GPT)
    bert = {**gpt, "head": _linear_shapes(_GPT["width"], _GPT["words"])}
    mlp = {"layers": [_linear_shapes(*sizes) for sizes in ((784, 512), (512, 512), (512, 10))]}
    images, labels = jax.ShapeDtypeStruct((64, 784), jnp.float32), jax.ShapeDtypeStruct((64,), _I32)
    return {
        "mlp_training": (_training(_mlp, _sgd_step, True, dtype), _arguments_of(mlp, images, labels, False)),
        "gpt_forward": (lambda p, tokens: _gpt(p, tokens, _Net(dtype)), [_shapes(gpt), tokens]),
        "gpt_training": (_training(_gpt, _adamw_step, False, dtype), _arguments_of(gpt, tokens, tokens, True)),
        "bert_training_with_dropout": (
            _training(_bert, _adamw_step, True, dtype),
            _arguments_of(bert, tokens, tokens, True),
        ),
    }


def _write(folder: Path, dtype, ending: str) -> None:
    functions = {
        name: (call, [jax.ShapeDtypeStruct(shape, given or dtype) for shape, given in arguments])
        for name, (call, arguments) in FUNCTIONS.items()
    }
    for name, (call, arguments) in {**functions, **_steps(dtype)}.items():
        text = jax.jit(call, keep_unused=True).lower(*arguments).as_text()
        (folder / f"{name}.{ending}.mlir").write_text(text)


def main() -> None:
    """Writes the texts."""
    folder = Path(sys.argv[1])
    _write(folder, jnp.float32, "float32")
    _write(folder, jnp.bfloat16, "bfloat16")
    with jax.default_matmul_precision("highest"):
        _write(folder, jnp.float32, "float32.highest")


if __name__ == "__main__":
    main()
