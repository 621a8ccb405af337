"""The page that explain() writes, in a headless Chromium."""

import html
import itertools
import json
import re
import shutil
import subprocess

import pytest
import torch
import torch.nn.functional as F

import torch_xla

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--enable-logging=stderr",
    "--v=0",
]


WIDTHS = itertools.count(51)  # each report's program is compiled anew


@pytest.fixture
def report():
    """Of a program with two mistakes: a last batch that is smaller, and a value that is read in each step."""
    torch_xla.sync(wait=True)
    torch_xla.debug.forget()
    device = torch_xla.device()
    width = next(WIDTHS)
    model = torch.nn.Linear(8, width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for size in (16, 16, 16, 16, 7):
        x, y = torch.randn(size, 8).to(device), torch.randint(width, (size,)).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        assert loss.item() < 100 and "</script><b>" != "bold"  # a line that a page must not read as its own
        optimizer.step()
    return torch_xla.debug.explain()


@pytest.fixture
def page(report, tmp_path):
    """The page's path."""
    report.save_html(tmp_path / "report.html")
    return tmp_path / "report.html"


def run_chromium(page, tmp_path, *flags: str) -> str:
    """What it prints; the test fails where the page writes an error to the console."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: tools/setup.sh installs chromium-headless-shell")
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={tmp_path}/profile",
        "--window-size=1280,1600",
        *flags,
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def test_the_page_needs_nothing_else(page):
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=|@import|url\((?!#)|fetch\(|XMLHttpRequest", text)
    assert "https:" not in text and set(re.findall(r"http:[^\"]*", text)) <= {"http://www.w3.org/2000/svg"}  # a name
    assert "</script><b>" not in text


def test_the_data_of_the_page(page, report):
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1]
    )
    assert [each["cause"] for each in data["findings"]] == [each.cause for each in report.findings]
    assert len(data["steps"]) == len(report.steps)
    assert all(event["start"] >= 0 and event["ms"] >= 0 for step in data["steps"] for event in step["events"])


def test_the_page_in_a_browser(page, report, tmp_path):
    dom = run_chromium(page, tmp_path, "--dump-dom")
    text = html.unescape(re.sub(r"<[^>]+>", " ", dom.split("<body>")[1].split('id="data"')[0]))
    assert {found.cause for found in report.findings} == {"changing batch", "item in the loop"}
    for found in report.findings:
        assert found.cause in text and found.what in text and f"Do: {found.advice}." in text
        assert f"test_explain_page.py:{found.line.rsplit(':', 1)[1]}" in text
    assert "assert loss.item() < 100" in text and '"</script><b>"' in text
    assert "f32[7,8], before f32[16,8]" in text
    drawn = set(re.findall(r'data-phase="(\w+)"', dom))
    assert {"trace", "sync", "compile", "run", "upload", "download"} <= drawn
    titles = [html.unescape(title) for title in re.findall(r"<title>(.*?)</title>", dom.split("<svg")[1], re.DOTALL)]
    assert any(title.startswith("recording") and "operations" in title for title in titles)
    assert any(
        title.startswith("read") and "test_explain_page.py" in title and "loss.item()" in title for title in titles
    )


def test_what_a_notebook_shows(report, tmp_path):
    """The whole page in a frame, whose scripts run, beside a short text for a terminal."""
    frame = tmp_path / "cell.html"
    shown = report._repr_html_()
    source = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert source == report._page() and shown.count("<iframe") == 1 and 'sandbox="allow-scripts"' in shown
    assert html.escape(str(report)) in shown
    assert repr(report) == (
        "<torch_xla.debug.explain(): the last 5 steps of xla:0; mistakes: "
        f"{', '.join(found.cause for found in report.findings)}; print() shows them>"
    )
    # The page reports to the one around it, as the frame's own scripts would be cut off by "allow-scripts" missing.
    told = "<script>parent.postMessage(document.querySelectorAll('[data-phase]').length, '*')</script></body>"
    waits = "<script>onmessage = ({ data }) => { document.title = 'drawn ' + data; }</script>"
    frame.write_text(waits + shown.replace(html.escape("</body>"), html.escape(told)))
    dom = run_chromium(frame, tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert int(re.search(r"<title>drawn (\d+)</title>", dom)[1]) > 10


def test_the_page_of_nothing(tmp_path):
    torch_xla.sync(wait=True)
    torch_xla.debug.forget()
    path = tmp_path / "nothing.html"
    torch_xla.debug.explain().save_html(path)
    assert "No mistakes found." in run_chromium(path, tmp_path, "--dump-dom")


def test_a_picture_of_the_page(page, tmp_path):
    run_chromium(page, tmp_path, f"--screenshot={tmp_path}/page.png")
    from matplotlib import image

    pixels = image.imread(tmp_path / "page.png")
    assert len({tuple(pixel) for pixel in (pixels[::4, ::4].reshape(-1, pixels.shape[-1]) * 255).astype(int)}) > 12


def test_a_folder_that_does_not_exist(report, tmp_path):
    with pytest.raises(FileNotFoundError):
        report.save_html(tmp_path / "none" / "report.html")


def test_pointing_and_clicking(page, tmp_path):
    """What a user does, done by a script at the page's end."""
    script = """
        const point = (phase, type) =>
          document.querySelector(`[data-phase=${phase}]`).dispatchEvent(new PointerEvent(type, { bubbles: true }));
        const seen = [];
        const note = () => seen.push(byId("detail").textContent);
        document.querySelector("[data-steps='0']").click();
        point("compile", "pointerover"), note();
        point("run", "pointerover"), note();
        point("download", "click"), note();
        point("run", "pointerover"), note(); // the click has kept the read
        document.querySelector(".finding button").click();
        const [start, end] = data.steps.find((step) => step.number === data.findings[0].steps.at(-1)).span;
        seen.push(view[0] < start && end < view[1], (view[1] - view[0]) / (end - start));
        const told = document.createElement("pre");
        document.body.append(Object.assign(told, { id: "seen", textContent: JSON.stringify(seen) }));
    """
    page.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    dom = run_chromium(page, tmp_path, "--dump-dom")
    compiled, run, read, kept, shows_step, width = json.loads(
        html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom)[1])
    )
    assert compiled.startswith("compile") and run.startswith("run") and kept == read
    assert read.startswith("read · item") and "test_explain_page.py" in read and "loss.item()" in read
    assert shows_step and width < 1.1  # the step's width
