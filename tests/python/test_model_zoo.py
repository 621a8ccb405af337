"""Small models of many kinds train on the device as on the CPU: the same losses, no fallback but for what is listed."""

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from test_ops import fallen_operations
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils.parametrizations import spectral_norm

import torch_xla
import torch_xla.debug.metrics as met

STEPS = 20


def sgd(p):
    return torch.optim.SGD(p, lr=0.05, momentum=0.9)


def adam(p):
    return torch.optim.Adam(p, lr=0.003)


def adamw(p):
    return torch.optim.AdamW(p, lr=0.003, weight_decay=0.1, fused=True)


def rmsprop(p):
    return torch.optim.RMSprop(p, lr=0.001)


def adagrad(p):
    return torch.optim.Adagrad(p, lr=0.02)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "sgd_loop": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam_loop": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "adamw_loop": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, foreach=False),
}


class Case(NamedTuple):
    """What is trained: loss_of(model, *data) is the loss of a step."""

    model: nn.Module
    data: tuple
    loss_of: Callable
    make_optimizer: Callable


def classify(model, x, target):
    return F.cross_entropy(model(x), target)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


NORMS = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(2, channels),
    "layer": LayerNorm2d,
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
    "none": lambda channels: nn.Identity(),
}
POOLINGS = {
    "max": lambda: nn.MaxPool2d(3, 2, 1),
    "avg": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "adaptive_avg": lambda: nn.AdaptiveAvgPool2d((5, 4)),
    "adaptive_max": lambda: nn.AdaptiveMaxPool2d((5, 4)),
    "lp": lambda: nn.LPPool2d(2, 2),
}


class ConvNet(nn.Module):
    def __init__(self, norm, pooling):
        super().__init__()
        norm = NORMS[norm]
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), norm(8), nn.SiLU(), POOLINGS[pooling]())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), norm(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.down = nn.Sequential(norm(8), nn.SiLU(), nn.Conv2d(8, 12, 3, 2, 1))
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head(self.down(x + self.block(x)).mean((2, 3)))


def mlp():
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
    return Case(model, (torch.randn(8, 20), torch.randint(0, 10, (8,))), classify, sgd)


def normed():
    """Of no bias that the norm behind it takes away again."""
    first = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
    model = nn.Sequential(*first, nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(72, 5))
    return Case(model, (torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))), classify, sgd)


def convnet(norm, pooling):
    return lambda: Case(ConvNet(norm, pooling), (torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))), classify, sgd)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.middle = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 12, 3, 2, 1)
        self.bottom = nn.Conv2d(12, 12, 3, 2, 1)
        self.up, self.merge = nn.ConvTranspose2d(12, 12, 2, 2), nn.Conv2d(24, 6, 3, padding=1)
        self.out = nn.Conv2d(12, 1, 1)

    def forward(self, x):
        inner = F.relu(self.inner(x))
        middle = F.relu(self.middle(inner))
        merged = F.relu(self.merge(torch.cat([self.up(F.relu(self.bottom(middle))), middle], 1)))
        merged = F.interpolate(merged, scale_factor=2, mode="bilinear", align_corners=False)
        thumbnail = F.interpolate(F.avg_pool2d(x, 4), size=x.shape[2:], mode="nearest")
        return self.out(torch.cat([merged, inner], 1)) + thumbnail


def unet():
    def loss_of(model, x, mask):
        logits = model(x)
        p = logits.sigmoid()
        dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
        return F.binary_cross_entropy_with_logits(logits, mask) + dice

    return Case(UNet(), (torch.randn(2, 1, 16, 16), (torch.rand(2, 1, 16, 16) > 0.6).float()), loss_of, adam)


