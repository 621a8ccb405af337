"""torch_xla.debug.explain() names the cause of seeded mistakes in small programs, and leaves right ones alone."""

import re
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import _XLAC

HERE = Path(__file__)


@pytest.fixture
def explain(device):
    """Function that runs a program and returns the report of its steps."""

    def run(program) -> "torch_xla.debug._report.Report":
        torch_xla.sync(wait=True)
        torch_xla.debug.forget()
        program(device)
        return torch_xla.debug.explain()

    return run


class Classifier(torch.nn.Module):
    """A small model of its own width, so that no other test has compiled its programs."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, width), torch.nn.Linear(width, 4)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        x = self.first(x).relu()  # forward
        x = self.dropout(x)  # dropout
        return self.last(x)


def batches(turns: int, size: int = 16, drop_last: bool = True) -> DataLoader:
    """So many batches; the last one is smaller unless it is dropped."""
    generator = torch.Generator().manual_seed(1)
    rows = turns * size + (0 if drop_last else size // 2)
    x = torch.randn(rows, 8, generator=generator)
    y = torch.randint(4, (rows,), generator=generator)
    return DataLoader(TensorDataset(x, y), size, drop_last=drop_last)


def number_of(mark: str) -> int:
    """The number of the line of this file that ends with the comment."""
    (number,) = (at for at, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith("  # " + mark))
    return number


def check(report, cause: str, mark: str, advice: str, alone: bool = True):
    """The report has the finding at the marked line, in its list and its text; `alone`: and no other one."""
    found = [finding for finding in report.findings if finding.cause == cause]
    assert len(found) == 1, str(report)
    assert found[0].line.startswith(f"{HERE}:{number_of(mark)} in "), str(report)
    assert advice in found[0].advice
    assert not alone or len(report.findings) == 1, str(report)
    text = str(report)
    assert cause in text and f"{HERE.name}:{number_of(mark)} in" in text and f"Do: {found[0].advice}" in text
    assert HERE.read_text().splitlines()[number_of(mark) - 1].strip() in text  # the source of the line
    return found[0]


def step_of(model, optimizer):
    """Function that makes one right training step and returns the loss."""

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# ---- ten mistakes ----


def test_growing_list(explain):
    def program(device):
        model = Classifier(17).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for x, y in batches(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            losses.append(loss.detach())
            average = sum(losses) / len(losses)  # growing sum
            loss.backward()
            optimizer.step()
        assert average.isfinite()

    found = check(explain(program), "growing list", "growing sum", "total += loss.detach()")
    assert found.count >= 3 and found.seconds > 0


def test_growing_list_of_operands(explain):
    def program(device):
        model = Classifier(18).to(device)
        step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
        losses = []
        for x, y in batches(6):
            losses.append(step(x.to(device), y.to(device)))
            smooth = torch.stack(losses).mean()  # growing stack
            torch_xla.sync()
        assert smooth.isfinite()

    check(explain(program), "growing list", "growing stack", "total += loss.detach()")


def test_changing_last_batch(explain):
    def program(device):
        model = Classifier(19).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(2):
            for x, y in batches(4, drop_last=False):
                x, y = x.to(device), y.to(device)  # move of the batch
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()

    found = check(explain(program), "changing batch", "forward", "drop_last=True")
    assert f":{number_of('move of the batch')} in" in found.other_line
    assert "f32[8,8], before f32[16,8]" in found.what and found.count == 1


@pytest.mark.parametrize("before_the_step", [True, False])
def test_item_in_the_loop(explain, before_the_step):
    def program(device):
        model = Classifier(20).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        total = 0.0
        for x, y in batches(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            if before_the_step:
                total += loss.item()  # early item
            optimizer.step()
            if not before_the_step:
                total += loss.item()  # late item

    found = check(
        explain(program), "item in the loop", "early item" if before_the_step else "late item", "after the loop"
    )
    assert ("is cut off" if before_the_step else "waits for the step that runs") in found.what
    assert found.count == 6 and found.seconds > 0


def test_branch_on_a_tensor(explain):
    def program(device):
        model = Classifier(21).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for number, (x, y) in enumerate(batches(8)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device) * (number % 2 * 9 + 1)), y.to(device))
            if loss > 2:  # branch
                loss = loss.sqrt()
            loss.backward()
            optimizer.step()

    found = check(explain(program), "branch on a tensor", "branch", "torch.where")
    assert found.count == 8


def test_new_optimizer_in_each_step(explain):
    def program(device):
        model = Classifier(22).to(device)
        for x, y in batches(6):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # new optimizer

    found = check(explain(program), "new optimizer", "new optimizer", "once, before the loop")
    assert "Adam" in found.what


@pytest.mark.parametrize("as_text", [True, False])
def test_print_in_each_step(explain, as_text, capsys):
    def program(device):
        model = Classifier(23).to(device)
        step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for number, (x, y) in enumerate(batches(6)):
            loss = step(x.to(device), y.to(device))
            if as_text:
                print(f"step {number}: loss {loss:.3f}")  # print of a text
            else:
                print(number, loss)  # print

    check(explain(program), "print in the loop", "print of a text" if as_text else "print", "xm.add_step_closure")
    assert capsys.readouterr().out.count("\n") == 6


@pytest.mark.parametrize("form", ["mask", "nonzero"])
def test_shape_from_data(explain, form):
    def program(device):
        model = Classifier(24).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches(6):
            optimizer.zero_grad()
            losses = F.cross_entropy(model(x.to(device)), y.to(device), reduction="none")
            if form == "mask":
                hard = losses[losses > losses.mean()]  # index by a mask
            else:
                hard = losses.index_select(0, torch.nonzero(losses > losses.mean())[:, 0])  # nonzero
            hard.mean().backward()
            optimizer.step()

    check(explain(program), "shape from data", "index by a mask" if form == "mask" else "nonzero", "torch.where")


def test_changing_dropout(explain):
    def program(device):
        model = Classifier(25).to(device)
        step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for number, (x, y) in enumerate(batches(6)):
            model.dropout.p = 0.1 + 0.05 * number
            step(x.to(device), y.to(device))

    found = check(explain(program), "changing dropout", "dropout", "rand_like")
    assert "native_dropout_backward" in found.what and "loss.backward()" in source_at(found.other_line)


def source_at(line: str) -> str:
    """The text of the line, of "file.py:12 in forward"."""
    file, number = line.rsplit(" in ", 1)[0].rsplit(":", 1)
    return Path(file).read_text().splitlines()[int(number) - 1]


@pytest.fixture
def no_auto_sync():
    """optimizer.step() does not sync."""
    torch_xla.set_auto_sync(False)
    yield
    torch_xla.set_auto_sync(True)


def test_forgotten_barrier(explain, no_auto_sync):
    def program(device):
        model = Classifier(26).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()  # no barrier
        assert loss.item() > 0

    found = check(explain(program), "forgotten sync", "no barrier", "torch_xla.sync() at the end of each turn")
    assert "6 turns of the loop are recorded in one trace" in found.what


def test_forgotten_barrier_in_an_evaluation(explain):
    def program(device):
        model = Classifier(27).to(device).eval()
        right = torch.zeros((), device=device)
        with torch.no_grad():
            for x, _ in batches(8):
                x = x.to(device)  # batch of the evaluation
                right += (model(x).argmax(1) == 0).sum()
        assert right.item() >= 0

    check(explain(program), "forgotten sync", "batch of the evaluation", "torch_xla.sync() at the end of each turn")


def evaluate(device, move, batches_of, turns: int = 16, epochs: int = 1) -> None:
    """An evaluation that never syncs. `move(batch)` gives what the model takes and what it should give."""
    model = torch.nn.Linear(8, 4).to(device)
    right = torch.zeros((), device=device)
    with torch.no_grad():
        for _ in range(epochs):
            for batch in batches_of(turns):
                x, y = move(batch)
                right += (model(x).argmax(1) == y()).sum()
            right = right * 1.0
    assert right.item() >= 0


def to_one_by_one(t, device):
    return t.to(device)  # move of one


MOVES = {
    "one": lambda b, d: (b[0].to(d), lambda: 0),
    "two with operations between": lambda b, d: (b[0].to(d), lambda: b[1].to(d)),
    "two of a list": lambda b, d: ((m := [t.to(d) for t in b])[0], lambda: m[1]),
    "two of the same bytes": lambda b, d: (b[0].to(d), lambda: b[2].to(d)[:, 0].long()),
    "two by a function": lambda b, d: (to_one_by_one(b[0], d), lambda: to_one_by_one(b[1], d)),
}


def check_turns(report, text: str):
    """What is said of each line that moves."""
    found = [finding.what for finding in report.findings if finding.cause == "forgotten sync"]
    assert found and all(text in what for what in found), str(report)


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("last", [16, 5])
def test_turns_of_a_loop_are_counted_not_its_moves(explain, moves, last):
    """Also with a smaller last batch; the first move comes before the trace's first operation."""

    def make(turns):
        sizes = [16] * (turns - 1) + [last]
        return [(torch.randn(n, 8), torch.randint(4, (n,)), torch.randn(n, 8)) for n in sizes]

    move = MOVES[moves]
    report = explain(lambda device: evaluate(device, lambda batch: move(batch, device), make))
    check_turns(report, "16 turns of the loop are recorded in one trace")


