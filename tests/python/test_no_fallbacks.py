"""Programs as other libraries write them run whole on the device: no fallback, and the values of CPU eager."""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_model_zoo import iou_of
from test_ops import fallen_operations
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met


def to(device, tree):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), tree)


def compare(program, *inputs, rtol=1e-4, atol=1e-5):
    """Runs program(*inputs) on the CPU and on the device; both give a list of tensors. Returns the device's."""
    expected = program(*to("cpu", inputs))
    met.clear_all()
    results = to("cpu", program(*to("xla", inputs)))
    assert not fallen_operations()
    torch.testing.assert_close(results, expected, rtol=rtol, atol=atol)
    return results


class Language(nn.Module):
    """A causal language model that keeps keys and values, as generate() calls it."""

    def __init__(self, vocabulary=24, width=16):
        super().__init__()
        self.embed, self.qkv, self.head = (
            nn.Embedding(vocabulary, width),
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, vocabulary),
        )

    def forward(self, tokens, cache=None):
        q, k, v = self.qkv(self.embed(tokens)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return self.head(y.transpose(1, 2).flatten(2)), (k, v)


def penalize(tokens, scores, penalty=1.3):
    seen = scores.gather(1, tokens)
    return scores.scatter(1, tokens, torch.where(seen < 0, seen * penalty, seen / penalty))


def keep_top_k(scores, k):
    return scores.masked_fill(scores < scores.topk(k)[0][..., -1, None], -torch.inf)


def keep_top_p(scores, p):
    ordered, places = scores.sort(descending=False)
    removed = ordered.softmax(-1).cumsum(-1) <= 1 - p
    removed[..., -1:] = False
    return scores.masked_fill(removed.scatter(1, places, removed), -torch.inf)


def keep_min_p(scores, p):
    probabilities = scores.softmax(-1)
    return scores.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), -torch.inf)


@torch.no_grad()
def generate(model, tokens, steps, pick):
    """The tokens, and the scores of each step: those of what is left out are infinite."""
    start, cache, all_scores = tokens.size(1), None, []
    unfinished = torch.ones(tokens.size(0), dtype=torch.long, device=tokens.device)
    for _ in range(steps):
        logits, cache = model(tokens if cache is None else tokens[:, -1:], cache)
        scores = penalize(tokens, logits[:, -1].clone().float()) / 0.8
        scores = keep_min_p(keep_top_p(keep_top_k(scores, 8), 0.9), 0.05)
        chosen = pick(scores) * unfinished + (1 - unfinished)
        tokens = torch.cat([tokens, chosen[:, None]], -1)
        unfinished = unfinished & ~torch.isin(chosen, torch.tensor([1], device=tokens.device)).long()
        all_scores.append(scores)
        if unfinished.max() == 0:
            break
    return tokens[:, start:], torch.stack(all_scores, 1)


def draw(scores):
    return torch.multinomial(scores.softmax(-1), 1).squeeze(1)


def gumbel(scores):
    return (scores.softmax(-1) / torch.empty_like(scores).exponential_()).argmax(-1)


