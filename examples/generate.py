"""Generates text with a Llama-like model, token by token, with its weights in four formats.

The cache has its full length from the start and the place of the token is a tensor, so each token is one run of one
program, recorded once and replayed. A token is drawn on the device and read to be shown.

    python examples/generate.py [--model FOLDER] [--formats bfloat16 int4] [--prompt TEXT] [--tokens 100]

FOLDER has config.json and safetensors, as fine_tune.py and Hugging Face write them. Without one the weights are random.
With a tokenizer.json in it (and `pip install tokenizers`) tokens are its own, else they are bytes.
"""

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from quantized_linear import convert, FORMATS
from safetensors.torch import load_file
from small_llama import Sizes, SmallLlama
from tqdm import tqdm

import torch_xla


def load(folder: Path | None) -> SmallLlama:
    """The model of a folder, or a small one with random weights."""
    if not folder:
        return SmallLlama(Sizes(hidden_size=256, intermediate_size=768, max_position_embeddings=512))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = SmallLlama(Sizes(**{f.name: config[f.name] for f in dataclasses.fields(Sizes) if f.name in config}))
    for path in tqdm(sorted(folder.glob("*.safetensors")), desc="reading", unit="file", leave=False):
        model.load_state_dict(load_file(path), strict=False)
    return model


def find_tokenizer(folder: Path | None) -> tuple:
    """The functions from a text to its tokens and back."""
    if folder and (folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: tokenizer.encode(text).ids, tokenizer.decode
    return lambda text: list(text.encode()), lambda tokens: bytes(t % 256 for t in tokens).decode(errors="replace")


def draw(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The next tokens, int64[N, 1]: the likeliest, or one of the likeliest that have the probability top_p together."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    chances, tokens = torch.softmax(logits.float() / temperature, -1).sort(descending=True)
    return tokens.gather(-1, torch.multinomial(chances * (chances.cumsum(-1) - chances < top_p), 1))


@torch.no_grad()
def generate(model: SmallLlama, prompt: list[int], args: argparse.Namespace) -> Iterator[int]:
    """The tokens after the prompt, each when it is there."""
    caches = model.make_caches(1)

    def step(ids: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return draw(model(ids, caches, place)[:, -1], args.temperature, args.top_p)

    places = torch.arange(model.sizes.max_position_embeddings, device=args.device)
    token = step(torch.tensor([prompt], device=args.device), places[: len(prompt)])
    next_step = torch_xla.compile(step, replay=True) if args.device == "xla" else step
    for place in places[len(prompt) :].split(1):
        yield token.item()
        token = next_step(token, place)


def main() -> None:
    """Reads the command line, loads or makes a model, generates in each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a folder; without one the weights are random")
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu: eager PyTorch")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--prompt", default="The device ")
    parser.add_argument("--temperature", type=float, default=0.7, help="0: the likeliest token")
    parser.add_argument("--top-p", type=float, default=0.9)
    args = parser.parse_args()

    torch.manual_seed(0)
    encode, decode = find_tokenizer(args.model)
    base, prompt = load(args.model), encode(args.prompt)
    for form in args.formats:
        model = convert(base, form).to(args.device)
        tokens, shown, times = [], "", []
        print(f"{form}: {args.prompt}", end="", flush=True)
        for token in itertools.islice(generate(model, prompt, args), args.tokens):
            tokens.append(token)
            times.append(time.perf_counter())
            whole = decode(tokens).rstrip("\ufffd")  # the rest of a character may follow
            print(whole[len(shown) :], end="", flush=True)
            shown = max(shown, whole, key=len)
        late = times[len(times) // 2 :]  # the first tokens compile
        size = sum(t.numel() * t.element_size() for t in {*model.parameters(), *model.buffers()}) / 2**20
        print(f"\n{form}: {size:.2f} MB, {(len(late) - 1) / (late[-1] - late[0]):.1f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