def test_turns_of_nested_loops(explain):
    def make(turns):
        return [(torch.randn(16, 8), torch.randint(4, (16,))) for _ in range(turns)]

    move = MOVES["two with operations between"]
    report = explain(lambda device: evaluate(device, lambda batch: move(batch, device), make, epochs=3))
    check_turns(report, "48 turns of the loop are recorded in one trace")


def test_turns_of_a_loop_of_many_forms(explain):
    """Each turn records something else: there is no number to tell."""

    def program(device):
        total = torch.zeros((), device=device)
        for turn, (x, _) in enumerate(batches(12)):
            x = x.to(device)  # batch of many forms
            for _ in range(turn * turn % 7):
                x = x + 1
            total += x.sum()
        total.item()

    found = check(explain(program), "forgotten sync", "batch of many forms", "torch_xla.sync()")
    assert "several turns of the loop are recorded" in found.what


def test_turns_and_steps_of_accumulated_gradients(explain, no_auto_sync):
    def program(device):
        model = Classifier(46).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(batches(24)):
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            if number % 4 == 3:
                optimizer.step()  # accumulated
                optimizer.zero_grad()
        torch_xla.sync()

    found = check(explain(program), "forgotten sync", "accumulated", "torch_xla.sync()")
    assert "24 turns of the loop, with 6 steps of the optimizer, are recorded" in found.what