class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, **kwargs):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, **kwargs).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(30, 16), nn.Embedding(10, 16)
        self.blocks, self.norm = nn.ModuleList([Block(16), Block(16)]), nn.LayerNorm(16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.head(self.norm(x))


def gpt():
    def loss_of(model, tokens):
        return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Case(GPT(), (torch.randint(0, 30, (4, 10)),), loss_of, adamw)


class BERT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.segment = nn.Embedding(30, 16, padding_idx=0), nn.Embedding(2, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 30)

    def forward(self, tokens, segments):
        x = self.token(tokens) + self.segment(segments)
        return self.head(self.encoder(x, src_key_padding_mask=tokens == 0))


def bert():
    def loss_of(model, tokens, segments, hidden):
        target = tokens.masked_fill(~hidden | (tokens == 0), -100)
        seen = torch.where(hidden & (tokens != 0), 1, tokens)
        return F.cross_entropy(model(seen, segments).flatten(0, 1), target.flatten(), ignore_index=-100)

    tokens = torch.randint(2, 30, (3, 9))
    tokens[1, 5:], tokens[2, 7:] = 0, 0
    return Case(BERT(), (tokens, torch.randint(0, 2, (3, 9)), torch.rand(3, 9) > 0.6), loss_of, adamw)


class Seq2Seq(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.embed, self.head = nn.Embedding(15, 8), nn.Linear(24, 15)
        self.encoder, self.decoder = rnn(8, 12, batch_first=True), rnn(8, 12, batch_first=True)
        self.score = nn.Linear(12, 12, bias=False)

    def forward(self, source, target):
        memory, state = self.encoder(self.embed(source))
        x, _ = self.decoder(self.embed(target), state)
        weights = (x @ self.score(memory).mT).masked_fill((source == 0)[:, None], -torch.inf).softmax(-1)
        return self.head(torch.cat([x, weights @ memory], -1))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(6, 8, num_layers=2, bidirectional=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def tagger():
    def loss_of(model, x, target):
        return F.mse_loss(model(x), target)

    return Case(Tagger(), (torch.randn(5, 3, 6), torch.randn(5, 3, 4)), loss_of, sgd)


def seq2seq(rnn):
    def loss_of(model, source, target):
        y = model(source, target[:, :-1])
        return F.cross_entropy(y.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)

    def make():
        source = torch.randint(1, 15, (4, 7))
        source[1:3, 5:] = 0
        return Case(Seq2Seq(rnn), (source, torch.randint(0, 15, (4, 6))), loss_of, rmsprop)

    return make


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8))
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 20))

    def forward(self, x, noise):
        mean, log_variance = self.encode(x).chunk(2, -1)
        return self.decode(mean + noise * (0.5 * log_variance).exp()), mean, log_variance


def vae():
    def loss_of(model, x, noise):
        y, mean, log_variance = model(x, noise)
        kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.binary_cross_entropy(y.sigmoid(), x, reduction="none").sum(-1).mean() + kl

    return Case(VAE(), (torch.rand(6, 20), torch.randn(6, 4)), loss_of, adagrad)


class MessagePassing(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(3 * width, width)

    def forward(self, x, source, target):
        m = F.leaky_relu(self.message(torch.cat([x[source], x.index_select(0, target)], -1)))
        degree = x.new_zeros(x.size(0)).scatter_add(0, target, torch.ones_like(target, dtype=x.dtype)).clamp(min=1)
        mean = torch.zeros_like(x).index_add(0, target, m) / degree[:, None]
        highest = torch.zeros_like(x).scatter_reduce(0, target[:, None].expand_as(m), m, "amax", include_self=False)
        return F.elu(self.update(torch.cat([x, mean, highest], -1)))


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([MessagePassing(6), MessagePassing(6)])
        self.head = nn.Linear(6, 3)

    def forward(self, x, source, target, graph):
        for layer in self.layers:
            x = layer(x, source, target)
        return self.head(x.new_zeros(2, 6).index_add_(0, graph, x))


def graph_net():
    def loss_of(model, x, source, target, graph, labels):
        return F.cross_entropy(model(x, source, target, graph), labels)

    edges = torch.randint(0, 10, (2, 25))
    return Case(GraphNet(), (torch.randn(10, 6), *edges, torch.arange(10) // 5, torch.tensor([0, 2])), loss_of, adam)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.cls = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 1, 16))
        self.position, self.blocks = nn.Parameter(0.02 * torch.randn(1, 10, 16)), nn.ModuleList([Block(16), Block(16)])
        self.head = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 5))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def vit():
    return Case(ViT(), (torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))), classify, adamw)


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(8, 12, 3, 2, 1), nn.GRU(12, 10, bidirectional=True)
        self.head = nn.Linear(20, 6)

    def forward(self, x):
        return self.head(self.rnn(F.hardtanh(self.conv(x), 0, 20).permute(2, 0, 1))[0]).log_softmax(-1)


