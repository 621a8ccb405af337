"""Each recorded op knows the user's line, and looking it up is cheap."""

import sys
import threading

import pytest
import torch

from torch_xla import _XLAC

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="frames are read on Python 3.11 only")


def here(offset: int = 0) -> int:
    return sys._getframe(1).f_lineno + offset


def test_line_of_the_caller():
    line, text = here(), _XLAC._source_line()
    assert text == f"{__file__}:{line} in {sys._getframe().f_code.co_qualname}"


def test_frames_inside_torch_are_skipped():
    class Model(torch.nn.Module):
        def forward(self, x):
            return _XLAC._source_line(), here()

    text, line = torch.nn.Sequential(Model())(None)
    assert text.endswith(f":{line} in {Model.forward.__qualname__}")

    namespace: dict = {}
    exec(compile("def inner(f):\n    return f()", torch.__file__, "exec"), namespace)
    line, text = here(), namespace["inner"](_XLAC._source_line)
    assert text.startswith(f"{__file__}:{line} in ")


def test_lines_in_loops_generators_and_names_that_are_not_ascii():
    def größe():
        yield _XLAC._source_line()
        yield _XLAC._source_line()

    first, second = größe()
    assert first != second
    assert "größe" in first
    assert len({_XLAC._source_line() for _ in range(100)}) == 1


def test_code_made_again_and_again():
    for line in range(1, 50):
        namespace = {"f": _XLAC._source_line}
        exec(compile("\n" * line + "text = f()", f"<made {line}>", "exec"), namespace)
        assert namespace["text"] == f"<made {line}>:{line + 1} in <module>"


def test_threads_have_their_own_frames():
    texts = []

    def work():
        texts.append(_XLAC._source_line())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts)) == 1
    assert texts[0].endswith("work")


def test_cost():
    best = min(_XLAC._time_source_line(100_000) for _ in range(5))
    assert best < 200  # nanoseconds; 12 on a quiet machine