def test_tensors_that_are_moved_one_by_one_are_no_loop(explain):
    def program(device):
        tensors = [torch.randn(3).to(device) for _ in range(20)]
        assert torch.stack(tensors).isfinite().all()

    assert explain(program).findings == []


@pytest.mark.parametrize("by_user", [False, True])
def test_a_turn_with_two_syncs_is_one_step(explain, by_user):
    def program(device):
        model = Classifier(47).to(device).eval()
        torch_xla.sync() if by_user else model.last.bias.sum().item()
        torch_xla.debug.forget()
        for x, y in batches(8):
            first = model(x.to(device)).sum()
            torch_xla.sync() if by_user else first.item()
            second = (first * 2 + y.to(device)).sum()
            torch_xla.sync() if by_user else second.item()

    assert len(explain(program).steps) == 8


def test_a_trace_that_is_cut(explain):
    def program(device):
        x = torch.ones(28, device=device)
        for _ in range(3000):
            x = x.sin().mul(0.5).add(1)  # endless
        assert x.isfinite().all()

    found = check(
        explain(program), "forgotten sync", "endless", "torch_xla.sync() at the end of each turn", alone=False
    )
    assert "cut at a repeat of the loop" in found.what


def test_a_part_of_the_model_on_the_cpu(explain):
    def program(device):
        first, last = torch.nn.Linear(8, 29).to(device), torch.nn.Linear(29, 4)
        optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
        for x, y in batches(6):
            optimizer.zero_grad()
            hidden = first(x.to(device)).relu()
            loss = F.cross_entropy(last(hidden.cpu()).to(device), y.to(device))  # to the CPU and back
            loss.backward()
            optimizer.step()

    check(explain(program), "mixed devices", "to the CPU and back", "on one device")


def test_a_cpu_tensor_moved_in_each_step(explain):
    def program(device):
        model = Classifier(30).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = torch.tensor([1.0, 2.0, 1.0, 0.5])
        for x, y in batches(6):
            optimizer.zero_grad()
            logits = model(x.to(device))
            F.cross_entropy(logits, y.to(device), weight=weights.to(device)).backward()  # same weights
            optimizer.step()

    check(explain(program), "same values moved", "same weights", "before the loop")


# ---- right programs ----


