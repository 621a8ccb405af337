"""What inference.py measures: tokens and the prompt of a decoder in four formats, networks for images in two."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from inference_models import IMAGES, inputs_of
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from quantized_linear import convert, FORMATS
from small_llama import Sizes, SmallLlama

PROMPT = {"decode": 128, "prefill": 256}  # tokens

NAMES = [
    *(f"decode {form}" for form in FORMATS),
    *(f"prefill {form}" for form in FORMATS),
    *(f"{model} {form}{batch}" for batch in ("", " x16") for model in IMAGES for form in ("float32", "bfloat16")),
]


@dataclass
class Program:
    """One of NAMES. `small`: a decoder of two narrow layers, for tests."""

    name: str
    small: bool = False

    @property
    def model(self) -> str:
        """decode, prefill, or a name of IMAGES."""
        return self.name.split()[0]

    @property
    def form(self) -> str:
        """The format of the weights; of images' networks, what autocast computes in."""
        return self.name.split()[1]

    @property
    def batch(self) -> int:
        """Of images."""
        return int(self.name.partition(" x")[2] or 1)

    @property
    def decodes(self) -> bool:
        """Whether it is the decoder."""
        return self.model in PROMPT

    @property
    def sizes(self) -> Sizes:
        """The decoder's."""
        if self.small:
            return Sizes(512, 2, 64, 192, 4, 2, 512)
        return Sizes(32000, 12, 1024, 2816, 16, 4, 512)

    def make_decoder(self) -> SmallLlama:
        """The decoder in float32, with the same weights each time."""
        torch.manual_seed(0)
        return SmallLlama(self.sizes).eval().requires_grad_(False)

    def make_converted(self) -> SmallLlama:
        """The decoder in its format."""
        return convert(self.make_decoder(), self.form)

    def make_network(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        """A network for images and its inputs, the same each time."""
        torch.manual_seed(0)
        return IMAGES[self.model]().eval().requires_grad_(False), inputs_of(self.model, self.batch)

    def make_prompt(self) -> torch.Tensor:
        """int64[1, length]."""
        generator = torch.Generator().manual_seed(1)
        return torch.randint(self.sizes.vocab_size, (1, PROMPT[self.model]), generator=generator)

    def greedy(self, evaluate: Callable, clear: Callable) -> tuple[Callable, Callable]:
        """A step of a runtime and what begins a text, where arrays go in and a token comes out.

        `evaluate` takes tokens [1, T] and their places [T]; `clear` empties the cache.
        """
        import numpy as np

        prompt = self.make_prompt().numpy()
        length = prompt.shape[1]
        state = {"token": 0, "place": length}

        def read_prompt():
            clear()
            state.update(token=evaluate(prompt, np.arange(length)), place=length)

        def step():
            state["token"] = evaluate(np.array([[state["token"]]]), np.array([state["place"]]))
            state["place"] += 1

        return (read_prompt, lambda: None) if self.model == "prefill" else (step, read_prompt)
