"""The environment variables of the package: `python -m torch_xla.env` prints them all, with their present values."""

from . import _payloads, _XLAC


def _describe(row: dict) -> str:
    """A few lines about a variable, and one more if its text is not understood."""
    name, value = row["name"], row["value"]
    value = "(not shown)" if value and name == _payloads.SECRET else value
    lines = [
        name if value is None else f"{name}={value}",
        f"    {row['purpose']}",
        f"    {row['accepts']}; default: {row['default'] or 'none'}",
        f"    read by {row['readers']}",
    ]
    return "\n".join(lines + [f"    ERROR: {row['problem']}"] * bool(row["problem"]))


def main() -> None:
    """Prints the table. A text that is not understood is shown with its error."""
    print("A variable that is set has its text behind it. A switch is 1, true, yes or on, or 0, false, no or off.\n")
    print("\n\n".join(_describe(row) for row in _XLAC._env_variables()))
    by_reason: dict[str, list[str]] = {}
    for name, why in _XLAC._env_ignored().items():
        by_reason.setdefault(why, []).append(name)
    print("\nNothing reads these, which programs of the original may set:")
    print("\n".join(f"    {why}:\n        {', '.join(names)}" for why, names in by_reason.items()))


if __name__ == "__main__":
    main()