def test_generation_by_the_best_token():
    torch.manual_seed(0)
    model, prompt = Language(), torch.randint(2, 24, (3, 5))
    expected = generate(model, prompt, 8, lambda scores: scores.argmax(-1))
    met.clear_all()
    results = generate(copy.deepcopy(model).to("xla"), prompt.to("xla"), 8, lambda scores: scores.argmax(-1))
    assert not fallen_operations()
    torch.testing.assert_close(to("cpu", results), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pick", [draw, gumbel])
def test_generation_by_sampling(pick):
    torch.manual_seed(0)
    model, prompt = Language().to("xla"), torch.randint(2, 24, (64, 5)).to("xla")
    met.clear_all()
    tokens, scores = generate(model, prompt, 8, pick)
    assert not fallen_operations()
    tokens, scores = tokens.cpu(), scores.cpu()
    running = (tokens == 1).cumsum(1) - (tokens == 1).long() == 0  # until the end's token, with it
    assert scores.gather(2, tokens[..., None])[..., 0][running].isfinite().all()
    assert (scores.isfinite().sum(-1) <= 8).all()
    assert len(tokens.unique(dim=0)) > 10


@torch.no_grad()
def search_beams(table, steps, beams=3):
    """The best sequences of a bigram model and their scores; token 0 ends one, no pair of tokens comes twice."""
    count = table.size(-1)
    tokens = torch.full((2, beams, 1), 2, device=table.device)
    scores = torch.tensor([0.0] + [-1e9] * (beams - 1), device=table.device).repeat(2, 1)
    done = torch.zeros(2, beams, dtype=torch.bool, device=table.device)
    ended = torch.full_like(table[0], -1e9).index_fill(0, torch.tensor([0], device=table.device), 0.0)
    for step in range(steps):
        banned = torch.zeros(2, beams, count, dtype=torch.bool, device=table.device)
        for place in range(step):
            repeated = tokens[..., place] == tokens[..., -1]
            banned |= F.one_hot(tokens[..., place + 1], count).bool() & repeated[..., None]
        next_scores = torch.where(done[..., None], ended, table[tokens[..., -1]].masked_fill(banned, -1e9))
        scores, places = (scores[..., None] + next_scores).flatten(1).topk(beams)
        parents, token = torch.div(places, count, rounding_mode="floor"), places % count
        kept = tokens.gather(1, parents[..., None].expand(-1, -1, step + 1))
        tokens = torch.cat([kept, token[..., None]], -1)
        done = done.gather(1, parents) | (token == 0)
        if done.all():
            break
    return [tokens, scores]


def test_beam_search():
    torch.manual_seed(0)
    compare(search_beams, torch.randn(12, 12).log_softmax(-1), 7)


def decayed(model):
    """The groups of the parameters, as a trainer makes them: biases and norms do not decay."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "norm" in name]
    return [
        {"params": [p for _, p in named if all(p is not q for q in plain)], "weight_decay": 0.1},
        {"params": plain, "weight_decay": 0.0},
    ]


def fine_tune(model, batches, device, fused, dtype):
    """A trainer's loop: accumulation, autocast, loss scale, clipping, a schedule. Returns what it logs."""
    model, batches = copy.deepcopy(model).to(device), to(device, batches)
    optimizer = torch.optim.AdamW(decayed(model), lr=0.01, fused=fused)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3) * (1 - step / 12))
    scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=4)
    logged, total = [], torch.zeros((), device=device)
    for step, (tokens, labels) in enumerate(batches):
        with torch.autocast(device, dtype, enabled=dtype is not None):
            logits, _ = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100) / 2
        if step == 6:
            loss = loss * torch.inf  # this update is left out and the scale goes back
        scaler.scale(loss).backward()
        total += torch.where(loss.isfinite(), loss.detach(), 0)
        if step % 2:
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
            torch_xla.sync()
            logged.append(
                torch.stack([total, norm.nan_to_num(0, 0, 0), torch.tensor(scaler.get_scale(), device=device)])
            )
            total -= total
    return [*logged, *(p.detach() for p in model.parameters())]


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fused", [True, False])
def test_fine_tuning(fused, dtype):
    torch.manual_seed(0)
    model = Language()
    tokens = torch.randint(0, 24, (12, 4, 6))
    batches = [(t, t.roll(-1, 1).masked_fill(torch.rand(4, 6) > 0.8, -100)) for t in tokens]
    expected = fine_tune(model, batches, "cpu", fused, dtype)
    met.clear_all()
    results = fine_tune(model, batches, "xla", fused, dtype)
    assert not fallen_operations()
    assert [r[2].item() for r in expected[:6]] == [1024, 1024, 1024, 512, 512, 512]
    tolerance = 3e-2 if dtype else 1e-3
    torch.testing.assert_close(to("cpu", results), expected, rtol=tolerance, atol=tolerance)


