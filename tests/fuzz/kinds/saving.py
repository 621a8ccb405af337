"""A training loop that is saved in the midst, in one of many forms, loaded and gone on with."""

from tests.fuzz.draw import Draw

IMPORTS = "import copy, io, os, pickle, tempfile; import torch_xla.core.xla_model as xm"
WRITE = "_file = io.BytesIO(); torch.save({held}, _file{form}); _file.seek(0); "
# Statements that replace `m` and `o`, or give them a state, by a copy.
WHOLE = [
    "m, o = copy.deepcopy((m, o))",
    "m, o = pickle.loads(pickle.dumps((m, o), protocol={protocol}))",
    WRITE.replace("{held}", "(m, o)") + "m, o = torch.load(_file, weights_only=False{location})",
    "m.load_state_dict(copy.deepcopy(m.state_dict())); o.load_state_dict(copy.deepcopy(o.state_dict()))",
    "_n = copy.deepcopy(m); _n.load_state_dict(m.state_dict(), assign=True); m = _n; _s = o.state_dict(); "
    "o = _make(m); o.load_state_dict(_s)",
    "_state = m.state_dict(); m = copy.deepcopy(m).to_empty(device=device); "
    "m.load_state_dict(_state); _s = o.state_dict(); o = _make(m); o.load_state_dict(_s)",
    "_state = m.state_dict(); m = copy.deepcopy(m).to('meta'); m.load_state_dict(_state, assign=True); "
    "_s = o.state_dict(); o = _make(m); o.load_state_dict(_s)",
    "m = m.cpu(); m = m.to(device)",
    "_n = copy.copy(m); m = _n",
    "_flat = nn.utils.parameters_to_vector(m.parameters()).detach().clone(); "
    "nn.utils.vector_to_parameters(_flat * 0.5, m.parameters())",
]
STATES = [
    "m.load_state_dict(_held['m']); o.load_state_dict(copy.deepcopy(_held['o']))",
    "m = copy.deepcopy(m); m.load_state_dict(_held['m'], strict=True); o = _make(m); "
    "o.load_state_dict(copy.deepcopy(_held['o']))",
    "m.load_state_dict({key: t.to(device, copy=True) for key, t in _held['m'].items()}, assign=True); o = _make(m); "
    "o.load_state_dict(copy.deepcopy(_held['o']))",
    "_held['m'] = {key: t.to(device) for key, t in _held['m'].items()}; m.load_state_dict(_held['m']); "
    "o.load_state_dict(copy.deepcopy(_held['o']))",
]
LOCATIONS = [
    "",
    "",
    ", map_location='cpu'",
    ", map_location=device",
    ", map_location=torch.device(device)",
    ", map_location={'cpu': device, 'xla:0': 'cpu'}",
    ", map_location=lambda storage, _: storage",
    ", map_location=lambda storage, _: storage.cpu()",
]
WHOLE_LOCATIONS = ["", "", ", map_location=device", ", map_location={'xla:0': device}"]
FORMS = ["", "", ", _use_new_zipfile_serialization=False", ", pickle_protocol=4"]
HELD = "{'m': m.state_dict(), 'o': o.state_dict(), 'x': x0, 'view': x0[1:], 'rng': torch.get_rng_state()}"
BY_PATH = [
    f"torch.save({HELD}, _path); _held = torch.load(_path, mmap=True, weights_only=True{{location}})",
    f"xm.save({HELD}, _path, master_only=False); _held = torch.load(_path, weights_only=True{{location}})",
    f"xm.save({HELD}, _path); _held = torch.load(_path{{location}})",
    f"from torch_xla.utils import serialization as xser; xser.save({HELD}, _path); _held = xser.load(_path)",
]


# What xm.save writes are single tensors.
SHARED = "_held['view'].detach().add_(1); shared = _held['x'].detach().to('cpu', copy=True)"


