"""StableHLO of the models and of the computations that are measured, as this device records them.

    python -m compilers.programs FOLDER NAME...

writes FOLDER/NAME.mlir for each name: MODEL.KIND.TYPE of models.py, or NAME.TYPE of FUNCTIONS and STEPS.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

from . import models

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def _cast(dtype: torch.dtype) -> torch.autocast:
    return torch.autocast("xla", torch.bfloat16, enabled=dtype != torch.float32)


def _training(case: models.Case, dtype: torch.dtype) -> Callable[[], object]:
    """A step of training, with gradients clipped by their norm."""
    case.model.train()
    optimizer = case.make_optimizer(case.model.parameters())

    def step():
        optimizer.zero_grad(set_to_none=True)
        with _cast(dtype):
            loss = case.loss_of(case.model(case.inputs))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(case.model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def _forward(case: models.Case, dtype: torch.dtype) -> Callable[[], object]:
    case.model.eval()

    @torch.no_grad()
    def step():
        with _cast(dtype):
            return case.model(case.inputs)

    return step


KINDS = {"forward": _forward, "training": _training}


def text_of(step: Callable[[], object]) -> str:
    """What a plugin compiles of a step, which runs at the end."""
    result = step()
    text = xm.get_stablehlo()
    del result
    torch_xla.sync()
    return text


def model_text(make: Callable[..., models.Case], kind: str, dtype: torch.dtype, **sizes) -> str:
    """The text of one model's step."""
    torch.manual_seed(0)
    case = make(**sizes).to(torch_xla.device())
    step = KINDS[kind](case, dtype)
    if kind == "training":  # the first step makes the optimizer's state, which the later ones find
        step()
        torch_xla.sync()
    return text_of(step)


# ---- What is measured beside JAX: jax_programs.py has the same names ----
def _tensor(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="xla")


def _with_gradient(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.detach().requires_grad_()
    loss = F.cross_entropy(logits, targets)
    return loss.detach(), torch.autograd.grad(loss, logits)[0]


def _embedding_backward(rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    weight = _tensor(32000, 512, dtype=rows.dtype).requires_grad_()
    return torch.autograd.grad(F.embedding(tokens, weight), weight, rows)[0]


_TOKENS = ((4096,), torch.int64)
_HEADS = ((4, 8, 512, 64), None)
_ROWS = ((4096, 1024), None)
_SQUARE = ((1024, 1024), None)
_WEIGHT = ((1024,), None)
# A function and the shapes and types of its arguments; None: the type that is measured.
FUNCTIONS: dict[str, tuple[Callable, list]] = {
    "product": (torch.mm, [_SQUARE, _SQUARE]),
    "linear": (F.linear, [((512, 1024), None), ((4096, 1024), None), ((4096,), None)]),
    "softmax": (lambda x: torch.softmax(x, -1), [_ROWS]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (1024,), w, b), [_ROWS, _WEIGHT, _WEIGHT]),
    "attention": (F.scaled_dot_product_attention, [_HEADS] * 3),
    "attention_causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [_HEADS] * 3),
    "cross_entropy_with_gradient": (_with_gradient, [((1024, 8192), None), ((1024,), torch.int64)]),
    "embedding": (F.embedding, [_TOKENS, ((32000, 512), None)]),
    "embedding_backward": (_embedding_backward, [((4096, 512), None), _TOKENS]),
    "argmax": (lambda x: x.argmax(-1), [((1024, 4096), None)]),
    "cumsum": (lambda x: x.cumsum(-1), [_SQUARE]),
    "topk": (lambda x: torch.topk(x, 8), [((1024, 4096), None)]),
    "sort": (torch.sort, [_SQUARE]),
}
_SMALL = {"batch": 4, "length": 256, "width": 256, "heads": 4, "layers": 2, "words": 8192}
STEPS: dict[str, tuple[Callable[..., models.Case], str, dict]] = {
    "mlp_training": (models.mlp, "training", {}),
    "gpt_forward": (models.gpt2, "forward", {**_SMALL, "dropout": 0.0}),
    "gpt_training": (models.gpt2, "training", {**_SMALL, "dropout": 0.0}),
    "bert_training_with_dropout": (models.bert, "training", _SMALL),
}


def function_text(name: str, dtype: torch.dtype) -> str:
    """The text of one of FUNCTIONS."""
    call, arguments = FUNCTIONS[name]
    tensors = [_tensor(*shape, dtype=given or dtype) for shape, given in arguments]
    torch_xla.sync()
    return text_of(lambda: call(*tensors))


MODEL_NAMES = [f"{model}.{kind}.{title}" for model in models.MODELS for kind in KINDS for title in TYPES]
MEASURED_NAMES = tuple(f"{name}.{title}" for name in [*FUNCTIONS, *STEPS] for title in TYPES)


def text_by_name(name: str) -> str:
    """The text of one of MODEL_NAMES or MEASURED_NAMES."""
    program, *kind, title = name.split(".")
    if kind:
        return model_text(models.MODELS[program], kind[0], TYPES[title])
    if program in FUNCTIONS:
        return function_text(program, TYPES[title])
    make, kind_of_step, sizes = STEPS[program]
    return model_text(make, kind_of_step, TYPES[title], **sizes)


def main() -> None:
    """Writes the texts."""
    folder, *names = sys.argv[1:]
    torch_xla.set_auto_sync(False)
    torch.backends.mkldnn.set_flags(False)  # its LSTM is a call of the embedded engine; plugins get the parts
    for name in names:
        Path(folder, f"{name}.mlir").write_text(text_by_name(name), encoding="utf-8")


if __name__ == "__main__":
    main()
