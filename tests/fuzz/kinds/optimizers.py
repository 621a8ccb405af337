"""Training loops of all optimizers: schedules, closures, groups that change, clipping, averages, scaled losses."""

from tests.fuzz.draw import Draw

GROUPS = [
    "m.parameters()",
    "[{'params': list(m[0].parameters()), 'lr': 0.02}, {'params': list(m[1:].parameters()), 'weight_decay': 0.1}]",
    "[{'params': [p for p in m.parameters() if p.dim() > 1]}, {'params': [p for p in m.parameters() if p.dim() == "
    "1], 'lr': 0.03}]",
    "list(m.named_parameters())",
]
SCHEDULES = [
    "StepLR(o, 2, 0.5)",
    "ExponentialLR(o, 0.8)",
    "CosineAnnealingLR(o, 5)",
    "OneCycleLR(o, 0.1, total_steps=12)",
    "LambdaLR(o, lambda k: 1 / (k + 1))",
    "CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False)",
    "CosineAnnealingWarmRestarts(o, 2)",
    "LinearLR(o, 0.1, total_iters=3)",
    "PolynomialLR(o, 5)",
    "MultiStepLR(o, [1, 3], 0.1)",
    "SequentialLR(o, [torch.optim.lr_scheduler.ConstantLR(o, 0.5, 2), torch.optim.lr_scheduler.ExponentialLR(o, "
    "0.9)], [2])",
    "ReduceLROnPlateau(o, patience=0, factor=0.5)",
    "MultiplicativeLR(o, lambda k: 0.9)",
]
CHANGES = [
    "[g.update(lr=g['lr'] * 0.5) for g in o.param_groups]",
    "o.param_groups[0]['weight_decay'] = 0.2",
    "o.param_groups[0]['lr'] = torch.tensor(0.05)",
    "extra = nn.Parameter(torch.ones(6, device=device)); o.add_param_group({'params': [extra], 'lr': 0.1})",
    "m[0].bias.requires_grad_(False)",
    "m[0].bias.requires_grad_(True)",
    "m[0].weight.grad = None",
    "o.state.clear()",
    "o.load_state_dict(o.state_dict())",
    "o.zero_grad(set_to_none=False)",
    "m[0].weight.data = m[0].weight.data.clone()",
    "m[0].weight.data.mul_(0.5)",
    "m[0].weight.grad = torch.ones_like(m[0].weight)",
    "nn.init.constant_(m[0].bias, 0.1)",
    "with torch.no_grad(): m[0].weight.copy_(m[0].weight.t())",
    "o = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.5)",
    "m.eval()",
    "m.train()",
    "[s['momentum_buffer'].zero_() for s in o.state.values() if s.get('momentum_buffer') is not None]",
    "m[0].weight.grad = m[0].weight.grad.to_dense() if m[0].weight.grad is not None else None",
]
CLIPS = [
    "",
    "",
    "nn.utils.clip_grad_norm_(m.parameters(), 0.1)",
    "norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0, norm_type=float('inf'))",
    "nn.utils.clip_grad_value_(m.parameters(), 0.02)",
    "nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=1.0, foreach=False)",
    "norm = nn.utils.get_total_norm([p.grad for p in m.parameters() if p.grad is not None])",
    "[p.grad.add_(p.detach(), alpha=0.1) for p in m.parameters() if p.grad is not None]",
]
AVERAGES = [
    "e = torch.optim.swa_utils.AveragedModel(m)|e.update_parameters(m)",
    "e = torch.optim.swa_utils.AveragedModel(m, "
    "multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))|e.update_parameters(m)",
    "e = [p.detach().clone() for p in m.parameters()]|[a.lerp_(p.detach(), 0.25) for a, p in zip(e, m.parameters())]",
    "e = [p.detach().clone() for p in m.parameters()]|torch._foreach_mul_(e, 0.9); torch._foreach_add_(e, "
    "[p.detach() for p in m.parameters()], alpha=0.1)",
]
STEPS = [
    "o.zero_grad(); l{s} = {loss}; l{s}.backward(); {clip}; o.step()",
    "o.zero_grad(); l{s} = {loss}; l{s}.backward(); {clip}; o.step()",
    "def _closure():\n    global l{s}\n    o.zero_grad(); l{s} = {loss}; l{s}.backward(); {clip}\n    return "
    "l{s}\nl{s}r = o.step(_closure)",
    "o.zero_grad()\nfor part, want in zip(x0.split(2), x1.split(2)):\n    l{s} = F.mse_loss(m(part), want) / 2; "
    "l{s}.backward()\n{clip}; o.step()",
    "l{s} = {loss}; l{s}.backward(); {clip}; o.step(); o.zero_grad(set_to_none=False)",
    "_grads = torch.autograd.grad({loss}, [p for p in m.parameters() if p.requires_grad])\n"
    "for p, g in zip([p for p in m.parameters() if p.requires_grad], _grads): p.grad = g\n{clip}; o.step()",
    "o.zero_grad(); l{s} = {loss}; sc.scale(l{s}).backward(); sc.unscale_(o); {clip}; sc.step(o); sc.update()",
    "o.zero_grad(); l{s} = {loss} * (float('inf') if {s} == 1 else 1); sc.scale(l{s}).backward(); sc.step(o); "
    "sc.update(); "
    "scale{s} = torch.tensor(sc.get_scale())",
    "o.zero_grad(); l{s} = {loss}; l{s}.backward(create_graph=True); "
    "_pen = sum(p.grad.square().sum() for p in m.parameters() if p.grad is not None); o.zero_grad(); (l{s} + 0.1 * "
    "_pen).backward(); o.step()",
]
LOSSES = [
    "F.mse_loss(m(x0), x1)",
    "F.smooth_l1_loss(m(x0), x1)",
    "F.cross_entropy(m(x0), x1.argmax(1))",
    "F.kl_div(m(x0).log_softmax(1), x1.softmax(1), reduction='batchmean')",
]
LOSSES += [
    "(1 - F.cosine_similarity(m(x0), x1 + 0.1)).mean()",
    "F.binary_cross_entropy_with_logits(m(x0), x1.sigmoid())",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("optimizers", seed)
    draw.line("from torch.optim import lr_scheduler")
    draw.training(
        f"nn.Sequential({', '.join(['nn.Linear(6, 6)', *draw.layers(draw.randint(1, 3))])})", groups=draw.choice(GROUPS)
    )
    draw.line("sc = torch.amp.GradScaler(torch.device(device).type, init_scale=4.0, growth_interval=2)")
    schedule = draw.choice(SCHEDULES) if draw.maybe(0.5) else None
    if schedule:
        draw.line(f"_s = lr_scheduler.{schedule}")
    first, each = draw.choice(AVERAGES).split("|") if draw.maybe(0.35) else ("", "")
    if first:
        draw.line(first)
    for step in range(draw.randint(2, 6)):
        text = draw.choice(STEPS)
        draw.line(
            text.format(s=step, loss=draw.choice(LOSSES), clip=draw.choice(CLIPS))
            .replace("; ; ", "; ")
            .replace("\n; ", "\n")
        )
        if schedule:
            draw.line(f"_s.step({f'l{step}.detach()' if 'Plateau' in schedule else ''})")
        if each:
            draw.line(each)
        if draw.maybe(0.25):
            draw.line(draw.choice(CHANGES))
        if draw.maybe(0.15):
            draw.line("sync()")
    draw.line("rates = torch.tensor([float(g['lr']) for g in o.param_groups])")
    return draw.lines