def draw_trip(draw: Draw, i: int) -> list[str]:
    """Statements that save and load what is trained; what is loaded has a name of its own."""
    return [text.replace("_held", f"_held{i}") for text in draw_statements(draw)]


def draw_statements(draw: Draw) -> list[str]:
    """The statements of a trip."""
    choices = {"protocol": draw.choice([2, 4, 5]), "form": draw.choice(FORMS)}
    if draw.maybe(0.4):
        text = draw.choice(WHOLE)
        for key, value in {**choices, "location": draw.choice(WHOLE_LOCATIONS)}.items():
            text = text.replace(f"{{{key}}}", str(value))
        return [text]
    location = draw.choice(LOCATIONS)
    if draw.maybe(0.4):
        text = draw.choice(BY_PATH).replace("{location}", location)
        make = f"with tempfile.TemporaryDirectory() as _d:\n    _path = os.path.join(_d, 'f.pt')\n    {text}"
    else:
        make = WRITE.replace("{held}", HELD).replace("{form}", choices["form"])
        make += f"_held = torch.load(_file, weights_only={draw.maybe()}{location})"
    between = draw.choice(["", "", "[p.data.mul_(2) for p in m.parameters()]", "o.zero_grad(set_to_none=False)"])
    return [
        make,
        *([between] if between else []),
        draw.choice(STATES),
        "torch.set_rng_state(_held['rng'].cpu())",
        "kept = [_held['x'].to('cpu', copy=True), _held['view'].to('cpu', copy=True)]",
        *([] if "xm." in make or "xser" in make else [SHARED]),
    ]


# The state of a generator, saved and set again: devices draw other numbers, so only the verdict is compared.
RANDOM = [
    "_s = _g.get_state(); _a = {draw}; _g.set_state(_s); same{i} = torch.equal(_a, {draw}) + torch.zeros(1)",
    "_s = copy.deepcopy(_g.get_state()); _a = {draw}; _g = torch.Generator(device); _g.set_state(_s); "
    "same{i} = torch.equal(_a, {draw}) + torch.zeros(1)",
    "_g.manual_seed(3); _a = {draw}; _g.manual_seed(3); same{i} = torch.equal(_a, {draw}) + torch.zeros(1)",
    "_c = _g.clone_state(); _a = {draw}; _g.graphsafe_set_state(_c); same{i} = torch.equal(_a, {draw}) + "
    "torch.zeros(1)",
    "with torch.random.fork_rng(device_type='xla'): torch.manual_seed(5); _a = torch.rand(3, device=device)\n"
    "_b = torch.rand(3, device=device); torch.manual_seed(5); same{i} = torch.equal(_a, torch.rand(3, device=device)) "
    "+ torch.zeros(1)",
]
DRAWS = [
    "torch.rand(5, generator=_g, device=device)",
    "torch.randn(2, 3, generator=_g, device=device)",
    "torch.randperm(7, generator=_g, device=device)",
    "torch.randint(9, (4,), generator=_g, device=device)",
    "torch.empty(4, device=device).exponential_(generator=_g)",
    "torch.bernoulli(torch.full((6,), 0.5, device=device), generator=_g)",
    "torch.multinomial(torch.ones(6, device=device), 3, generator=_g)",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("saving", seed)
    draw.line(IMPORTS)
    draw.training(f"nn.Sequential({', '.join(['nn.Linear(6, 6)', *draw.layers(draw.randint(0, 2))])})")
    draw.line(f"_g = torch.Generator(device); _ = _g.manual_seed({draw.randrange(100)})")
    for step in range(draw.randint(2, 4)):
        draw.line(f"o.zero_grad(); l{step} = F.mse_loss(m(x0), x1); l{step}.backward(); o.step()")
        if draw.maybe(0.6):
            for text in draw_trip(draw, step):
                draw.line(text)
        if draw.maybe(0.3):
            draw.line(draw.choice(RANDOM).format(draw=draw.choice(DRAWS), i=step))
        if draw.maybe(0.2):
            draw.line("sync()")
    return draw.lines
