"""What tools/check_*.py find, each rule against code that breaks it; the times of test files."""

import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_includes
import check_names
import check_sizes
import check_words

FAMILIES = re.compile(r"\b(index_ops)\(\)")
BODY = "  x();\n" * 50


@pytest.mark.parametrize(
    "code",
    [
        'if (name == "aten::mm") {',
        'const Op& op = get_op("aten::mm"); return name == "aten::add";',
        'm.impl("aten::mm", choose("aten::add"));',
        '    {"aten::mm", 3},',
        "if (op->name == other) {",
        "std::string name = node.op->name;\n\nif (name == other) {",
        "const char* name{row.name};\nreturn known.find(name) != known.end();",
        "if (node.op == &get_op(x)) {",
        "for (const Op& op : index_ops()) {",
        "if (prim < Prim::kSelect) {",
    ],
)
def test_code_that_asks_for_names(code):
    assert list(check_names.problems_of(code, FAMILIES))


@pytest.mark.parametrize(
    "code",
    [
        'm.impl("aten::mm", TORCH_FN(mm));',
        'dispatcher.findSchemaOrThrow(\n    "aten::mm", "")',
        'const Op& op = get_op("aten::mm");',
        '    {"aten::mm", write_mm},',
        "std::string name = node.op->name;\nsize_t dot = name.find('.');\nout << name;",
        '// as "aten::mm"',
    ],
)
def test_code_that_may_name_operations(code):
    assert not list(check_names.problems_of(code, FAMILIES))


@pytest.mark.parametrize(
    "code",
    [
        f"void f() {{\n{BODY}}}\n",
        f"void f() {{\n{BODY}#if A\n  y();\n#endif\n}}\n",
        f"auto f = [] {{\n{BODY}}};\n",
        f"int f(int a) {{\n  run([&](int x) {{\n{BODY}  }});\n}}\n",
        f"A::A(int a)\n    : b_{{a}},\n      c_{{a}} {{\n{BODY}}}\n",
        "#define A \\\n" + "  x(); \\\n" * 50 + "  y()\n",
    ],
)
def test_functions_that_are_too_long(code):
    assert max(last - first + 1 for first, last in check_sizes.cpp_functions(code)) > check_sizes.FUNCTION_LINES


@pytest.mark.parametrize(
    "code",
    [
        f"class A : public B {{\n{BODY}}};\n",
        f"constexpr int kTable[] = {{\n{BODY}}};\n",
        "void f() {\n" + '  x(\'{\', "}{", R"({)");  // {\n' * 48 + "}\n",
        "void f() {\n  x();\n}\n" * 40,
    ],
)
def test_what_is_no_long_function(code):
    assert all(last - first < check_sizes.FUNCTION_LINES for first, last in check_sizes.cpp_functions(code))


def test_a_crowded_folder():
    files = [Path("src/a") / f"{i}.h" for i in range(check_sizes.FOLDER_FILES)]
    assert not list(check_sizes.crowded([*files, Path("src/a/b/c.h")]))
    assert list(check_sizes.crowded([*files, Path("src/a/c.h")])) == ["src/a: 41 files, more than 40"]


@pytest.mark.parametrize(
    ("file", "header", "is_allowed"),
    [
        ("src/python/device.cpp", "engine/cpu/library/products.h", False),
        ("src/cpp/load.cpp", "engine/cpu/threads/team.h", False),
        ("src/runtime/queue.cpp", "engine/pjrt/client.h", False),
        ("src/runtime/queue.cpp", "engine/engine.h", True),
        ("src/engine/choose.cpp", "engine/pjrt/pjrt_engine.h", True),
        ("tests/cpp/host_test.cpp", "engine/cpu/host.h", True),
        ("src/engine/engine.h", "runtime/executor.h", False),
    ],
)
def test_who_may_include_a_header(file, header, is_allowed):
    assert (check_includes.include_problem(file, header) is None) == is_allowed


def test_words_that_make_readers_stumble():
    text = "A program is compiled\nanew. What is\ntold\nhere is told once; it is Likewise a tale retold, and told."
    assert [line for line, _ in check_words.problems_of(text)] == [2, 2, 4, 4]
    text = "  // Whoever comes first is\n  // told, and pushes\n  // it aside.\n  // It reads what it has written.\n"
    problems = list(check_words.problems_of(text))
    assert [line for line, _ in problems] == [1, 1, 2]
    assert problems[1][1].startswith('"is told": write')


def test_times_of_files_are_kept(tmp_path):
    spec = importlib.util.spec_from_file_location("tests_conftest", Path(__file__).resolve().parents[1] / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    times = conftest.FileTimes(tmp_path / "new" / "python.txt")
    for test, when, seconds in [("a.py::x", "setup", 1.0), ("a.py::x", "call", 2.5), ("b.py::y", "call", 4.0)]:
        times.pytest_runtest_logreport(SimpleNamespace(nodeid=test, when=when, duration=seconds))
    times.pytest_sessionfinish()
    lines = [line.split() for line in (tmp_path / "new" / "python.txt").read_text().splitlines()]
    assert lines == [
        ["7.5", "s", "2", "tests", "python:", "all"],
        ["4.0", "s", "1", "tests", "python:", "b.py"],
        ["3.5", "s", "1", "tests", "python:", "a.py"],
    ]
