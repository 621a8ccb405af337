"""Programs that XLA has optimized: their listing and their estimated cycles, from bytes made here."""

from torch_xla.debug._hlo import Module


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3 & 0x7F | 0x80, field >> 4]) + _varint(value)


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _part(field: int, data: bytes) -> bytes:
    return bytes([(field << 3 | 2) & 0x7F | 0x80, (field << 3 | 2) >> 7]) + _varint(len(data)) + data


def _instruction(number: int, name: str, opcode: str, config: str = "", calls: int = 0) -> bytes:
    shape = _part(3, _number(2, 11) + _part(3, bytes([4, 8])) + _part(5, _part(1, bytes([1, 0]))))
    metadata = _part(7, _part(3, b"train.py") + _number(4, 12))
    body = _part(1, name.encode()) + _part(2, opcode.encode()) + shape + metadata + _number(35, number)
    body += _part(43, config.encode()) if config else b""
    return body + (_number(38, calls) if calls else b"")


def test_turns_of_a_loop_that_only_its_condition_tells():
    loop = _instruction(2, "loop", "while", calls=7) + _number(38, 8)
    inside = _instruction(3, "inside", "fusion", '{"estimated_cycles":"7"}')
    most = _instruction(5, "most", "constant") + _part(8, _part(4, _varint(300)))
    test = _instruction(6, "test", "compare") + _number(36, 4) + _number(36, 5) + _part(63, b"LT")
    condition = _part(1, b"cond") + _part(2, most) + _part(2, test) + _number(5, 7) + _number(6, 6)
    body = _part(1, b"body") + _part(2, inside) + _number(5, 8) + _number(6, 3)
    entry = _part(1, b"main") + _part(2, loop) + _number(5, 9) + _number(6, 2)
    parts = b"".join(_part(3, each) for each in (condition, body, entry))
    assert Module(_part(1, b"step") + parts + _number(6, 9), with_config=False).cycles() == 300 * 7


def test_a_listing_of_an_optimized_program():
    once = _instruction(1, "once", "fusion", '{"estimated_cycles":"100"}')
    loop = _instruction(2, "loop", "while", '{"known_trip_count":{"n":"5"}}', calls=8)
    inside = _instruction(3, "inside", "fusion", '{"estimated_cycles":"7"}')
    entry = _part(1, b"main") + _part(2, once) + _part(2, loop) + _number(5, 9) + _number(6, 2)
    body = _part(1, b"body") + _part(2, inside) + _number(5, 8) + _number(6, 3)
    module = Module(_part(1, b"step") + _part(3, body) + _part(3, entry) + _number(6, 9), with_config=False)
    assert module.cycles() == 100 + 5 * 7
    text = module.text()
    assert "HloModule step" in text and "ENTRY %main {" in text
    assert "%once = f32[4,8]{1,0} fusion(), kind=  // 100 cycles, train.py:12" in text
    assert "ROOT %loop = f32[4,8]{1,0} while(), calls=%body  // train.py:12" in text