def mel_filters(frequencies, bands, rate, device):
    """Triangles on the scale of mel, as torchaudio.functional.melscale_fbanks has them."""
    all_frequencies = torch.linspace(0, rate // 2, frequencies, device=device)
    highest = 2595 * torch.log10(torch.tensor(1 + rate / 2 / 700, device=device))
    edges = 700 * (10 ** (torch.linspace(0, 1, bands + 2, device=device) * highest / 2595) - 1)
    widths = edges.diff()
    slopes = edges[None] - all_frequencies[:, None]
    down, up = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    return torch.minimum(down, up).clamp(min=0)


def spectrum(wave):
    wave = wave.detach().requires_grad_()
    window = torch.hann_window(64, device=wave.device)
    transformed = torch.stft(wave, 64, 16, window=window, return_complex=True)
    power = transformed.abs().square()
    mel = (power.mT @ mel_filters(33, 10, 8000, wave.device)).mT
    decibels = 10 * mel.clamp(min=1e-5).log10()
    decibels = torch.maximum(decibels, decibels.amax((-2, -1), keepdim=True) - 40)
    cosines = torch.cos(
        torch.pi / 10 * (torch.arange(10, device=wave.device) + 0.5) * torch.arange(4, device=wave.device)[:, None]
    )
    cepstrum = cosines @ decibels
    normal = (cepstrum - cepstrum.mean(-1, keepdim=True)) / cepstrum.std(-1, keepdim=True)
    (grad,) = torch.autograd.grad(normal.square().sum() + cepstrum.abs().sum() / 100, wave)
    return [transformed.detach(), mel.detach(), cepstrum.detach(), normal.detach(), grad]


def enhance(wave, gain):
    """The wave with a mask on its spectrum; the loss is of the wave that comes back and of its magnitudes."""
    wave, gain = wave.detach().requires_grad_(), gain.detach().requires_grad_()
    window = torch.hamming_window(64, device=wave.device)
    transformed = torch.stft(wave, 64, 16, window=window, return_complex=True)
    magnitude, phase = (transformed * gain.sigmoid()).abs() + 1e-3, transformed.detach().angle()
    back = torch.istft(torch.polar(magnitude, phase), 64, 16, window=window, length=wave.size(-1))
    plain = torch.istft(transformed, 64, 16, window=window, length=wave.size(-1))
    again = torch.view_as_real(torch.stft(back, 32, 8, window=window[::2], return_complex=True))
    loss = (back - wave).abs().mean() + again.square().sum(-1).add(1e-6).sqrt().log1p().mean()
    return [back.detach(), plain.detach(), loss.detach(), *torch.autograd.grad(loss, (wave, gain))]


def griffin_lim(magnitude):
    window = torch.hann_window(64, device=magnitude.device)
    angles, before = torch.ones_like(magnitude, dtype=torch.complex64), 0.0
    for _ in range(4):
        wave = torch.istft(magnitude * angles, 64, 16, window=window, length=480)
        rebuilt = torch.stft(wave, 64, 16, window=window, return_complex=True)
        angles = rebuilt - before * 0.9
        angles = angles / (angles.abs() + 1e-8)
        before = rebuilt
    return [torch.istft(magnitude * angles, 64, 16, window=window, length=480)]


def spec_augment(wave):
    window = torch.hann_window(64, device=wave.device)
    power = torch.stft(wave, 64, 16, window=window, return_complex=True).abs() ** 2.0
    frequency, time = torch.arange(33, device=wave.device)[:, None], torch.arange(power.size(-1), device=wave.device)
    power = power.masked_fill((frequency >= 4) & (frequency < 9), 0.0).masked_fill((time >= 10) & (time < 14), 0.0)
    deltas = F.conv1d(
        F.pad(power, (2, 2), mode="replicate").flatten(0, 1)[:, None],
        torch.arange(-2.0, 3, device=wave.device)[None, None],
    )
    resampled = F.conv1d(
        F.pad(wave[:, None], (4, 4)), torch.sinc(torch.linspace(-2, 2, 9, device=wave.device))[None, None], stride=2
    )
    return [power, deltas, resampled]


@pytest.mark.parametrize("program", [spectrum, spec_augment])
def test_spectrogram(program):
    torch.manual_seed(0)
    compare(program, torch.randn(2, 480), rtol=1e-3, atol=1e-3)


def test_enhancement():
    torch.manual_seed(0)
    wave = torch.randn(2, 480)
    _, plain, *_ = compare(enhance, wave, torch.randn(2, 33, 31), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(plain, wave, rtol=1e-4, atol=1e-4)


def test_griffin_lim():
    torch.manual_seed(0)
    compare(griffin_lim, torch.rand(2, 33, 31), rtol=1e-2, atol=1e-3)


def encode(anchors, boxes):
    """The offsets from anchors to boxes, as R-CNN has them."""
    (ac, aw), (bc, bw) = (((t[:, :2] + t[:, 2:]) / 2, t[:, 2:] - t[:, :2]) for t in (anchors, boxes))
    return torch.cat([(bc - ac) / aw, (bw / aw).log()], -1)


def make_anchors(size, stride, device):
    steps = (torch.arange(size, device=device) + 0.5) * stride
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    centers = torch.stack([x, y, x, y], -1).view(-1, 1, 4)
    scales = (
        torch.tensor([1.0, 2.0], device=device)[:, None] * stride * torch.tensor([-0.5, -0.5, 0.5, 0.5], device=device)
    )
    return (centers + scales).view(-1, 4)


def assign(anchors, boxes):
    """The box of each anchor: -1 of none, -2 of those between; each box has its best anchor."""
    overlap = iou_of(anchors, boxes)
    best, match = overlap.max(1)
    match = torch.where(best < 0.3, -1, torch.where(best < 0.5, -2, match))
    return match.scatter(0, overlap.argmax(0), torch.arange(len(boxes), device=boxes.device))


def region_losses(anchors, logits, offsets, boxes, labels):
    match = assign(anchors, boxes)
    positive, used = match >= 0, match != -2
    box = match.clamp(min=0)
    target = torch.where(positive[:, None], F.one_hot(labels.gather(0, box), logits.size(-1)), 0).to(logits.dtype)
    p, cross = logits.sigmoid(), F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    focal = (torch.where(target > 0, 0.25 * (1 - p) ** 2, 0.75 * p**2) * cross * used[:, None]).sum()
    wanted = encode(anchors, boxes.gather(0, box[:, None].expand(-1, 4)))
    box_loss = F.smooth_l1_loss(offsets, wanted, beta=1 / 9, reduction="none").sum(-1)
    count = positive.sum().clamp(min=1)
    return focal / count, torch.where(positive, box_loss, 0).sum() / count


def pool_regions(features, boxes, size=3):
    """RoI align with a sample a bin: features [c, h, w], boxes in places of the features."""
    h, w = features.shape[-2:]
    steps = (torch.arange(size, device=boxes.device) + 0.5) / size
    x = boxes[:, 0, None] + steps * (boxes[:, 2] - boxes[:, 0])[:, None]
    y = boxes[:, 1, None] + steps * (boxes[:, 3] - boxes[:, 1])[:, None]
    grid = torch.stack([x[:, None].expand(-1, size, -1) / w, y[:, :, None].expand(-1, -1, size) / h], -1) * 2 - 1
    return F.grid_sample(features.expand(len(boxes), -1, -1, -1), grid, padding_mode="border", align_corners=False)


def detect(features, weight, head, boxes, labels):
    features, weight, head = (t.detach().requires_grad_() for t in (features, weight, head))
    anchors = make_anchors(6, 4.0, features.device)
    out = F.conv2d(features[None], weight, padding=1)[0].permute(1, 2, 0).reshape(-1, 7)
    focal, box_loss = region_losses(anchors, out[:, :3], out[:, 3:], boxes, labels)
    scores, best = out[:, :3].sigmoid().amax(-1).topk(5)  # proposals
    proposals = anchors.index_select(0, best).clamp(0, 24) / 4
    regions = pool_regions(features, torch.cat([proposals, boxes / 4]))
    region_match = iou_of(proposals * 4, boxes).argmax(1)
    region_labels = torch.cat([labels[region_match], labels])
    region_loss = F.cross_entropy(regions.flatten(1) @ head, region_labels)
    loss = focal + box_loss + region_loss - scores.mean()
    return [
        assign(anchors, boxes),
        focal.detach(),
        box_loss.detach(),
        regions.detach(),
        *torch.autograd.grad(loss, (features, weight, head)),
    ]


def test_detection_losses():
    torch.manual_seed(0)
    low = 14 * torch.rand(4, 2)
    boxes = torch.cat([low, low + 4 + 6 * torch.rand(4, 2)], -1)
    weight, head = torch.randn(14, 5, 3, 3) / 6, torch.randn(45, 3) / 6
    compare(detect, torch.randn(5, 6, 6), weight, head, boxes, torch.randint(0, 3, (4,)), rtol=1e-3)


def suppress_matrix(boxes, scores):
    """Matrix NMS as SOLO has it, and the fixed number of boxes that exported detectors keep."""
    scores, order = scores.sort(descending=True, stable=True)
    overlap = iou_of(boxes[order], boxes[order]).triu(1)
    worst = overlap.amax(0)
    decay = ((1 - overlap) / (1 - worst[:, None])).amin(0)
    alive = torch.ones_like(scores, dtype=torch.bool)
    for i in range(len(scores)):
        alive = alive & ~((overlap[i] > 0.4) & alive[i])
    kept = torch.where(alive, scores, -1.0).topk(6)
    return [scores * decay, alive, kept.values, order[kept.indices], torch.where(kept.values > 0, 1, 0)]


def test_suppression_of_a_fixed_number():
    torch.manual_seed(0)
    low = 8 * torch.rand(20, 2)
    compare(suppress_matrix, torch.cat([low, low + 1 + 4 * torch.rand(20, 2)], -1), torch.rand(20))


def segment_softmax(scores, segment, count):
    """As PyG's softmax: the highest, the sum and the quotient of each segment."""
    index = segment[:, None].expand_as(scores)
    highest = (
        scores.detach()
        .new_zeros(count, scores.size(1))
        .scatter_reduce_(0, index, scores.detach(), "amax", include_self=False)
    )
    e = (scores - highest.index_select(0, segment)).exp()
    total = e.new_zeros(count, scores.size(1)).scatter_add_(0, index, e) + 1e-16
    return e / total.index_select(0, segment)


def attend(x, edges, weight, score):
    """A GAT layer with two heads, with self loops."""
    count = x.size(0)
    loops = torch.arange(count, device=x.device)
    source, target = torch.cat([edges, torch.stack([loops, loops])], 1)
    h = (x @ weight).view(count, 2, -1)
    alpha = F.leaky_relu((h[source] * score[0]).sum(-1) + (h[target] * score[1]).sum(-1), 0.2)
    alpha = segment_softmax(alpha, target, count)
    messages = h.index_select(0, source) * alpha[..., None]
    return torch.zeros_like(h).index_add_(0, target, messages).flatten(1)


def convolve(x, edges, weight, score):
    """A GCN layer: normalized by the degrees."""
    source, target = edges
    degree = torch.ones(x.size(0), device=x.device).scatter_add_(0, target, x.new_ones(target.size(0)))
    root = degree.pow(-0.5).masked_fill(degree == 0, 0.0)
    messages = (root[source] * root[target])[:, None] * (x @ weight)[source]
    return messages.new_zeros(x.size(0), weight.size(1)).scatter_add_(0, target[:, None].expand_as(messages), messages)


def aggregate(reduce):
    def layer(x, edges, weight, score):
        messages = (x @ weight).index_select(0, edges[0])
        index = edges[1].view(-1, 1).expand_as(messages)
        return messages.new_zeros(x.size(0), messages.size(1)).scatter_reduce_(
            0, index, messages, reduce, include_self=False
        )

    return layer


def aggregate_by_degree(x, edges, weight, score):
    """PNA: mean, deviation and degree of the neighbours, counted by bincount and by sorted segments."""
    messages, count = (x @ weight)[edges[0]], x.size(0)
    degree = torch.bincount(edges[1], minlength=count).clamp(min=1)[:, None]
    mean = torch.zeros(count, messages.size(1), device=x.device).index_add(0, edges[1], messages) / degree
    square = torch.zeros_like(mean).index_add(0, edges[1], messages**2) / degree
    order = edges[1].argsort(stable=True)
    last = torch.cat([mean.new_zeros(1, mean.size(1)), messages[order].cumsum(0)])
    pointers = torch.searchsorted(edges[1][order], torch.arange(count + 1, device=x.device))
    total = last[pointers[1:]] - last[pointers[:-1]]
    return torch.cat([mean, (square - mean**2).clamp(min=0).add(1e-5).sqrt(), total * degree.log1p()], 1)


LAYERS = {
    "attend": attend,
    "convolve": convolve,
    **{reduce: aggregate(reduce) for reduce in ("amax", "amin", "mean", "sum", "prod")},
    "by_degree": aggregate_by_degree,
}


@pytest.mark.parametrize("spare", [0, 3])
def test_images_among_tokens(spare):
    """A vision language model puts features of images in the places of their tokens; features may be left over."""
    torch.manual_seed(0)
    is_image = torch.rand(2, 12) < 0.5
    features = torch.randn(int(is_image.sum()) + spare, 8)

    def program(tokens, features, is_image):
        tokens, features = tokens.clone().requires_grad_(), features.clone().requires_grad_()
        merged = tokens.masked_scatter(is_image[..., None], features)
        merged.square().sum().backward()
        return [merged.detach(), tokens.grad, features.grad]

    compare(program, torch.randn(2, 12, 8), features, is_image)


@pytest.mark.parametrize("name", LAYERS)
def test_message_passing(name):
    def program(x, edges, weight, score, graph):
        leaves = [t.detach().requires_grad_() for t in (x, weight, score)]
        y = LAYERS[name](leaves[0], edges, *leaves[1:])
        pooled = torch.zeros(3, y.size(1), device=y.device).index_add(0, graph, y)
        grads = torch.autograd.grad(pooled.tanh().sum(), leaves, allow_unused=True)
        return [y.detach(), pooled.detach(), *(g for g in grads if g is not None)]

    torch.manual_seed(0)
    graph = torch.arange(12) // 4
    x, edges = torch.randn(12, 5), torch.randint(0, 12, (2, 30))
    compare(program, x, edges, torch.randn(5, 6), torch.randn(2, 2, 3), graph, rtol=1e-3)


def test_repeats_of_known_number():
    def program(x, repeats):
        return [x.repeat_interleave(repeats, 0, output_size=5), torch.repeat_interleave(repeats, output_size=5)]

    compare(program, torch.randn(3, 2), torch.tensor([2, 0, 3]))


def test_samples_by_importance():
    """Of a radiance field: new depths along each ray where its weights are large."""

    def program(weights, depths, chosen):
        share = (weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True)
        edges = F.pad(share.cumsum(-1), (1, 0))
        place = torch.searchsorted(edges, chosen, right=True)
        ends = torch.stack([(place - 1).clamp(min=0), place.clamp(max=edges.size(1) - 1)], -1)
        low, high = edges[:, None].expand(-1, place.size(1), -1).gather(2, ends).unbind(-1)
        near, far = depths[:, None].expand(-1, place.size(1), -1).gather(2, ends).unbind(-1)
        sides = [
            torch.searchsorted(edges[:, :4], chosen[:, :2], side=side, out_int32=True) for side in ("left", "right")
        ]
        return [place, near + (chosen - low) / (high - low).clamp(min=1e-5) * (far - near), *sides]

    torch.manual_seed(0)
    compare(program, torch.rand(6, 9), torch.rand(6, 10).sort(-1).values, torch.rand(6, 5))


def recognize(x, weight, targets, lengths, target_lengths):
    """A CTC step with its decoding: the best path, repeats and blanks left out, at a fixed length."""
    weight = weight.detach().requires_grad_()
    scores = (x @ weight).log_softmax(-1)
    losses = [
        F.ctc_loss(scores, targets, lengths, target_lengths, zero_infinity=True),
        F.ctc_loss(scores, targets, lengths, target_lengths, blank=5, reduction="sum"),
        F.ctc_loss(scores, targets, lengths, target_lengths, reduction="none").mean(),
    ]
    grads = [torch.autograd.grad(loss, weight, retain_graph=True)[0] for loss in losses]
    path = scores.argmax(-1).T
    kept = (path != 0) & (path != F.pad(path, (1, 0), value=-1)[:, :-1])
    kept &= torch.arange(path.size(1), device=x.device) < lengths[:, None]
    places = torch.where(kept, kept.cumsum(1) - 1, path.size(1))
    text = path.new_zeros(path.size(0), path.size(1) + 1).scatter(1, places, path)[:, :-1]
    return [
        *(loss.detach() for loss in losses),
        *grads,
        text * (torch.arange(path.size(1), device=x.device) < kept.sum(1)[:, None]),
    ]


def test_speech_step():
    torch.manual_seed(0)
    targets = torch.randint(1, 5, (3, 4))
    compare(
        recognize, torch.randn(12, 3, 7), torch.randn(7, 6), targets, torch.tensor([12, 10, 9]), torch.tensor([4, 3, 2])
    )


def test_speech_step_with_lengths_of_python():
    torch.manual_seed(0)

    def program(x, targets):
        x = x.detach().requires_grad_()
        loss = F.ctc_loss(x.log_softmax(-1), targets, (12, 10, 9), (4, 3, 2))
        return [loss.detach(), torch.autograd.grad(loss, x)[0]]

    compare(program, torch.randn(12, 3, 6), torch.randint(1, 6, (9,)))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_are_drawn(dtype):
    """Real and imaginary parts each have half of the variance, and a seed gives the same numbers again."""
    met.clear_all()
    torch.manual_seed(5)
    z = torch.empty(20000, dtype=dtype, device="xla").normal_(2.0, 3.0)
    again = torch.empty(20000, dtype=dtype, device="xla").normal_(2.0, 3.0)
    u = torch.empty(20000, dtype=dtype, device="xla").uniform_(-1.0, 1.0)
    torch.manual_seed(5)
    same = torch.empty(20000, dtype=dtype, device="xla").normal_(2.0, 3.0)
    z, again, u, same = to("cpu", (z, again, u, same))
    assert torch.equal(z, same) and not torch.equal(z, again)
    parts = torch.view_as_real(z)
    torch.testing.assert_close(parts.var(0), torch.full((2,), 4.5, dtype=parts.dtype), rtol=0.1, atol=0)
    torch.testing.assert_close(parts.mean(0), torch.full((2,), 2.0, dtype=parts.dtype), rtol=0.1, atol=0)
    assert parts.T.corrcoef()[0, 1].abs() < 0.05
    uniform = torch.view_as_real(u)
    assert uniform.abs().max() <= 1
    torch.testing.assert_close(uniform.var(0), torch.full((2,), 1 / 3, dtype=parts.dtype), rtol=0.1, atol=0)
    assert not fallen_operations()


def in_place(write):
    def run(a, b):
        write(a := a.clone(), b)
        return a

    return run


def into_part(write):
    def run(a, b):
        whole = torch.stack([a, b], -1).to((a + b).dtype)
        write(a, b, out=whole[..., 0])
        return whole

    return run


DIVISIONS = {
    "floor": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "number": lambda a, b: 7 // b,
    "negative_number": lambda a, b: torch.floor_divide(-7, b),
    "remainder_of_number": lambda a, b: 7 % b,
    "trunc_of_number": lambda a, b: torch.div(-7, b, rounding_mode="trunc"),
    "floor_in_place": in_place(lambda a, b: a.floor_divide_(b)),
    "remainder_in_place": in_place(lambda a, b: a.remainder_(b)),
    "out": lambda a, b: torch.remainder(a, b, out=torch.empty_like(a + b)),
    "part": into_part(torch.floor_divide),
    "broadcast": lambda a, b: a[:, None] // b,
    "permuted": lambda a, b: a.reshape(2, 3).T % b.reshape(2, 3).T,
    "one": lambda a, b: a // b[2],
    "of_one": lambda a, b: a[2] % b,
    "then_fused": lambda a, b: ((a * 2) // (b + 1 - 1) + 1) * (a - b),
    "empty": lambda a, b: a[:0] // b[:0],
    "by_numbers": lambda a, b: a // 2 + a % 3,
}
WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.checks_values
@pytest.mark.parametrize("types", [*((t, t) for t in WHOLE), (torch.int64, torch.int32), (torch.int8, torch.int16)])
@pytest.mark.parametrize("name", DIVISIONS)
def test_division_of_whole_numbers(name, types):
    """The divisor may hold a zero, which a run finds: see "divided by zero" of test_arguments.py."""
    a = torch.tensor([7, -7, 8, -8, 100, 0]).to(types[0])
    b = torch.tensor([2, 3, -3, 5, -1, -128]).to(types[1])
    (result,) = compare(lambda a, b: [DIVISIONS[name](a, b)], a, b)
    expected = DIVISIONS[name](a, b)
    assert result.dtype == expected.dtype and result.stride() == expected.stride()


def test_one_program_divides_all_numbers():
    def compiled():
        return (met.metric_data("CompileTime") or [0])[0]

    b = torch.tensor([2, 3, 5]).to("xla")
    for number in range(3):
        (number % b).tolist()
    before = compiled()
    for number in range(3, 40):
        assert (number % b).tolist() == [number % 2, number % 3, number % 5]
    assert compiled() == before


@pytest.mark.checks_values
def test_a_division_by_zero_is_told_by_the_run(device):
    x = torch.tensor([4, 6], device=device)
    y = x + 1
    bad = x // torch.tensor([2, 0], device=device)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        bad.tolist()
    assert y.tolist() == [5, 7]
    assert (x // torch.tensor([2, 3], device=device)).tolist() == [2, 2]


def test_limits_of_unsigned_numbers():
    compare(lambda x: [F.relu6(x), F.hardtanh(x, 3, 200)], torch.arange(255, dtype=torch.uint8))


def test_of_nothing():
    def program(nothing, rows):
        return [
            torch.cat([nothing, nothing.int()], 1),
            torch.cat([nothing.int(), rows.flatten()]),
            rows.argmax(-1),
            rows.argmin(1, keepdim=True),
            rows.t().argmax(0),
        ]

    compare(program, torch.empty(0), torch.empty(0, 3))


def test_positions_among_nothing_are_refused():
    rows = torch.empty(0, 3, device="xla")
    with pytest.raises(IndexError, match=r"argmax\(\): Expected reduction dim 0 to have non-zero size"):
        rows.argmax(0)
    with pytest.raises(IndexError, match=r"argmin\(\): Expected reduction dim to be specified"):
        rows.argmin()
