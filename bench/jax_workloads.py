"""Programs of workloads.py in JAX: the same shapes and mathematics, each step under one jax.jit, with donated state.

Each function gives a function that runs one step and returns an array. Run by compare.py with an interpreter that has
JAX and torch: the numbers that a program starts from are torch's, so that its values are comparable.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch
from torch import nn
from workloads import IN_JAX

Step = Callable[[], jax.Array]


def _array(tensor: torch.Tensor) -> jax.Array:
    return jnp.asarray(tensor.detach().numpy())


def _linears(model: nn.Module) -> list[list[jax.Array]]:
    return [[_array(layer.weight), _array(layer.bias)] for layer in model if isinstance(layer, nn.Linear)]


def _keep_state(update: Callable, state, *inputs) -> Step:
    """A step that replaces the state by update(state, *inputs)[0] and returns [1]."""
    jitted = jax.jit(update, donate_argnums=0)

    def step():
        nonlocal state
        state, value = jitted(state, *inputs)
        return value

    return step


def mlp() -> Step:
    sizes = (784, 512, 512, 10)
    layers = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    weights = _linears(layers)
    x, y = _array(torch.randn(64, 784)), _array(torch.randint(0, 10, (64,)))

    def loss_of(weights, x, y):
        for i, (w, b) in enumerate(weights):
            x = x @ w.T + b
            x = jax.nn.relu(x) if i < len(weights) - 1 else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    def update(state, x, y):
        weights, momenta = state
        loss, grads = jax.value_and_grad(loss_of)(weights, x, y)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, grads)
        return (jax.tree.map(lambda w, m: w - 0.01 * m, weights, momenta), momenta), loss

    return _keep_state(update, (weights, jax.tree.map(jnp.zeros_like, weights)), x, y)


def chain() -> Step:
    a, b = _array(torch.randn(4_000_000)), _array(torch.randn(4_000_000))
    call = jax.jit(lambda a, b: jnp.tanh(a * b + 1) * jax.nn.sigmoid(a - b) + jnp.exp(a * 0.5) / (1 + b * b))
    return lambda: call(a, b)


def norm_softmax() -> Step:
    x = _array(torch.randn(64, 1024, 128))

    @jax.jit
    def call(x):
        x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return jax.nn.softmax(jax.nn.gelu(x, approximate=False))

    return lambda: call(x)


def tiny() -> Step:
    x = _array(torch.linspace(-1, 1, 16))

    @jax.jit
    def call(x):
        for _ in range(250):
            x = jnp.sin(x * 1.01 + 0.01) - x
        return x

    return lambda: call(x)


def adam() -> Step:
    parameters = [_array(torch.randn(64, 64)) for _ in range(200)]
    gradients = [_array(torch.randn(64, 64)) for _ in range(200)]

    def update(state, gradients):
        parameters, first, second, count = state
        count = count + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients)]
        rate, root = 1e-3 / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        new = [p - rate * m / (jnp.sqrt(v) / root + 1e-8) for p, m, v in zip(parameters, first, second)]
        return (new, first, second, count), new[0] + 0

    zeros = [jnp.zeros((64, 64)) for _ in range(200)]
    return _keep_state(update, (parameters, zeros, [z + 0 for z in zeros], jnp.float32(0)), gradients)


def gradient_penalty() -> Step:
    weights = _linears([nn.Linear(128, 128) for _ in range(4)])
    x = _array(torch.randn(64, 128))

    def model(weights, x):
        for w, b in weights:
            x = jnp.tanh(x @ w.T + b)
        return x.sum()

    def loss_of(weights, x):
        grad = jax.grad(model, argnums=1)(weights, x)
        return (((grad**2).sum(1) - 1) ** 2).mean()

    def update(weights, x):
        loss, grads = jax.value_and_grad(loss_of)(weights, x)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads), loss

    return _keep_state(update, weights, x)


WORKLOADS = {name: globals()[name] for name in IN_JAX}
