"""Random hooks on modules, tensors, parameters, nodes of autograd, state dicts and optimizers of a training loop."""

from tests.fuzz.draw import Draw

# What is registered on layer {i} of the module `m`; `handles` are removed when the program ends.
MODULE = [
    "m[{i}].register_forward_hook(lambda _m, _a, out: seen.append(out.detach().mean()))",
    "m[{i}].register_forward_hook(lambda _m, _a, out: out * {n})",
    "m[{i}].register_forward_hook(lambda _m, _a, out: out.clone().clamp_(-1, 1))",
    "m[{i}].register_forward_hook(lambda _m, _a, out: out + _a[0].mean())",
    "m[{i}].register_forward_hook(lambda _m, _a, out: out * 2 if out.abs().sum().item() > 3 else None)",
    "m[{i}].register_forward_hook(lambda _m, _a, kw, out: seen.append(torch.tensor(len(kw))), with_kwargs=True)",
    "m[{i}].register_forward_hook(lambda _m, _a, out: seen.append(out.detach().amax()), always_call=True)",
    "m[{i}].register_forward_hook(lambda _m, _a, out: out.tanh(), prepend=True)",
    "m[{i}].register_forward_pre_hook(lambda _m, a: (a[0] + {n},))",
    "m[{i}].register_forward_pre_hook(lambda _m, a: a[0].clone().mul_({n}))",
    "m[{i}].register_forward_pre_hook(lambda _m, a, kw: ((a[0] * {n},), kw), with_kwargs=True)",
    "m[{i}].register_forward_pre_hook(lambda _m, a: seen.append(a[0].detach()[:1].clone()))",
    "m[{i}].register_full_backward_hook(lambda _m, gi, go: tuple(g if g is None else g * {n} for g in gi))",
    "m[{i}].register_full_backward_hook(lambda _m, gi, go: seen.append(go[0].abs().sum()))",
    "m[{i}].register_full_backward_pre_hook(lambda _m, go: (go[0].clamp(-0.5, 0.5),))",
    "m[{i}].register_full_backward_pre_hook(lambda _m, go: seen.append(torch.tensor(go[0].abs().sum().item() > 0.1)))",
    "nn.modules.module.register_module_forward_hook(lambda _m, _a, out: seen.append(out.detach().sum()))",
    "nn.modules.module.register_module_forward_pre_hook(lambda _m, a: seen.append(a[0].detach().sum()))",
    "nn.modules.module.register_module_full_backward_hook(lambda _m, gi, go: seen.append(go[0].sum()))",
    "nn.modules.module.register_module_full_backward_pre_hook(lambda _m, go: (go[0] * {n},))",
]
PARAMETER = [
    "_p({j}).register_hook(lambda g: g * {n})",
    "_p({j}).register_hook(lambda g: g.clamp(-0.1, 0.1))",
    "_p({j}).register_hook(lambda g: seen.append(g.norm()))",
    "_p({j}).register_hook(lambda g: g / g.norm() if g.norm().item() > 0.1 else None)",
    "_p({j}).register_post_accumulate_grad_hook(lambda p: (p.grad.mul_({n}), None)[1])",
    "_p({j}).register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum()))",
    "_p({j}).register_post_accumulate_grad_hook(lambda p: (p.data.sub_(p.grad, alpha=0.1), setattr(p, 'grad', "
    "None))[1])",
    "torch.autograd.graph.register_multi_grad_hook(list(m.parameters()), lambda gs: "
    "seen.append(sum(g.sum() for g in gs if g is not None)))",
    "torch.autograd.graph.register_multi_grad_hook(list(m.parameters()), lambda g: seen.append(g.sum()), mode='any')",
    "o.register_step_pre_hook(lambda o, a, kw: ([p.grad.mul_({n}) for p in m.parameters() if p.grad is not None], "
    "None)[1])",
    "o.register_step_post_hook(lambda o, a, kw: ([p.data.clamp_(-1, 1) for p in m.parameters()], None)[1])",
]
FORMS = [
    "nn.utils.parametrizations.weight_norm({})",
    "nn.utils.parametrizations.weight_norm({}, dim=1)",
    "nn.utils.weight_norm({})",
    "nn.utils.parametrizations.spectral_norm({})",
    "nn.utils.spectral_norm({})",
    "nn.utils.parametrizations.orthogonal({}, orthogonal_map='cayley')",
    "nn.utils.parametrizations.orthogonal({}, orthogonal_map='matrix_exp')",
    "nn.utils.parametrize.register_parametrization({}, 'weight', nn.Tanh())",
    "nn.utils.parametrize.register_parametrization({}, 'bias', nn.Hardtanh(-0.2, 0.2))",
    "nn.utils.prune.l1_unstructured({}, 'weight', amount=0.3)",
    "nn.utils.prune.ln_structured({}, 'weight', amount=0.5, n=2, dim=0)",
]
# Of the graph: {y} is the module's result.
GRAPH = [
    "{y}.register_hook(lambda g: g * {n})",
    "{y}.register_hook(lambda g: seen.append(g.sum()))",
    "{y}.grad_fn.register_hook(lambda gi, go: seen.append(go[0].sum()))",
    "{y}.grad_fn.register_prehook(lambda go: (go[0] * {n},))",
    "{y}.retain_grad(); {y}.register_hook(lambda g: g + 1)",
]
SAVED = [
    "torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(device))",
    "torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.mul_(1))",
    "torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.to(torch.float32))",
    "torch.autograd.graph.save_on_cpu()",
    "torch.autograd.set_multithreading_enabled(False)",
    "torch.autograd.set_detect_anomaly(True)",
]
STATE = [
    "m.register_state_dict_post_hook(lambda _m, state, prefix, _l: state.update(extra=torch.ones(1, device=device)))",
    "m.register_state_dict_pre_hook(lambda _m, prefix, keep: [p.data.mul_(0.5) for p in _m.parameters()])",
    "m.register_load_state_dict_pre_hook(lambda _m, s, *_: [t.neg_() for t in s.values() if t.is_floating_point()])",
    "m.register_load_state_dict_post_hook(lambda _m, _keys: [p.data.add_(1) for p in _m.parameters()])",
    "o.register_state_dict_post_hook(lambda _o, s: s.update(more=1))",
]


