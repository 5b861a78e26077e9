"""The gallery: its programs are executed, and a page for each shows its picture, its times and its source."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import shardcall

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples/gallery"
_DEVICES = 8


def _show() -> ModuleType:
    """Returns the module that runs programs of the gallery."""
    if "gallery_show" not in sys.modules:
        spec = importlib.util.spec_from_file_location("gallery_show", FOLDER / "show.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["gallery_show"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["gallery_show"]


def navigation() -> list[Any]:
    """Returns the pages of the gallery, its front first."""
    return ["gallery/index.md", *(f"gallery/{name}.md" for name in _show().NAMES)]


def files(*, execute: bool) -> dict[str, str | bytes]:
    """Returns pages and pictures by their paths below docs/.

    Args:
        execute: whether the programs run; without, there are no pictures and no times.

    Raises:
        RuntimeError: if a result is not that of NumPy.
    """
    programs = {name: _show().load(name) for name in _show().NAMES}
    files: dict[str, str | bytes] = {}
    times = dict.fromkeys(programs, "")
    if execute:
        with shardcall.local(devices=_DEVICES) as client, tempfile.TemporaryDirectory() as folder:
            for name, program in programs.items():
                picture = Path(folder) / f"{name}.png"
                times[name] = _executed(name, program, client, picture)
                files[f"gallery/{name}.png"] = picture.read_bytes()
    for name, program in programs.items():
        files[f"gallery/{name}.md"] = _page(name, program, times[name])
    files["gallery/index.md"] = "\n\n".join(_front(programs, pictures=execute)) + "\n"
    return files


def _executed(name: str, program: Any, client: shardcall.Client, picture: Path) -> str:
    """Runs a program and draws its result; returns a table of the times."""
    compared = _show().compare(program, client, program.SIZE)
    if not compared.difference < program.TOLERANCE:
        raise RuntimeError(f"{name}: the result differs from NumPy's by {compared.difference} of the largest value")
    _show().draw(program, compared.result, picture)
    return (
        "| | time |\n|---|--:|\n"
        f"| on a mesh of {_DEVICES} virtual devices, with the transfers | {compared.mesh_s * 1e3:,.0f} ms |\n"
        f"| in NumPy | {compared.numpy_s * 1e3:,.0f} ms |\n\n"
        f"The results differ by at most {compared.difference:.1g} of the largest value. These are times of the machine "
        "that built this site, where the devices share the processor with NumPy's process: the shortest of "
        f"{_show().ROUNDS} each, after a call that compiled."
    )


def _page(name: str, program: Any, times: str) -> str:
    title, text = _description(program)
    picture = f"![The result of {name}.py: {title}]({name}.png)" if times else ""
    source = (FOLDER / f"{name}.py").read_text()
    run = f"```sh\npython examples/gallery/show.py {name}\n```"
    heading = f"# {title.partition(':')[0]}"
    sentence = title.partition(":")[2].strip()
    parts = [heading, sentence[0].upper() + sentence[1:], text, picture, times, run, f"```python\n{source}```"]
    return "\n\n".join(filter(None, parts)) + "\n"


def _description(program: Any) -> tuple[str, str]:
    """Returns the first line of a program's docstring, and the rest."""
    title, _, text = (program.__doc__ or "").partition("\n\n")
    return title, text


def _front(programs: dict[str, Any], *, pictures: bool) -> Iterator[str]:
    yield "# Gallery"
    yield (
        "Ten programs of at most 60 lines: each runs on the mesh and in NumPy, and is timed and drawn when this site "
        "is built. `python examples/gallery/show.py heat` runs one, on a private server or on one that you name."
    )
    items = []
    for name, program in programs.items():
        title, sentence = _description(program)[0].split(":", 1)
        picture = f"[![The result of {name}.py]({name}.png)]({name}.md)\n\n    " if pictures else ""
        items.append(f"-   {picture}**[{title}]({name}.md)**: {sentence.strip()}")
    yield '<div class="grid cards" markdown>\n\n' + "\n\n".join(items) + "\n\n</div>"