def speech():
    def loss_of(model, x, targets, lengths, target_lengths):
        return F.ctc_loss(model(x), targets, lengths, target_lengths, zero_infinity=True)

    lengths, target_lengths = torch.tensor([12, 10, 9]), torch.tensor([4, 3, 2])
    return Case(Speech(), (torch.randn(3, 8, 24), torch.randint(1, 6, (3, 4)), lengths, target_lengths), loss_of, adam)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.enter = nn.Linear(8, 8), nn.Conv2d(1, 8, 3, padding=1)
        self.norm, self.leave = nn.GroupNorm(4, 8), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * torch.exp(-math.log(100) * torch.arange(4, device=x.device) / 4)
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        return self.leave(F.silu(self.norm(self.enter(x)) + time[:, :, None, None]))


def diffusion():
    def loss_of(model, x, t, noise):
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.1, 50, device=x.device), 0)[t][:, None, None, None]
        return F.mse_loss(model(kept.sqrt() * x + (1 - kept).sqrt() * noise, t), noise)

    data = torch.randn(3, 1, 8, 8), torch.randint(0, 50, (3,)), torch.randn(3, 1, 8, 8)
    return Case(Denoiser(), data, loss_of, adam)


class Experts(nn.Module):
    def __init__(self, width=8, experts=4, hidden=12):
        super().__init__()
        self.route, self.head = nn.Linear(width, experts), nn.Linear(width, 3)
        self.enter = nn.Parameter(torch.randn(experts, width, hidden) / 3)
        self.leave = nn.Parameter(torch.randn(experts, hidden, width) / 3)

    def forward(self, x):
        p = self.route(x).softmax(-1)
        weights, chosen = p.topk(2, -1)
        one_hot = F.one_hot(chosen, p.size(-1)).to(x.dtype)  # [n, k of the chosen, experts]
        share = torch.einsum("nke,nk->ne", one_hot, weights / weights.sum(-1, keepdim=True))
        each = torch.einsum("neh,ehw->new", F.silu(torch.einsum("nw,ewh->neh", x, self.enter)), self.leave)
        balance = p.size(-1) * (one_hot.sum(1).mean(0) * p.mean(0)).sum()
        return self.head(x + torch.einsum("ne,new->nw", share, each)), balance


def experts():
    def loss_of(model, x, target):
        y, balance = model(x)
        return F.cross_entropy(y, target) + 0.01 * balance

    return Case(Experts(), (torch.randn(12, 8), torch.randint(0, 3, (12,))), loss_of, adamw)


class SelectiveScan(nn.Module):
    def __init__(self, width=6, states=4):
        super().__init__()
        self.width, self.states, self.embed = width, states, nn.Embedding(12, width)
        self.enter, self.conv = nn.Linear(width, 2 * width), nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select, self.head = nn.Linear(width, width + 2 * states), nn.Linear(width, 12)
        self.log_a = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, tokens):
        x, gate = self.enter(self.embed(tokens)).chunk(2, -1)
        x = F.silu(self.conv(x.mT)[..., : x.size(1)].mT)
        rate, b, c = self.select(x).split([self.width, self.states, self.states], -1)
        rate = F.softplus(rate)
        decay = torch.exp(rate[..., None] * -self.log_a.exp())
        state, outputs = x.new_zeros(x.size(0), self.width, self.states), []
        for t in range(x.size(1)):
            state = decay[:, t] * state + (rate[:, t] * x[:, t])[..., None] * b[:, t, None]
            outputs.append((state * c[:, t, None]).sum(-1))
        return self.head((torch.stack(outputs, 1) + self.skip * x) * F.silu(gate))


