"""The code blocks of the documentation, how each kind of block is checked, and how the Python of a page is run."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

import shardcall as sc
from shardcall import aio
from shardcall.cli.app import make_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "sh", "text", "json", "toml", "go", "javascript", "rust"}
_MARKER = re.compile(r"<!-- (not run|not compared): (.+) -->")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACEHOLDERS = {"HOST:PORT": "localhost:8470", "NAME": "name"}
_OTHER_PROGRAMS = {"cd", "eval", "export", "prometheus", "source"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: the path of the page.
        line: the line of its first fence.
        language: the language that the fence names.
        text: what is between the fences.
        excuse: why the block is not run or not compared, by the comment above it; empty for a block that is.
        follows: the number of characters between this block and the one before it, without white space.
    """

    page: Path
    line: int
    language: str
    text: str
    excuse: str
    follows: int

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Returns the blocks of a page in the order of the page."""
    text = page.read_text()
    blocks: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        between = text[end : match.start()]
        marker = _MARKER.search(between.rstrip().rpartition("\n")[2])
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(page, line, match[1], match[2], marker[2] if marker else "", len(between.strip())))
        end = match.end()
    return blocks


def output_of(blocks: list[Block], index: int) -> Block | None:
    """Returns the block with the output of a block, which directly follows it; None if there is none."""
    following = blocks[index + 1] if index + 1 < len(blocks) else None
    return following if following and following.language == "text" and not following.follows else None


def matches(output: str, expected: str) -> bool:
    """Returns whether an output is the expected one, in which `…` stands for any text."""
    pattern = ".*?".join(re.escape(part) for part in expected.rstrip().split("…"))
    lines = "\n".join(line.rstrip() for line in output.rstrip().splitlines())
    return re.fullmatch(pattern, lines, re.DOTALL) is not None


def commands_of(text: str) -> Iterator[list[str]]:
    """Yields the commands of a shell block as lists of words, without comments, variables and redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(_with_names(line), posix=True, punctuation_chars="|&<>")
        vars(lexer)["whitespace_split"] = True  # words as in a shell; the name is no name of ours
        command: list[str] = []
        for part in lexer:
            if part in {"|", "&&"}:
                yield command
                command = []
            elif part in {"<", ">"}:
                next(lexer)
            elif command or not re.fullmatch(r"[A-Z_]+=.*", part):
                command.append(part)
        if command:
            yield command


def check_command(command: list[str]) -> None:
    """Checks that a command of a shell block exists and accepts its arguments.

    Raises:
        AssertionError: if it does not.
    """
    program, arguments = command[0], command[1:]
    if program in {"shardcall", ".venv/bin/shardcall"}:
        check_shardcall(arguments)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert arguments[0] in targets, command
    elif program == "pip":
        extras = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
        declared = (ROOT / "pyproject.toml").read_text()
        assert all(f"\n{extra} = [" in declared for of_one in extras for extra in of_one.split(",")), command
    elif program in {"python", ".venv/bin/python"}:
        check_python(arguments)
    elif program == "docker":
        check_docker(arguments)
    else:
        assert program in _OTHER_PROGRAMS or command[:2] == ["git", "clone"], command


def check_python(arguments: list[str]) -> None:
    """Checks that the program which `python` runs exists, or that the code after `-c` is Python."""
    if arguments[0] == "-c":
        compile(arguments[1], "<documentation>", "exec")
    else:
        assert (ROOT / arguments[0]).is_file(), arguments


def check_docker(arguments: list[str]) -> None:
    """Checks that the services which `docker compose` is asked for exist."""
    if arguments[0] == "compose":
        services = re.findall(r"^  ([\w-]+):$", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
        named = [word for word in arguments[2:] if not word.startswith("-")]
        assert not named or named[0] in services, arguments


def check_shardcall(arguments: list[str]) -> None:
    """Checks that the `shardcall` command accepts arguments, by its own parser."""
    command: Any = typer.main.get_command(make_app())
    context, name, rest = None, "shardcall", arguments
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not hasattr(command, "resolve_command") or not (rest := [*context._protected_args, *context.args]):
            return
        name, command, rest = command.resolve_command(context, rest)


def _with_names(command: str) -> str:
    for placeholder, value in _PLACEHOLDERS.items():
        command = re.sub(rf"(?<![\w=]){placeholder}\b", value, command)
    return command.replace("<this repository>", "repository")


@contextlib.contextmanager
def clients_of(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaces `local` and `connect` by clients of a server, in a folder of the test's own, until the block ends."""
    with contextlib.ExitStack() as stack:

        def opener(connect: Callable[..., Any]) -> Callable[..., Any]:
            def open_client(*_: object, devices: int = 8, array_dir: str = "", **options: Any) -> Any:
                client = connect(address, **options)
                if isinstance(client, sc.Client):
                    stack.callback(client.close)
                return client

            return open_client

        for module, connect in ((sc, sc.connect), (aio, aio.connect)):
            monkeypatch.setattr(module, "local", opener(connect), raising=False)
            monkeypatch.setattr(module, "connect", opener(connect), raising=False)
        monkeypatch.chdir(folder)
        yield


def run_python_of(page: Path, *replaced: tuple[str, str]) -> None:
    """Runs the blocks of Python of a page, and compares what each prints with what the page shows.

    Args:
        page: the page.
        *replaced: texts of the blocks, each with the one to run instead.

    Raises:
        AssertionError: if a block prints something else.
    """
    blocks = blocks_of(page)
    names: dict[str, Any] = {"__name__": page.stem}
    for i, block in enumerate(blocks):
        if block.language != "python" or block.excuse:
            continue
        text = block.text
        for old, new in replaced:
            text = text.replace(old, new)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + text, str(page), "exec"), names)  # on the lines of the page
        expected = output_of(blocks, i)
        if expected and not expected.excuse:
            assert matches(printed.getvalue(), expected.text), f"{block} printed:\n{printed.getvalue()}"
