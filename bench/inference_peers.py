"""The programs of inference.py in the runtimes of others, as far as they are installed.

Each function gives a step and what begins a new text, or raises MissingError.
"""

import importlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from inference_programs import Program
from torch import nn

Built = tuple[Callable[[], object], Callable[[], object]]  # one step; what begins a text


class MissingError(Exception):
    """A runtime that is not installed, or cannot run a program; the text says why."""


def need(name: str):
    """The module, or a MissingError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingError(f"no module {error.name}") from None


def nothing() -> None:
    """For programs without a text."""


# ---- OpenVINO ----


class Stateless(nn.Module):
    """The decoder with its caches as inputs and results, which grow."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, place: torch.Tensor, *kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Logits, then keys and values of each layer."""
        grown = []

        def cache_of(keys: torch.Tensor, values: torch.Tensor) -> Callable:
            def put(k: torch.Tensor, v: torch.Tensor, place: torch.Tensor):
                grown.extend((torch.cat((keys, k), 2), torch.cat((values, v), 2)))
                return *grown[-2:], torch.arange(grown[-1].size(2))[None] <= place[:, None]

            return put

        caches = [cache_of(*pair) for pair in zip(kept[::2], kept[1::2])]
        return self.model(ids, caches, place), *grown


def _openvino_decoder(openvino, program: Program):
    """The decoder as a model that keeps its caches."""
    from openvino._offline_transformations import apply_make_stateful_transformation

    model = Stateless(program.make_decoder())
    sizes = model.model.sizes
    shape = (1, sizes.num_key_value_heads, 3, sizes.head_size)
    kept = [torch.randn(shape) for _ in range(2 * sizes.num_hidden_layers)]
    example = (torch.zeros(1, 2, dtype=torch.long), torch.arange(3, 5), *kept)
    converted = openvino.convert_model(model.eval(), example_input=example)
    names = ["ids", "place", *(f"kept{i}" for i in range(len(kept)))]
    for port, name in zip(converted.inputs, names):
        port.get_tensor().set_names({name})
    for i, port in enumerate(converted.outputs[1:]):
        port.get_tensor().set_names({f"grown{i}"})
    shapes = [[1, -1], [-1], *([1, shape[1], -1, shape[3]] for _ in kept)]
    converted.reshape({converted.input(name): openvino.PartialShape(s) for name, s in zip(names, shapes)})
    apply_make_stateful_transformation(converted, {f"kept{i}": f"grown{i}" for i in range(len(kept))})
    if program.form.startswith("int"):
        nncf = need("nncf")
        mode = nncf.CompressWeightsMode
        options = {"mode": mode.INT8_SYM} if program.form == "int8" else {"mode": mode.INT4_SYM, "group_size": 64}
        converted = nncf.compress_weights(converted, **options)
    return converted


def openvino(program: Program, threads: int) -> Built:
    """A step of OpenVINO."""
    runtime = need("openvino")
    if program.decodes:
        converted = _openvino_decoder(runtime, program)
    else:
        model, inputs = program.make_network()
        converted = runtime.convert_model(model, example_input=inputs, input=[x.shape for x in inputs])
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    settings["INFERENCE_PRECISION_HINT"] = "bf16" if program.form == "bfloat16" else "f32"
    request = runtime.Core().compile_model(converted, "CPU", settings).create_infer_request()
    if not program.decodes:
        arrays = [x.numpy() for x in inputs]
        return lambda: request.infer(arrays, share_inputs=True), nothing
    return program.greedy(
        lambda ids, place: request.infer({"ids": ids, "place": place}, share_inputs=True)[0][0, -1].argmax(),
        request.reset_state,
    )


# ---- ONNX Runtime ----


def onnxruntime(program: Program, threads: int) -> Built:
    """A step of ONNX Runtime."""
    if program.decodes or program.form != "float32":
        raise MissingError("measured with images in float32 only")
    runtime = need("onnxruntime")
    need("onnx")  # PyTorch's export needs it
    model, inputs = program.make_network()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        names = [f"input{i}" for i in range(len(inputs))]
        torch.onnx.export(model, inputs, path, input_names=names, dynamo=False)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    fed = {name: x.numpy() for name, x in zip(names, inputs)}
    return lambda: session.run(None, fed), nothing


# ---- llama.cpp ----

GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
}