def draw_registration(draw: Draw, layers: int) -> str:
    """A statement that adds a hook, which may remove itself at its first call."""
    i, n = draw.randrange(layers), draw.choice(["2", "0.5", "-1"])
    if draw.maybe(0.1):
        return (
            f"handles.append(m[{i}].register_forward_hook("
            f"lambda _m, _a, out, _i=len(handles): (handles[_i].remove(), out * {n})[1]))"
        )
    if draw.maybe(0.6):
        return f"handles.append({draw.choice(MODULE).format(i=i, n=n)})"
    return f"handles.append({draw.choice(PARAMETER).format(j=draw.randrange(6), n=n)})"


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("hooks", seed)
    draw.line("import torch.nn.utils.prune")
    layers = ["nn.Linear(6, 6)", *draw.layers(draw.randint(1, 3))]
    if draw.maybe(0.3):
        layers[0] = draw.choice(FORMS).format("nn.Linear(6, 6)")
    draw.training(f"nn.Sequential({', '.join(layers)})")
    draw.line("seen = []")
    draw.line("_p = lambda j: list(m.parameters())[j % len(list(m.parameters()))]")
    for _ in range(draw.randint(1, 4)):
        draw.line(draw_registration(draw, len(layers)))
    saved = f"with {draw.choice(SAVED)}: " if draw.maybe(0.25) else ""
    for step in range(draw.randint(1, 4)):
        y = f"y{step}"
        draw.line(f"{saved}{y} = m(x0); l{step} = F.mse_loss({y}, x1)")
        if draw.maybe(0.3):
            draw.line(draw.choice(GRAPH).format(y=y, n=draw.choice(["2", "0.5"])))
        draw.line(f"o.zero_grad(); l{step}.backward(); o.step()")
        if draw.maybe(0.15):
            draw.line("handles.pop().remove()")
        if draw.maybe(0.2):
            draw.line(draw_registration(draw, len(layers)))
    if draw.maybe(0.3):
        draw.line(f"handles.append({draw.choice(STATE)})")
        draw.line(
            "s = {key: t.clone() for key, t in m.state_dict().items()}; _found = m.load_state_dict(s, strict=False)"
        )
    if "parametriz" in layers[0] and draw.maybe(0.5):
        draw.line(
            f"_ = nn.utils.parametrize.remove_parametrizations(m[0], 'weight', leave_parametrized={draw.maybe()})"
        )
    return draw.lines