def test_a_right_program_has_no_mistakes(explain, capsys):
    """Epochs with a scheduler, clipped gradients, an evaluation, dropout and a line of log now and then."""

    def program(device):
        model = Classifier(31).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
        for epoch in range(3):
            model.train()
            total = torch.zeros((), device=device)
            for number, (x, y) in enumerate(batches(12)):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                total += loss.detach()
                if number % 6 == 0:
                    print(epoch, number, loss.item())
            schedule.step()
            model.eval()
            right = torch.zeros((), device=device)
            with torch.no_grad():
                for x, y in batches(4, size=20):
                    right += (model(x.to(device)).argmax(1) == y.to(device)).sum()
                    torch_xla.sync()
            print(total.item(), right.item())

    report = explain(program)
    assert report.findings == [], str(report)
    assert "No mistakes found." in str(report)
    assert 1 <= len(report.compiles) <= 10 and all(each.what in str(report) for each in report.compiles)


def test_steady_steps_compile_nothing(explain):
    step = None

    def program(device):
        nonlocal step
        if step is None:
            model = Classifier(32).to(device)
            step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        for x, y in batches(5):
            step(x.to(device), y.to(device))

    explain(program)
    report = explain(program)
    assert report.findings == [] and report.compiles == [] and report.fallbacks == [] and report.reads == []
    assert len(report.steps) == 5
    assert "Compiled: nothing" in str(report) and "recording" in str(report)


def test_the_text_lists_the_costliest_places_of_compiles(explain):
    def program(device):
        model = Classifier(41).to(device)
        for count in range(2, 22):  # a structure of its own in each turn
            loss = model(torch.ones(count, 8, device=device)).sum()
            for _ in range(count):
                loss = loss.sin()  # structures
            loss.item()
        for place in range(14):
            exec(compile("\n" * place + "x = torch.ones(3, 7, device=device).cos() * 3", f"place_{place}.py", "exec"))
            torch_xla.sync()

    report = explain(program)
    text = str(report).partition("Compiled: ")[2].partition("A step of ")[0]
    assert len(report.compiles) >= 20
    assert f"{len(report.compiles)} programs" in text and "for example" in text
    assert text.count("\n") <= 60, text


def test_accumulated_gradients_are_right(explain):
    def program(device):
        model = Classifier(33).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(batches(16)):
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    report = explain(program)
    assert report.findings == [], str(report)


def test_two_optimizers_that_take_turns_are_right(explain, no_auto_sync):
    def program(device):
        models = [Classifier(width).to(device) for width in (34, 35)]
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
        for x, y in batches(5):
            x, y = x.to(device), y.to(device)
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            xm.mark_step()

    report = explain(program)
    assert report.findings == [], str(report)


def test_reading_each_result_of_an_inference_is_right(explain):
    def program(device):
        model = Classifier(36).to(device).eval()
        with torch.no_grad():
            results = [model(x.to(device)).cpu() for x, _ in batches(6)]
        assert len(results) == 6

    report = explain(program)
    assert report.findings == [], str(report)
    assert len(report.reads) == 6 and "Early reads" in str(report)


def test_models_of_other_sizes_one_after_the_other_are_right(explain):
    def program(device):
        for width in (37, 38, 39):
            model = Classifier(width).to(device)
            step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
            for _ in range(12):
                for x, y in batches(5):
                    step(x.to(device), y.to(device))

    report = explain(program)
    assert report.findings == [], str(report)


# ---- the report ----


def test_nothing_has_run(explain):
    report = explain(lambda device: None)
    assert "nothing has run" in str(report)
    assert report.findings == report.compiles == report.steps == []


def test_each_compile_has_both_lines(explain):
    def program(device):
        x = torch.ones(40, 3, device=device)
        torch_xla.sync()
        for turn in range(2):
            y = x.sin() + 1
            y = y.cos() if turn else y.tan()  # other way
            torch_xla.sync()
            del y

    report = explain(program)
    last = report.compiles[-1]
    assert last.kind == "operation" and "aten::cos comes, before aten::tan" in last.what
    assert f":{number_of('other way')} in" in last.line and last.line_before == last.line
    assert last.step == len(report.steps) and last.seconds > 0


