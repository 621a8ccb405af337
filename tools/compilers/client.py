"""A PJRT plugin's compiler, called through the C API by ctypes: for hardware that need not be here.

The engine's own client (src/engine/pjrt) opens devices; this one asks for a topology and compiles for it.
"""

import contextlib
import ctypes
import dataclasses
import re
from collections.abc import Mapping

_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
# Places in the table of entries, which begins behind a head and the version.
_ENTRIES = {
    "Error_Destroy": 0,
    "Error_Message": 1,
    "Plugin_Initialize": 3,
    "Client_Create": 10,
    "Client_Compile": 20,
    "Executable_Destroy": 40,
    "Executable_GetCostAnalysis": 46,
    "Executable_OptimizedProgram": 48,
    "LoadedExecutable_Destroy": 50,
    "LoadedExecutable_GetExecutable": 51,
    "TopologyDescription_Create": 82,
    "Compile": 89,
    "Executable_GetCompiledMemoryStats": 96,
}
_TABLE = 40  # bytes before it


def _arguments(*fields: tuple[str, type]) -> type[ctypes.Structure]:
    """A struct of an entry's arguments: its head, then these fields."""
    head = [("struct_size", _size), ("extensions", _pointer)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": [*head, *fields]})


_Program = _arguments(
    ("code", ctypes.c_char_p), ("code_size", _size), ("format", ctypes.c_char_p), ("format_size", _size)
)


class _Value(ctypes.Union):
    _fields_ = (("text", ctypes.c_char_p), ("number", ctypes.c_float))


_NamedValue = _arguments(
    ("name", ctypes.c_char_p), ("name_size", _size), ("type", ctypes.c_int), ("value", _Value), ("value_size", _size)
)
_MEMORY = ("code", "arguments", "outputs", "aliases", "temporaries")
_MemoryStats = _arguments(
    ("executable", _pointer), *[(name, ctypes.c_int64) for name in _MEMORY], ("others", ctypes.c_int64 * 7)
)
_OptimizedProgram = _arguments(("executable", _pointer), ("program", _pointer))
_CostAnalysis = _arguments(("executable", _pointer), ("num_properties", _size), ("properties", _pointer))
_FLOAT = 3  # the type of a named value
_SORT = b"\x12\x04sort"  # an instruction's opcode in an HloModuleProto: its field 2, of four characters


class RefusedError(Exception):
    """An error of the plugin's."""


def _varint(value: int) -> bytes:
    head, rest = value & 0x7F, value >> 7
    return bytes([head | 0x80]) + _varint(rest) if rest else bytes([head])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


# A CompileOptionsProto: executable_build_options of one replica and one partition, on device 0.
_ASSIGNMENT = _number(1, 1) + _number(2, 1) + _message(3, _message(1, _varint(0)))
_OPTIONS = _message(3, _number(4, 1) + _number(5, 1) + _message(9, _ASSIGNMENT))


@dataclasses.dataclass
class Compiled:
    """What a plugin says of a program. None: it does not say."""

    memory: dict[str, int] | None = None  # bytes of code, arguments, outputs, aliases, temporaries
    flops: float | None = None
    cycles: int | None = None  # the plugin's estimate, the sum over its instructions


class Plugin:
    """A loaded plugin. A fault of its compiler ends the process."""

    def __init__(self, path: str):
        library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        library.GetPjrtApi.restype = _pointer
        self._api = library.GetPjrtApi()
        self._num_entries = (_size.from_address(self._api).value - _TABLE) // ctypes.sizeof(_pointer)
        self.call("Plugin_Initialize", _arguments()())

    def _entry(self, name: str) -> int | None:
        place = _ENTRIES[name]
        at = self._api + _TABLE + place * ctypes.sizeof(_pointer)
        return _pointer.from_address(at).value if place < self._num_entries else None

    def call(self, name: str, arguments: ctypes.Structure) -> None:
        """Calls an entry. Raises RefusedError with the plugin's text."""
        if not (entry := self._entry(name)):
            raise RefusedError(f"the plugin has no {name}")
        arguments.struct_size = ctypes.sizeof(arguments)
        if error := ctypes.CFUNCTYPE(_pointer, _pointer)(entry)(ctypes.addressof(arguments)):
            raise RefusedError(self._take_text(error))

    def _take_text(self, error: int) -> str:
        """The text of an error, which is destroyed."""
        message = _arguments(("error", _pointer), ("text", _pointer), ("text_size", _size))(0, None, error)
        destroy = _arguments(("error", _pointer))(0, None, error)
        for arguments in (message, destroy):
            arguments.struct_size = ctypes.sizeof(arguments)
        function = ctypes.CFUNCTYPE(None, _pointer)
        function(self._entry("Error_Message"))(ctypes.addressof(message))
        text = ctypes.string_at(message.text, message.text_size).decode(errors="replace")
        function(self._entry("Error_Destroy"))(ctypes.addressof(destroy))
        return text

    def topology(self, name: str, options: Mapping[str, str]) -> int:
        """A description of devices that need not be here; it lives as long as the process."""
        values = (_NamedValue * len(options))()
        for value, (key, text) in zip(values, options.items()):
            value.struct_size, value.name, value.name_size = ctypes.sizeof(value), key.encode(), len(key)
            value.value.text, value.value_size = text.encode(), len(text.encode())
        fields = [("name", ctypes.c_char_p), ("name_size", _size), ("options", _pointer), ("num_options", _size)]
        arguments = _arguments(*fields, ("topology", _pointer))()
        arguments.name, arguments.name_size = name.encode(), len(name)
        arguments.options, arguments.num_options = ctypes.addressof(values), len(options)
        self.call("TopologyDescription_Create", arguments)
        return arguments.topology

    def client(self) -> int:
        """A client of the devices that are here; it lives as long as the process."""
        fields = [(name, _pointer) for name in ("options", "num_options", "get", "get_arg", "put", "put_arg")]
        arguments = _arguments(*fields, ("client", _pointer), ("try_get", _pointer), ("try_get_arg", _pointer))()
        self.call("Client_Create", arguments)
        return arguments.client

    def compile_for(self, topology: int, text: str) -> "Executable":
        """Compiles StableHLO's text for a topology."""
        program, options = _program_of(text), ctypes.create_string_buffer(_OPTIONS, len(_OPTIONS))
        fields = [("topology", _pointer), ("program", _pointer), ("options", _pointer), ("options_size", _size)]
        arguments = _arguments(*fields, ("client", _pointer), ("executable", _pointer))()
        arguments.topology, arguments.program = topology, ctypes.addressof(program)
        arguments.options, arguments.options_size = ctypes.addressof(options), len(_OPTIONS)
        self.call("Compile", arguments)
        return Executable(self, arguments.executable)

    def compile_on(self, client: int, text: str) -> "Executable":
        """Compiles StableHLO's text for a client's first device."""
        program, options = _program_of(text), ctypes.create_string_buffer(_OPTIONS, len(_OPTIONS))
        fields = [("client", _pointer), ("program", _pointer), ("options", _pointer), ("options_size", _size)]
        arguments = _arguments(*fields, ("loaded", _pointer))()
        arguments.client, arguments.program = client, ctypes.addressof(program)
        arguments.options, arguments.options_size = ctypes.addressof(options), len(_OPTIONS)
        self.call("Client_Compile", arguments)
        loaded = arguments.loaded
        got = _arguments(("loaded", _pointer), ("executable", _pointer))(0, None, loaded)
        self.call("LoadedExecutable_GetExecutable", got)
        return Executable(self, got.executable, loaded)


def _program_of(text: str) -> ctypes.Structure:
    """The struct of a program. It owns its text."""
    code = text.encode()
    return _Program(ctypes.sizeof(_Program), None, code, len(code), b"mlir", len(b"mlir"))


class Executable:
    """A compiled program. Call destroy() at its end."""

    def __init__(self, plugin: Plugin, handle: int, loaded: int | None = None):
        self._plugin, self._handle, self._loaded = plugin, handle, loaded

    def describe(self) -> Compiled:
        """All that the plugin says of it."""
        parts = {}
        for name, ask in (("memory", self._memory), ("flops", self._flops), ("cycles", self._cycles)):
            with contextlib.suppress(RefusedError):
                parts[name] = ask()
        return Compiled(**parts)

    def _memory(self) -> dict[str, int]:
        stats = _MemoryStats(executable=self._handle)
        self._plugin.call("Executable_GetCompiledMemoryStats", stats)
        return {name: getattr(stats, name) for name in _MEMORY}

    def _flops(self) -> float | None:
        cost = _CostAnalysis(executable=self._handle)
        self._plugin.call("Executable_GetCostAnalysis", cost)
        values = (_NamedValue * cost.num_properties).from_address(cost.properties) if cost.num_properties else ()
        for value in values:
            if value.name[: value.name_size] == b"flops" and value.type == _FLOAT:
                return value.value.number
        return None

    def _cycles(self) -> int | None:
        """The sum of the estimates in the optimized program. None without one, and with a sort, which has none."""
        program = _Program(ctypes.sizeof(_Program))
        arguments = _OptimizedProgram(executable=self._handle, program=ctypes.addressof(program))
        self._plugin.call("Executable_OptimizedProgram", arguments)  # how many bytes there are
        code = ctypes.create_string_buffer(program.code_size)
        program.code = ctypes.cast(code, ctypes.c_char_p)
        self._plugin.call("Executable_OptimizedProgram", arguments)
        found = re.findall(rb'"estimated_cycles":"(\d+)"', code.raw)
        return sum(map(int, found)) if found and _SORT not in code.raw else None

    def destroy(self) -> None:
        """Frees it."""
        one = _arguments(("object", _pointer))
        self._plugin.call("Executable_Destroy", one(object=self._handle))
        if self._loaded:
            self._plugin.call("LoadedExecutable_Destroy", one(object=self._loaded))
