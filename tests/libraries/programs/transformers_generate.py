"""generate() of transformers on the device: static and dynamic caches, eager's tokens, one set of programs, threads."""

import copy
import itertools
import threading

import torch
from common import check_no_fallbacks
from transformers import LlamaConfig, LlamaForCausalLM

import torch_xla.debug.metrics as met

TOKENS, STREAMS, THREADS = 40, 12, 4
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=128,
    vocab_size=200,
    max_position_embeddings=128,
    eos_token_id=None,
    pad_token_id=0,
)
eager = LlamaForCausalLM(config).eval()
model = copy.deepcopy(eager).to("xla")


def generate(on: LlamaForCausalLM, length: int, count: int = TOKENS, **kwargs) -> torch.Tensor:
    """The prompt of this length and the tokens after it."""
    prompt = torch.randint(1, 200, (1, length), generator=torch.Generator().manual_seed(length)).to(on.device)
    kwargs = {"do_sample": False, **kwargs, "attention_mask": torch.ones_like(prompt)}
    return on.generate(prompt, max_new_tokens=count, **kwargs).cpu()


def programs() -> int:
    """Compiled so far."""
    return (met.metric_data("CompileTime") or [0])[0]


def resident() -> int:
    """Memory of the process, MB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmRSS"))


caches = ({}, {"cache_implementation": "static"})
ways = ({}, {"do_sample": True, "top_p": 0.9, "top_k": 0})
for cache in caches:
    assert torch.equal(generate(model, 9, **cache), generate(eager, 9, **cache)), cache
for turn in range(4):
    for cache, way in itertools.product(caches, ways):
        generate(model, 9 + turn % 2, **cache, **way)
    if turn == 1:
        before = programs(), resident()
assert programs() == before[0], "later turns compile"
assert resident() < before[1] + 8, "later turns take memory"
check_no_fallbacks()

alone = [generate(model, 5 + i % 5) for i in range(STREAMS)]
found: list[torch.Tensor | None] = [None] * STREAMS


def run(first: int) -> None:
    """Every fourth stream."""
    for i in range(first, STREAMS, THREADS):
        found[i] = generate(model, 5 + i % 5)


threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(torch.equal(a, b) for a, b in zip(alone, found)), "threads disturb each other"