def test_fallbacks_are_listed_and_named_where_they_come_each_step(explain):
    def program(device):
        x = torch.ones(41, 3, device=device)
        for _ in range(4):
            x = x + 1
            y = torch.histc(x, 3)  # fallback
            torch_xla.sync()
        assert y.shape == (3,)

    report = explain(program)
    found = check(report, "fallback", "fallback", "docs/operators.md")
    assert "aten::histc runs on the CPU" in found.what and found.count == 4
    assert [each.name for each in report.fallbacks] == ["aten::histc"] * 4
    assert report.reads == []  # those of the fallbacks are parts of them


def test_forget(explain):
    def program(device):
        for _ in range(4):
            torch.ones(42, device=device).sum().item()

    assert explain(program).findings
    torch_xla.debug.forget()
    assert torch_xla.debug.explain().steps == []


def test_the_history_is_bounded(explain):
    def program(device):
        for number in range(5000):
            torch.tensor([float(number)]).to(device)

    report = explain(program)
    events = _XLAC._history()
    assert len(events) == 4096 and {event["phase"] for event in events} == {"upload"}
    assert report.findings == [] and "1 step" in str(report)


def test_two_devices_with_a_thread_each(run_python):
    out = run_python(
        """
        import threading, torch, torch_xla

        def train(index):
            with torch.xla.device(index):
                device = torch.device("xla", index)
                model = torch.nn.Linear(8, 4).to(device)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                generator = torch.Generator().manual_seed(index)
                for _ in range(8):
                    optimizer.zero_grad()
                    loss = model(torch.randn(16, 8, generator=generator).to(device)).square().mean()
                    loss.backward()
                    if index == 1:
                        loss.item()
                    optimizer.step()
                torch_xla.sync(wait=True)

        threads = [threading.Thread(target=train, args=(index,)) for index in range(2)]
        [thread.start() for thread in threads]
        for _ in range(20):
            str(torch_xla.debug.explain())  # while they run
        [thread.join() for thread in threads]
        report = torch_xla.debug.explain()
        print([(found.cause, found.devices, found.count) for found in report.findings])
        print(sorted({step.device for step in report.steps}))
        """,
        CPU_NUM_DEVICES="2",
        PJRT_LIBRARY_OPTIONS="cpu_device_count=2",  # of XLA's CPU client
    )
    assert "[('item in the loop', [1], 8)]\n[0, 1]\n" in out


def test_threads_on_one_device(explain):
    def program(device):
        def work(width):
            x = torch.ones(width, device=device)
            for _ in range(5):
                x = x + 1
                x.sum().item()  # read by threads

        threads = [threading.Thread(target=work, args=(width,)) for width in (43, 44, 45)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = check(explain(program), "item in the loop", "read by threads", "after the loop", alone=False)
    assert found.count == 15


# ---- the document ----

DOCUMENT = (HERE.parents[2] / "docs/explain.md").read_text()


def run_program(run_python, folder: Path, source: str) -> str:
    """What the program prints, run as the file train.py of the folder."""
    (folder / "train.py").write_text(source)
    return run_python(f"import os, runpy; os.chdir({str(folder)!r}); runpy.run_path('train.py')")


def test_the_example_of_the_document(run_python, tmp_path):
    _, source, _, shown, *_ = DOCUMENT.split("```")
    printed = run_program(run_python, tmp_path, source.removeprefix("python\n"))
    texts = {re.sub(r"^\d\. ", "", line) for line in printed.splitlines()}  # the dearest comes first
    lines = {re.sub(r"^\d\. ", "", line) for line in shown.splitlines() if line and " ms, in " not in line}
    assert len(lines) == 8 and lines <= texts, printed
    assert "Timeline" in (tmp_path / "report.html").read_text()


def test_the_example_put_right(run_python, tmp_path):
    source = DOCUMENT.split("```")[1].removeprefix("python\n")
    source = source.replace("batch_size=32)", "batch_size=32, drop_last=True)").replace("loss.item()", "loss.detach()")
    source = source.replace("report = ", "print(total.item())\nreport = ")
    printed = run_program(run_python, tmp_path, source)
    assert "No mistakes found." in printed, printed


def test_the_document_lists_every_cause():
    from torch_xla.debug._mistakes import ADVICE

    causes = {cause for cause in ADVICE if cause not in DOCUMENT}
    groups = {"shape", "dropout", "constant", "operations", "inputs"}, {"item", "print", "copy", "read"}
    grouped = {f"changing {word}" for word in groups[0]} | {f"{word} in the loop" for word in groups[1]}
    assert causes <= grouped | {"other values kept"}
