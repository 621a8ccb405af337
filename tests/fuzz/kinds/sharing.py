"""Random sets of views that are saved and loaded, copied deeply or pickled: values, layouts and what shares memory."""

from tests.fuzz.draw import Draw

IMPORTS = "import copy, io, pickle"
VIEWS = [
    ".mT",
    "[1:]",
    "[:, ::2]",
    ".select(0, 0)",
    ".view(-1)",
    ".unsqueeze(1)",
    ".diagonal()",
    ".expand(2, 4, 6)",
    "",
]
VIEWS += [".narrow(1, 1, 3)", ".as_strided((2, 3), (1, 2), 3)", ".detach()", ".unfold(1, 2, 2)", ".movedim(0, 1)[2]"]
HOLDERS = ["[{}]", "({},)", "{{'tensors': [{}]}}", "nn.ParameterList([nn.Parameter(t) for t in [{}]])"]


def draw_trip(draw: Draw) -> str:
    """Statements that make `loaded` from `held`."""
    kind = draw.randrange(4)
    if kind == 0:
        return "loaded = copy.deepcopy(held)"
    if kind == 1:
        return f"loaded = pickle.loads(pickle.dumps(held, protocol={draw.choice([2, 4, 5])}))"
    zipped = draw.choice(["", "", ", _use_new_zipfile_serialization=False"])
    location = draw.choice(
        ["", "", ", map_location='cpu'", ", map_location=device", ", map_location=torch.device('cpu')"]
    )
    if draw.maybe(0.2):
        location = ", map_location=lambda storage, location: storage"
    load = f"loaded = torch.load(file, weights_only={draw.choice([True, False])}{location})"
    return f"file = io.BytesIO(); torch.save(held, file{zipped}); file.seek(0); {load}"


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("sharing", seed)
    draw.line(IMPORTS)
    bases = [draw.tensor((4, 6), draw.choice(["float32", "float64", "bfloat16"]), dense=True) for _ in range(2)]
    names = []
    for i in range(draw.randint(2, 5)):
        draw.line(f"v{i} = {draw.choice(bases)}{draw.choice(VIEWS)}")
        names.append(f"v{i}")
    if draw.maybe():
        draw.line(f"{draw.choice(bases)}.mul_(2)")
    if draw.maybe(0.4):
        draw.line(f"w = {bases[0]}.clone().requires_grad_()")
        names.append("w")
    holder = draw.choice(HOLDERS)
    draw.line(f"held = {holder.format(', '.join(names))}")
    draw.line(draw_trip(draw))
    draw.line("loaded = list(loaded.parameters()) if isinstance(loaded, nn.Module) else loaded")
    draw.line("loaded = loaded['tensors'] if isinstance(loaded, dict) else loaded")
    draw.line("before = [t.detach().clone() for t in loaded]")
    i = draw.randrange(len(names))
    draw.line(f"loaded[{i}].detach()[..., :1].add_(100)  # seen by all that share its memory")
    draw.line("held = None")
    return draw.lines