def mamba():
    def loss_of(model, tokens):
        return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Case(SelectiveScan(), (torch.randint(0, 12, (3, 8)),), loss_of, rmsprop)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
        self.action, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x):
        x = self.body(x)
        return self.action(x), self.value(x).squeeze(-1)


def policy_gradient():
    def loss_of(model, x, actions, rewards):
        logits, value = model(x)
        policy = Categorical(logits=logits)
        returns = (rewards * 0.9 ** torch.arange(x.size(0), device=x.device)).flip(0).cumsum(0).flip(0)
        advantage = (returns - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
        policy_loss = -(policy.log_prob(actions) * advantage).mean()
        return policy_loss + 0.5 * F.smooth_l1_loss(value, returns) - 0.01 * policy.entropy().mean()

    return Case(Policy(), (torch.randn(10, 5), torch.randint(0, 3, (10,)), torch.rand(10)), loss_of, sgd)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.score, self.box = nn.Conv2d(8, 1, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        """Scores and boxes (corners) of each place of the grid."""
        x = self.body(x)
        steps = torch.arange(x.size(-1), device=x.device) + 0.5
        centers = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).flatten(0, 1)
        low, high = self.box(x).flatten(2).mT.exp().chunk(2, -1)
        return self.score(x).flatten(1), torch.cat([centers - low, centers + high], -1)


def iou_of(a, b):
    """The intersection over union of each box of `a` with each of `b`."""
    low, high = (
        torch.maximum(a[..., :, None, :2], b[..., None, :, :2]),
        torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:]),
    )
    shared = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = ((t[..., 2:] - t[..., :2]).prod(-1) for t in (a, b))
    return shared / (area_a[..., :, None] + area_b[..., None, :] - shared)


def detector():
    def loss_of(model, x, boxes):
        score, found = model(x)
        overlap, match = iou_of(found.detach(), boxes).max(-1)
        positive = overlap > 0.2
        wanted = boxes.gather(1, match[..., None].expand(-1, -1, 4))
        box_loss = F.smooth_l1_loss(found, wanted, reduction="none").sum(-1)
        box_loss = torch.where(positive, box_loss, 0).sum() / positive.sum().clamp(min=1)
        return F.binary_cross_entropy_with_logits(score, positive.float()) + box_loss

    low = 3 * torch.rand(2, 3, 2)
    return Case(Detector(), (torch.randn(2, 3, 20, 20), torch.cat([low, low + 1.5], -1)), loss_of, sgd)


MODELS = {
    **{f"convnet_{n}_{p}": convnet(n, p) for n, p in zip(NORMS, POOLINGS)},
    **{f"convnet_{n}_{p}": convnet(n, p) for n, p in zip(NORMS, [*POOLINGS][2:] + [*POOLINGS][:2])},
    "unet": unet,
    "gpt": gpt,
    "bert": bert,
    "seq2seq_lstm": seq2seq(nn.LSTM),
    "seq2seq_gru": seq2seq(nn.GRU),
    "vae": vae,
    "graph_net": graph_net,
    "vit": vit,
    "speech": speech,
    "diffusion": diffusion,
    "experts": experts,
    "mamba": mamba,
    "policy_gradient": policy_gradient,
    "detector": detector,
}


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small gain nothing of threads, and wait for them where other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(make, device, other_optimizer=None, steps=STEPS, after=lambda: None):
    torch.manual_seed(0)
    model, data, loss_of, make_optimizer = make()
    model, data, losses = model.to(device), [t.to(device) for t in data], []
    optimizer = (other_optimizer or make_optimizer)(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, *data)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
        after()
    return [loss.item() for loss in losses], model, data


def assert_same(losses, expected):
    assert expected[-1] < expected[0]
    assert losses == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_training(name):
    expected, _, _ = train(MODELS[name], "cpu")
    met.clear_all()
    losses, _, _ = train(MODELS[name], "xla")
    assert_same(losses, expected)
    assert not fallen_operations()


