"""Rules of products, attention and convolutions: along a padded dim the padding is zero, or masked out."""

import math
from collections.abc import Callable, Sequence

import torch

from .extents import Extent, is_padded, plain, size_of
from .run import Run


def _contract(run: Run, func: Callable, a: torch.Tensor, b: torch.Tensor, axis_a: int, axis_b: int):
    """Both factors with zeros along the dims that are summed over."""
    x, y = run.dims_of(a)[axis_a], run.dims_of(b)[axis_b]
    if x != y and (is_padded(x) or is_padded(y)):
        raise run.error(func, f"padded dims of {run.text(a)} and {run.text(b)} that are not one")
    return run.filled(a, 0, [axis_a % a.dim()]), run.filled(b, 0, [axis_b % b.dim()])


def _product(run: Run, func: Callable, a: torch.Tensor, b: torch.Tensor):
    """The factors of a matmul, and the dims of its result."""
    filled = _contract(run, func, a, b, -1, -2 if b.dim() > 1 else -1)
    x, y = run.dims_of(a), run.dims_of(b)
    batch = run.broadcast(func, [x[:-2], y[:-2]])
    return *filled, (*batch, *x[-2:-1], *(y[-1:] if b.dim() > 1 else ()))


def _matmul(run: Run, func: Callable, a: torch.Tensor, b: torch.Tensor):
    a_filled, b_filled, dims = _product(run, func, a, b)
    return run.mark(func(a_filled, b_filled), dims)


def _reversed_matmul(run: Run, func: Callable, a: torch.Tensor, b: torch.Tensor):
    return _matmul(run, torch.matmul, b, a)


def _added_matmul(run: Run, func: Callable, input: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **kwargs):
    a_filled, b_filled, dims = _product(run, func, a, b)
    dims = run.broadcast(func, [run.dims_of(input), dims])
    return run.mark(func(input, a_filled, b_filled, **kwargs), dims)


def _linear(run: Run, func: Callable, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None):
    input_filled, weight_filled = _contract(run, func, input, weight, -1, -1)
    dims = (*run.dims_of(input)[:-1], *run.dims_of(weight)[:-1])
    if bias is not None:
        run.broadcast(func, [dims, run.dims_of(bias)])
    return run.mark(func(input_filled, weight_filled, bias), dims)


def _outer(run: Run, func: Callable, a: torch.Tensor, b: torch.Tensor):
    return run.mark(func(a, b), (*run.dims_of(a), *run.dims_of(b)))


def _letters(run: Run, func: Callable, equation: str, operands: Sequence[torch.Tensor]) -> tuple[list[str], str]:
    """The letters of the dims of each operand and of the result; those of `...` are capital ones that are not used."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [c for c in map(chr, range(ord("A"), ord("Z") + 1)) if c not in equation]
    rank = max(t.dim() - len(term.replace("...", "")) for t, term in zip(operands, terms, strict=True))
    wide = "".join(free[:rank])
    ranks = [t.dim() - len(term.replace("...", "")) for t, term in zip(operands, terms)]
    terms = [term.replace("...", wide[len(wide) - r :]) for term, r in zip(terms, ranks)]
    if not arrow:
        letters = "".join(terms)
        once = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in wide)
        return terms, wide + "".join(once)
    return terms, right.replace("...", wide)


def _einsum(run: Run, func: Callable, equation: str, *operands: torch.Tensor):
    operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if not isinstance(equation, str):
        raise run.error(func, "einsum by lists of numbers")
    terms, result = _letters(run, func, equation, operands)
    met: dict[str, list[Extent]] = {}
    for term, operand in zip(terms, operands):
        for letter, extent in zip(term, run.dims_of(operand), strict=True):
            met.setdefault(letter, []).append(extent)
    by_letter = {letter: run.broadcast(func, [[e] for e in extents])[0] for letter, extents in met.items()}
    summed = set(by_letter) - set(result)
    filled = [
        run.filled(operand, 0, [i for i, letter in enumerate(term) if letter in summed])
        for term, operand in zip(terms, operands)
    ]
    return run.mark(func(equation, *filled), [by_letter[letter] for letter in result])


def _embedding(
    run: Run,
    func: Callable,
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    dims = run.dims_of(weight)
    if is_padded(dims[0]) or (is_padded(dims[1]) and max_norm is not None) or scale_grad_by_freq:
        raise run.error(func, "padded rows of the table, rows that are normalized, and gradients by frequency")
    result = func(input, weight, padding_idx, max_norm, norm_type, sparse=sparse)
    return run.mark(result, (*run.dims_of(input), dims[1]))


def _attention(
    run: Run,
    func: Callable,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **kwargs,
):
    """Masks out padding keys."""
    q, k, v = map(run.dims_of, (query, key, value))
    if k[-2] != v[-2] or any(is_padded(dims[-1]) for dims in (q, k, v)):
        raise run.error(func, "keys and values that are not padded alike, or padded channels")
    heads = [[*dims[:-3], plain(1)] if kwargs.get("enable_gqa") else dims[:-2] for dims in (k, v)]
    dims = (*run.broadcast(func, [q[:-2], *heads]), q[-2], v[-1])
    if attn_mask is not None:
        run.broadcast(func, [(*dims[:-1], k[-2]), run.dims_of(attn_mask)])
    if is_padded(k[-2]):
        attn_mask = _attention_mask(run, func, (q[-2], k[-2]), attn_mask, is_causal, query)
        is_causal = False
    return run.mark(func(query, key, value, attn_mask, dropout_p, is_causal, **kwargs), dims)


def _attention_mask(run: Run, func: Callable, dims, attn_mask, is_causal: bool, query: torch.Tensor) -> torch.Tensor:
    exists = run.mask([plain(1), dims[1]], query.device)
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
        rows, columns = (torch.arange(size_of(extent), device=query.device) for extent in dims)
        exists = exists & (rows[:, None] >= columns)
    if attn_mask is None:
        return exists
    return attn_mask & exists if attn_mask.dtype == torch.bool else torch.where(exists, attn_mask, -math.inf)


def _images(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    """Each image separately: only the number of images may be padded."""
    dims = run.dims_of(input)
    operands = [a for a in (*args, *kwargs.values()) if run.is_padded(a)]
    if any(map(is_padded, dims[1:])) or operands:
        raise run.error(func, f"padding that is not that of a batch: {run.text(input)}")
    results = func(input, *args, **kwargs)
    for result in results if isinstance(results, tuple) else (results,):
        if result.dim() != len(dims):
            raise run.error(func, "images without a batch dim")
        run.mark(result, (dims[0], *map(plain, result.shape[1:])))
    return results


_OF_IMAGES = """
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d avg_pool1d avg_pool2d avg_pool3d max_pool1d
max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
adaptive_max_pool2d adaptive_max_pool3d interpolate group_norm pixel_shuffle pixel_unshuffle pad prelu dropout1d
dropout2d dropout3d
""".split()

RULES = {
    **dict.fromkeys(("matmul", "mm", "spmm", "bmm", "mv", "dot", "__matmul__"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _added_matmul),
    **dict.fromkeys(("outer", "ger"), _outer),
    **dict.fromkeys(_OF_IMAGES, _images),
    "__rmatmul__": _reversed_matmul,
    "linear": _linear,
    "einsum": _einsum,
    "embedding": _embedding,
    "scaled_dot_product_attention": _attention,
}
