"""The methods of clients, from the table of functions: writes those of client/shardcall/methods/kernel_methods.py.

.venv/bin/python tests/project/client_methods.py
"""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from shardcall_core.functions.function import REQUIRED, Function
from shardcall_core.functions.signature import Method
from shardcall_core.functions.table import FUNCTIONS

PATH = Path(__file__).resolve().parents[2] / "client/shardcall/methods/kernel_methods.py"

OPTIONS: Mapping[tuple[str, ...], str] = {
    (): "Options",
    ("spec",): "ArrayOptions",
    ("spec", "y_spec"): "BinaryOptions",
    ("spec", "x_spec", "y_spec"): "WhereOptions",
    ("spec", "min_spec", "max_spec"): "ClipOptions",
    ("lhs_spec", "rhs_spec"): "ProductOptions",
}
"""The class of a method's other keywords, by those of its operands' specs."""


def source() -> str:
    """Returns the source of the module: its head as it is, and the methods."""
    head = PATH.read_text().partition("\n    @kernel_method\n")[0]
    methods = [method_source(function, function.method) for function in FUNCTIONS.values() if function.method]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PATH), "-"]
    text = "\n".join([head, *methods])
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def method_source(function: Function, method: Method) -> str:
    """Returns the source of a method."""
    options = OPTIONS[tuple(spec for spec in function.in_specs if spec)]
    names = method.arguments.split(", ")
    arguments = ["self", *(argument(function, name) for name in names), f"**options: Unpack[{options}]"]
    passed = [*operands(function, names), *(f"{name}={name}" for name in function.defaults), "options=options"]
    lines = [
        "@kernel_method",
        *["@seeded"] * ({"seed", "shape"} <= set(names)),
        f"def {function.name}({', '.join(arguments)}) -> Outcome:",
        *(f"    {line}".rstrip() for line in documentation(function, method, names, options)),
        f'    return self._named("{function.name}", {", ".join(passed)})',
    ]
    return textwrap.indent("\n".join(lines), "    ") + "\n"


def operands(function: Function, names: list[str]) -> Iterator[str]:
    """Yields the operands as the kernel takes them."""
    for operand in function.operands:
        yield f"*{operand.name}" if operand.repeated else operand.name


def argument(function: Function, name: str) -> str:
    """Returns an argument of a signature."""
    for operand in function.operands:
        if operand.name == name.removeprefix("*"):
            if operand.repeated:
                return f"{name}: {'OperandLike' if name.startswith('*') else 'Sequence[OperandLike]'}"
            return f"{name}: OperandLike | None = None" if operand.optional else f"{name}: OperandLike"
    for parameter in function.parameters:
        if parameter.name == name:
            default = "" if parameter.default is REQUIRED else f" = {parameter.default!r}"
            return f"{name}: {parameter.type}{default}"
    return name  # a star alone


def documentation(function: Function, method: Method, names: list[str], options: str) -> Iterator[str]:
    """Yields the lines of a docstring."""
    meanings = {item.name: item.documentation for item in (*function.operands, *function.parameters)}
    yield from wrapped(f'"""Returns {lowered(function.summary)}')
    if method.notes:
        yield ""
        yield from wrapped(method.notes)
    yield from ("", "Args:")
    for name in names:
        if name != "*":
            yield from wrapped(f"    {name.removeprefix('*')}: {meanings[name.removeprefix('*')]}")
    yield f"    options: see `{options}`."
    yield from ("", "Example:", f"    >>> client.{function.name}({function.example})")
    if method.errors:
        yield from ("", "Raises:")
        for error in method.errors:
            yield from wrapped(f"    {error}")
    yield '"""'


def wrapped(text: str) -> list[str]:
    """Returns the lines of a sentence, with the names of other libraries as code."""
    text = re.sub(r"(?<!`)\b((?:numpy|scipy|jax)\.[\w.]*\w)", r"``\1``", text)
    indent = re.match(" *", text)[0]  # type: ignore[index]
    return textwrap.wrap(text, 112, subsequent_indent=indent and indent * 2, break_long_words=False)


def lowered(sentence: str) -> str:
    """Returns a sentence that goes on after another word."""
    return sentence[0].lower() + sentence[1:]


if __name__ == "__main__":
    PATH.write_text(source())
