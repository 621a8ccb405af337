"""One implementation of one program, in a process of its own, for inference.py.

    python bench/inference_worker.py IMPLEMENTATION "PROGRAM" THREADS [small]

Prints a line about the first step, or why there is none; then answers numbers of seconds on stdin by lines of samples.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

import torch
from inference_peers import Built, jax, llama_cpp, MissingError, nothing, onnxruntime, openvino
from inference_programs import Program

OWN = ("xla", "replay")
TOKENS = 16  # in a sample
SAMPLE_S = 0.05  # of other programs


def of_own_runtime(build: Callable[[Program], tuple[Callable, Callable]]) -> Callable:
    """The implementation in which a step has ended when it returns."""

    def build_steps(impl: str, program: Program, threads: int) -> tuple[Callable, Callable, Callable]:
        del impl
        return *build(program, threads), nothing

    return build_steps


def in_torch(impl: str, program: Program, threads: int) -> tuple[Callable, Callable, Callable]:
    """A step in PyTorch, what begins a text, and a wait for the steps."""
    torch.set_num_threads(threads)
    device, wait, wrap, follow = "cpu", nothing, lambda f: f, nothing
    if impl == "inductor":
        from torch._inductor import config

        config.freezing = True
        wrap = torch.compile
    if impl in OWN:
        import torch_xla

        device, wait = "xla", torch.xla.synchronize
        if impl == "replay":
            wrap = lambda f: torch_xla.compile(f, replay=True)  # noqa: E731
        else:
            follow = torch_xla.sync
    step, begin = (decoder if program.decodes else network)(program, device, wrap, impl == "inductor")

    def followed():
        with torch.no_grad():
            result = step()  # who holds no result gets none computed
        follow()
        return result

    return followed, begin, wait


def decoder(program: Program, device: str, wrap: Callable, wraps_model: bool) -> Built:
    """A token, or the prompt."""
    model = program.make_converted().to(device)
    caches, prompt = model.make_caches(1), program.make_prompt().to(device)
    places = torch.arange(prompt.size(1), device=device)
    token, place = torch.zeros(1, 1, dtype=torch.long, device=device), places[-1:] + 1
    called = wrap(model) if wraps_model else model

    @torch.no_grad()
    def begin():
        token.copy_(model(prompt, caches, places)[:, -1].argmax(-1, keepdim=True))
        place.copy_(places[-1:] + 1)
        token.cpu()

    def next_token():
        token.copy_(called(token, caches, place)[:, -1].argmax(-1, keepdim=True))
        place.add_(1)

    def read_prompt():
        return called(prompt, caches, places)

    step = next_token if program.model == "decode" else read_prompt
    return (step if wraps_model else wrap(step)), (begin if program.model == "decode" else nothing)


def network(program: Program, device: str, wrap: Callable, wraps_model: bool) -> Built:
    """A network's logits. Eager and inductor get images channels-last, which is faster there."""
    model, inputs = program.make_network()
    if device == "cpu":
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    model, inputs = model.to(device), [x.to(device) for x in inputs]
    called = wrap(model) if wraps_model else model

    def step():
        narrow = torch.autocast(device, torch.bfloat16) if program.form == "bfloat16" else contextlib.nullcontext()
        with narrow:
            return called(*inputs)

    return (step if wraps_model else wrap(step)), nothing


IMPLEMENTATIONS: dict[str, Callable] = {
    "xla": in_torch,
    "replay": in_torch,
    "llama.cpp": of_own_runtime(llama_cpp),
    "OpenVINO": of_own_runtime(openvino),
    "ONNX Runtime": of_own_runtime(onnxruntime),
    "JAX": of_own_runtime(jax),
    "inductor": in_torch,
    "eager": in_torch,
}


def serve(impl: str, program: Program, threads: int, out: TextIO) -> None:
    """Measures for as long as it is asked."""
    start = time.perf_counter()
    step, begin, wait = IMPLEMENTATIONS[impl](impl, program, threads)

    def run(count: int) -> tuple[float, float]:
        """Milliseconds of a step: by the clock, and of all processors."""
        begin()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            step()
        wait()
        return 1e3 * (time.perf_counter() - wall) / count, 1e3 * (time.process_time() - cpu) / count

    run(1)
    first = time.perf_counter() - start
    for _ in range(3):
        each = run(4 if program.model == "decode" else 1)[0]
    count = TOKENS if program.model == "decode" else max(1, int(SAMPLE_S * 1e3 / each))
    print(json.dumps({"first_s": first}), file=out, flush=True)
    for line in sys.stdin:
        end, samples = time.perf_counter() + float(line), []
        while not samples or time.perf_counter() < end:
            samples.append(run(count))
        answer = {"wall": [wall for wall, _ in samples], "cpu": [cpu for _, cpu in samples]}
        print(json.dumps(answer), file=out, flush=True)


def main() -> None:
    """Serves, or says why not."""
    program = Program(sys.argv[2], small="small" in sys.argv[4:])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # runtimes print too
    try:
        serve(sys.argv[1], program, int(sys.argv[3]), out)
    except MissingError as error:
        print(json.dumps({"reason": str(error)}), file=out, flush=True)


if __name__ == "__main__":
    main()
