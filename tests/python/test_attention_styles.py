"""Attention and recurrent modules as other programs write them: biases, windows, caches, padded keys, weight drop."""

import copy

import pytest
import torch
import torch.nn.functional as F
from eager import check, differentiated
from torch import nn


def _alibi(q, k, v):
    slopes = 2.0 ** -torch.arange(1, q.size(1) + 1, device=q.device)
    distance = torch.arange(k.size(2), device=q.device)[None] - torch.arange(q.size(2), device=q.device)[:, None]
    causal = torch.full_like(distance, -torch.inf, dtype=q.dtype).triu(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=slopes[:, None, None] * distance + causal)


def _relative_bias(q, k, v):
    table = torch.linspace(-1, 1, 2 * q.size(2) * q.size(1), device=q.device).view(-1, q.size(1))
    steps = torch.arange(q.size(2), device=q.device)
    bias = table[steps[:, None] - steps[None] + q.size(2) - 1].permute(2, 0, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.unsqueeze(0))


def _window(q, k, v):
    steps = torch.arange(q.size(2), device=q.device)
    near = (steps[:, None] - steps[None]).abs() <= 2
    return F.scaled_dot_product_attention(q, k, v, attn_mask=near & (steps[:, None] >= steps[None]))


def _padded_keys(q, k, v):
    lengths = torch.tensor([6, 3], device=q.device)
    seen = torch.arange(k.size(2), device=q.device)[None] < lengths[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None])


def _grouped_cache(q, k, v):
    outputs = []
    keys, values = torch.zeros_like(k[:, :2]), torch.zeros_like(v[:, :2])
    for step in range(q.size(2)):
        keys = keys.index_copy(2, torch.tensor([step], device=q.device), k[:, :2, step : step + 1])
        values = values.index_copy(2, torch.tensor([step], device=q.device), v[:, :2, step : step + 1])
        seen = torch.arange(k.size(2), device=q.device) <= step
        one = q[:, :, step : step + 1]
        outputs.append(F.scaled_dot_product_attention(one, keys, values, attn_mask=seen[None], enable_gqa=True))
    return torch.cat(outputs, 2)


def _by_hand(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.size(-1) ** 0.5
    future = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, torch.finfo(q.dtype).min).softmax(-1, dtype=torch.float32) @ v


@pytest.mark.parametrize("style", [_alibi, _relative_bias, _window, _padded_keys, _grouped_cache, _by_hand])
def test_styles(style):
    torch.manual_seed(0)
    made = [torch.randn(2, 6, 4, 8) for _ in range(3)]

    def call(*made):
        return style(*(t.transpose(1, 2) for t in made))

    for grad in (True, False):
        check(differentiated(call, *made, grad=grad), tolerance=1e-4, atol=1e-5)


class ConvLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(4, 8, 3, padding=1), nn.LSTM(8, 6, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.rnn(F.relu(self.conv(x)).transpose(1, 2))[0]


class WeightDrop(nn.Module):
    """AWD-LSTM: the hidden weights are dropped out anew for each call; here by a mask that is given."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)
        self.raw = nn.Parameter(self.rnn.weight_hh_l0.detach().clone())
        self.register_buffer("mask", (torch.rand(24, 6) > 0.3).float())
        del self.rnn._parameters["weight_hh_l0"]
        self.rnn.weight_hh_l0 = self.raw * self.mask

    def forward(self, x):
        self.rnn.weight_hh_l0 = self.raw * self.mask
        self.rnn._flat_weights = [getattr(self.rnn, name) for name in self.rnn._flat_weights_names]
        return self.rnn(x.transpose(1, 2))[0]


class Decoder(nn.Module):
    """A GRU cell that attends over what a GRU has encoded."""

    def __init__(self):
        super().__init__()
        self.encoder, self.cell, self.score = nn.GRU(4, 6, batch_first=True), nn.GRUCell(10, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = x.transpose(1, 2)
        memory, state = self.encoder(x)
        state, outputs = state[-1], []
        for step in range(x.size(1)):
            weights = (memory @ self.score(state).unsqueeze(-1)).softmax(1)
            state = self.cell(torch.cat([x[:, step], (weights * memory).sum(1)], 1), state)
            outputs.append(state)
        return torch.stack(outputs, 1)


@pytest.mark.parametrize("make", [ConvLSTM, WeightDrop, Decoder])
def test_recurrent_styles(make):
    torch.manual_seed(0)
    made, x = make(), torch.randn(3, 4, 7)

    def call(model, x):
        copied = make().to(x.device)  # a copy of a model whose weights are results is refused
        copied.load_state_dict(model.state_dict())
        out = copied(x)
        return out, torch.autograd.grad(out.square().sum(), list(copied.parameters())) if out.requires_grad else ()

    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            check(lambda d: call(made, x.to(d)), tolerance=1e-4, atol=1e-5)


class Causal(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p, self.embed, self.qkv, self.head = p, nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, tokens):
        b, t = tokens.shape
        q, k, v = self.qkv(self.embed(tokens)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        seen = torch.ones(t, t, dtype=torch.bool, device=tokens.device).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=self.p if self.training else 0.0)
        return self.head(y.transpose(1, 2).reshape(b, t, 16))


def test_training_with_attention_dropout_sees_no_future():
    torch.manual_seed(0)
    model = Causal(0.3).to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    tokens = torch.randint(0, 20, (16, 8), device="xla")
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    other = tokens.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 20
    outputs = []
    for t in (tokens, other):
        torch.manual_seed(1)  # the same masks
        outputs.append(model(t).detach().cpu())
    assert torch.equal(outputs[0][:, :5], outputs[1][:, :5])
    assert not torch.equal(outputs[0][:, 5:], outputs[1][:, 5:])
    expected = copy.deepcopy(model).cpu().eval()(tokens.cpu())
    torch.testing.assert_close(model.eval()(tokens).cpu(), expected, rtol=1e-4, atol=1e-4)