def _write_gguf(program: Program, path: Path) -> None:
    """The decoder as a file of llama.cpp."""
    gguf = need("gguf")
    kinds = gguf.GGMLQuantizationType
    kind = {"float32": kinds.F32, "bfloat16": kinds.BF16, "int8": kinds.Q8_0, "int4": kinds.Q4_0}[program.form]
    model = program.make_decoder()
    sizes = model.sizes
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(sizes.max_position_embeddings)
    writer.add_embedding_length(sizes.hidden_size)
    writer.add_block_count(sizes.num_hidden_layers)
    writer.add_feed_forward_length(sizes.intermediate_size)
    writer.add_head_count(sizes.num_attention_heads)
    writer.add_head_count_kv(sizes.num_key_value_heads)
    writer.add_layer_norm_rms_eps(sizes.rms_norm_eps)
    writer.add_rope_dimension_count(sizes.head_size)
    writer.add_rope_freq_base(sizes.rope_theta)
    writer.add_vocab_size(sizes.vocab_size)
    writer.add_tokenizer_model("none")
    for name, weight in model.state_dict().items():
        for ours, theirs in GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        used = kind if weight.dim() > 1 else kinds.F32
        writer.add_tensor(name, gguf.quants.quantize(weight.numpy(), used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp(program: Program, threads: int) -> Built:
    """A step of llama.cpp: the libraries in the folder LLAMA_CPP_LIBS, by the binding of llama-cpp-py-sync."""
    import numpy as np

    if not program.decodes:
        raise MissingError("language models only")
    if "LLAMA_CPP_LIBS" not in os.environ:
        raise MissingError("LLAMA_CPP_LIBS names no folder of its libraries")
    ffi = need("llama_cpp_py_sync._cffi_bindings").ffi
    folder = Path(os.environ["LLAMA_CPP_LIBS"])
    backends = need("cffi").FFI()
    backends.cdef("void ggml_backend_load_all_from_path(const char*);")
    loader = backends.dlopen(str(next(folder.glob("libggml.*so*"))), backends.RTLD_NOW | backends.RTLD_GLOBAL)
    loader.ggml_backend_load_all_from_path(str(folder).encode())
    lib = ffi.dlopen(str(next(folder.glob("libllama.*so*"))))
    lib.llama_backend_init()
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "model.gguf")
        _write_gguf(program, path)
        parameters = lib.llama_model_default_params()
        model = lib.llama_model_load_from_file(str(path).encode(), parameters)
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = program.sizes.max_position_embeddings, 512, 512
    options.n_threads = options.n_threads_batch = threads
    context = lib.llama_init_from_model(model, options)
    memory = lib.llama_get_memory(context)

    def evaluate(ids, place):
        del place
        tokens = ffi.new("llama_token[]", ids[0].tolist())
        if lib.llama_decode(context, lib.llama_batch_get_one(tokens, ids.shape[1])):
            raise MissingError("llama_decode() has failed")
        logits = ffi.buffer(lib.llama_get_logits_ith(context, -1), 4 * program.sizes.vocab_size)
        return np.frombuffer(logits, np.float32).argmax()

    return program.greedy(evaluate, lambda: lib.llama_memory_clear(memory, True))


# ---- JAX ----


def jax(program: Program, threads: int) -> Built:
    """A step of JAX, under one jit with a static cache."""
    if not program.decodes or program.form.startswith("int"):
        raise MissingError("no form of the program in JAX")
    del threads  # it takes those of the processors that it may use
    need("jax")
    from jax import jit, lax, nn, numpy

    kind = numpy.dtype(program.form)
    weights = {name: numpy.asarray(t.numpy()).astype(kind) for name, t in program.make_decoder().state_dict().items()}
    sizes = program.sizes
    heads, shared, size, length = sizes.num_attention_heads, sizes.num_key_value_heads, sizes.head_size, 512

    def norm(x, name):
        wide = x.astype(numpy.float32)
        wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + sizes.rms_norm_eps)
        return wide.astype(kind) * weights[f"{name}.weight"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T

    def turn(x, angles):
        first, second = numpy.split(x, 2, -1)
        return (x * numpy.cos(angles) + numpy.concatenate((-second, first), -1) * numpy.sin(angles)).astype(kind)

    def attend(x, name, angles, cache, place):
        q, k, v = (linear(x, f"{name}.{part}_proj").reshape(x.shape[0], -1, size) for part in "qkv")
        new = numpy.stack((turn(k, angles), v))
        cache = lax.dynamic_update_slice(cache, new, (0, place[0], 0, 0))
        q = turn(q, angles).reshape(-1, shared, heads // shared, size)
        scores = numpy.einsum("tkgd,skd->kgts", q, cache[0]).astype(numpy.float32) / size**0.5
        chances = nn.softmax(numpy.where(numpy.arange(length) <= place[:, None], scores, -numpy.inf)).astype(kind)
        mixed = numpy.einsum("kgts,skd->tkgd", chances, cache[1]).reshape(x.shape[0], -1)
        return linear(mixed, f"{name}.o_proj"), cache

    def forward(ids, place, caches):
        x = weights["model.embed_tokens.weight"][ids[0]]
        speeds = sizes.rope_theta ** (-numpy.arange(0, size, 2) / size)
        angles = numpy.tile(place[:, None] * speeds, 2)[:, None]
        for i, cache in enumerate(caches):
            name = f"model.layers.{i}"
            mixed, caches[i] = attend(norm(x, f"{name}.input_layernorm"), f"{name}.self_attn", angles, cache, place)
            x = x + mixed
            y = norm(x, f"{name}.post_attention_layernorm")
            gated = nn.silu(linear(y, f"{name}.mlp.gate_proj")) * linear(y, f"{name}.mlp.up_proj")
            x = x + linear(gated, f"{name}.mlp.down_proj")
        return linear(norm(x[-1], "model.norm"), "lm_head").argmax(), caches

    call = jit(forward, donate_argnums=2)
    state = [numpy.zeros((2, length, shared, size), kind) for _ in range(sizes.num_hidden_layers)]

    def evaluate(ids, place):
        token, state[:] = call(ids, place, list(state))
        return int(token)

    return program.greedy(evaluate, nothing)
