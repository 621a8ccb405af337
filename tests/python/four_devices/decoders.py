"""Language models over the devices of a plugin, as trainers mark them: data x fsdp x tensor, and experts by fsdp.

test_several_devices.py runs this file.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.experimental.scan_layers import scan_layers
from torch_xla.utils.checkpoint import checkpoint

xr.use_spmd()
N = xr.global_runtime_device_count()
WIDTH, HEADS, GROUPS, WORDS = 32, 4, 2, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = WIDTH // HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * self.size, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (p(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (t * cos + torch.cat((-t[..., self.size // 2 :], t[..., : self.size // 2]), -1) * sin for t in (q, k))
        k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """Two of four for each token."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.randn(4, WIDTH, 2 * WIDTH) / 8) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(4, 2 * WIDTH, WIDTH) / 8)

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        shares = torch.zeros(*x.shape[:-1], 4, device=x.device).scatter(-1, chosen, weights / weights.sum(-1, True))
        hidden = F.silu(torch.einsum("bth,ehf->betf", x, self.w1)) * torch.einsum("bth,ehf->betf", x, self.w3)
        return torch.einsum("betf,efh,bte->bth", hidden, self.w2, shares)


class Layer(nn.Module):
    def __init__(self, mixer, mark):
        super().__init__()
        self.input_norm, self.inner_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.mixer, self.mark = Attention(), mixer(), mark

    def compute(self, x, cos, sin):
        x = x + self.attention(self.input_norm(x), cos, sin)
        return self.mark(x + self.mixer(self.inner_norm(x)))

    def forward(self, x, cos, sin):
        return checkpoint(self.compute, x, cos, sin, use_reentrant=False), cos, sin


class Decoder(nn.Module):
    def __init__(self, mixer, mark):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(mixer, mark) for _ in range(3))
        self.norm = nn.RMSNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        size = WIDTH // HEADS
        rates = 10000 ** (-torch.arange(0, size, 2, device=ids.device) / size)
        angles = torch.outer(torch.arange(ids.shape[1], device=ids.device), rates).repeat(1, 2)
        carry = (self.embed_tokens(ids), angles.cos(), angles.sin())
        if ids.device.type == "xla":
            carry = scan_layers(self.layers, carry)
        else:
            for layer in self.layers:
                carry = layer(*carry)
        return self.lm_head(self.norm(carry[0]))


CUT = {  # by ends of names
    "q_proj.weight k_proj.weight v_proj.weight gate_proj.weight up_proj.weight lm_head.weight": ("tensor", "fsdp"),
    "o_proj.weight down_proj.weight embed_tokens.weight": ("fsdp", "tensor"),
    "router.weight": (None, "fsdp"),
    "norm.weight": ("fsdp",),
    "w1 w3": (None, "fsdp", "tensor"),
    "w2": (None, "tensor", "fsdp"),
}


def cut_parameters(model, mesh) -> None:
    for name, parameter in model.named_parameters():
        spec = next(spec for ends, spec in CUT.items() if name.endswith(tuple(ends.split())))
        xs.mark_sharding(parameter, mesh, spec)


def train(model, optimizer, batches, place=lambda ids: ids) -> list[float]:
    losses = []
    for ids in map(place, batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


@pytest.mark.parametrize("mixer, shape", [(Gated, (1, N // 2, 2)), (Experts, (1, N, 1))])
def test_training_by_scan_and_checkpoints(device, mixer, shape):
    torch.manual_seed(0)
    mesh = xs.Mesh(range(N), shape, ("data", "fsdp", "tensor"))
    batch = ("data", "fsdp")

    def mark(x):
        return xs.mark_sharding_with_gradients(x, mesh, (batch, None, "tensor")) if x.device.type == "xla" else x

    def place(ids):
        ids = ids.to(device)
        xs.mark_sharding(ids, mesh, (batch, None))
        return ids

    expected = Decoder(mixer, mark)
    model = copy.deepcopy(expected).to(device)
    cut_parameters(model, mesh)
    batches = [torch.randint(WORDS, (N, 12)) for _ in range(10)]
    theirs = train(expected, torch.optim.AdamW(expected.parameters(), 1e-2), batches)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    met.clear_all()
    ours = train(model, optimizer, batches, place)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert set(met.executed_fallback_ops()) <= {"aten::_local_scalar_dense"}  # the losses
    for parameter in model.parameters():
        for value in (parameter.detach(), optimizer.state[parameter]["exp_avg"]):
            shards = [shard.data.numel() for shard in xs.wrap_if_sharded(value).local_shards]
            cut_by = {1: shape[1], 2: N if value.shape[0] != 4 else shape[1], 3: N}[value.dim()]
            assert shards == [value.numel() // cut_by] * N