SMALL = {"mlp": mlp, "normed": normed, "gpt": gpt, "tagger": tagger}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SMALL)
def test_each_optimizer(name, optimizer, compiles):
    """The same weights, and no compile after the third step."""
    expected, model, _ = train(SMALL[name], "cpu", OPTIMIZERS[optimizer], 4)
    state, counts = model.state_dict(), []
    met.clear_all()
    compiles.reset()
    losses, model, _ = train(SMALL[name], "xla", OPTIMIZERS[optimizer], 4, lambda: counts.append(compiles.value))
    assert losses == pytest.approx(expected, rel=1e-3)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value.cpu(), state[key], rtol=5e-3, atol=5e-3, msg=lambda m, key=key: f"{key}: {m}")
    assert not fallen_operations()
    assert counts[-1] == counts[2], f"compiled after the third step: {counts}"


@pytest.mark.parametrize("name", SMALL)
def test_inference(name):
    torch.manual_seed(0)
    model, data, _, _ = SMALL[name]()
    met.clear_all()
    with torch.no_grad():
        expected = model.eval()(data[0])
        actual = model.to("xla")(data[0].to("xla"))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert not fallen_operations()


def test_mixed_precision():
    results = []
    for device in ("xla", "cpu"):
        torch.manual_seed(0)
        model, data, loss_of, _ = mlp()
        model = model.to(device)
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(model, *(t.to(device) for t in data))
        loss.backward()
        results.append((loss.item(), model[0].weight.grad.cpu()))
    assert results[0][0] == pytest.approx(results[1][0], rel=2e-2)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=5e-2, atol=5e-3)


def suppress(boxes, scores, threshold=0.3):
    """Non-maximum suppression by hand: the places of the boxes that stay, best first."""
    order, kept = scores.argsort(descending=True, stable=True), []
    while order.numel():
        kept.append(order[0])
        order = order[1:][iou_of(boxes[order[:1]], boxes[order[1:]])[0] <= threshold]
    return torch.stack(kept)


def test_detector_suppresses_boxes():
    kept = {}
    for device in ("cpu", "xla"):
        _, model, data = train(detector, device)
        met.clear_all()
        with torch.no_grad():
            scores, boxes = model.eval()(data[0])
        kept[device] = suppress(boxes[0], scores[0]).cpu()
    assert 1 < len(kept["cpu"]) < 25
    assert torch.equal(kept["xla"], kept["cpu"])
    assert fallen_operations() <= {"index"}  # by a mask: how many boxes stay depends on the data


def train_adversaries(device):
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.BatchNorm1d(16), nn.Linear(16, 6), nn.Tanh())
    critic = nn.Sequential(spectral_norm(nn.Linear(6, 16)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(16, 1)))
    real, noise = (0.5 * torch.randn(8, 6)).to(device), torch.randn(STEPS, 2, 8, 4).to(device)
    maker, critic, losses = maker.to(device), critic.to(device), []
    make_optimizer = torch.optim.Adam(maker.parameters(), lr=0.01, betas=(0.5, 0.99))
    # Of biases whose gradients cancel nothing but roundings is left: eps keeps them as small as they are.
    criticize_optimizer = torch.optim.RMSprop(critic.parameters(), lr=0.005, eps=1e-4)
    for step in range(STEPS):
        criticize_optimizer.zero_grad()
        made = maker(noise[step, 0]).detach()
        critic_loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(made)).mean()
        critic_loss.backward()
        criticize_optimizer.step()
        make_optimizer.zero_grad()
        maker_loss = -critic(maker(noise[step, 1])).mean()
        maker_loss.backward()
        make_optimizer.step()
        torch_xla.sync()
        losses += [critic_loss.detach(), maker_loss.detach()]
    return [loss.item() for loss in losses]


def test_adversaries():
    expected = train_adversaries("cpu")
    met.clear_all()
    losses = train_adversaries("xla")
    assert losses == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert not fallen_operations()
