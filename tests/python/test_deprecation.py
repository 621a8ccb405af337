"""Old names warn once and do what the new ones do."""

import sys
import types

from torch_xla.experimental.deprecation import deprecated, mark_deprecated, register_deprecated

HERE = sys.modules[__name__]


def new_function(x: int, *, more: int = 0) -> int:
    return x + more


def messages(caplog, call) -> list[str]:
    caplog.clear()
    assert call(2, more=3) == call(5) == 5
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    return caplog.messages


def test_a_function_of_an_old_name(caplog):
    says = f"{__name__}.old is deprecated. Use {__name__}.new_function instead."
    assert messages(caplog, deprecated(HERE, new_function, "old")) == [says]
    assert messages(caplog, deprecated(HERE, new_function, "old", "It goes soon.")) == [f"{says} It goes soon."]
    assert deprecated(HERE, new_function).__name__ == "new_function"


def test_a_function_that_is_replaced(caplog):
    @mark_deprecated(new_function, extra_msg="Really.")
    def old_function(x):
        raise AssertionError

    says = f"{__name__}.old_function is deprecated. Use {__name__}.new_function instead. Really."
    assert messages(caplog, old_function) == [says]


def test_a_module_that_had_a_function(caplog):
    module = types.ModuleType("old_place")
    register_deprecated(module, new_function)
    says = f"old_place.new_function is deprecated. Use {__name__}.new_function instead."
    assert messages(caplog, module.new_function) == [says]
