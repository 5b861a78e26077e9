"""The gallery: every program is short, and has NumPy's result."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "examples/gallery"
SMALL_SIZES = {
    "black_scholes": 30,
    "collective_matmul": 24,
    "fft_filter": 61,
    "heat": 30,
    "k_means": 200,
    "mandelbrot": 24,
    "n_body": 30,
    "network": 40,
    "shallow_water": 24,
    "waves": 61,
}
LONGEST = 60


def load_show() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery_show", GALLERY / "show.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


show = load_show()


def test_the_gallery_has_ten_short_programs():
    assert sorted(SMALL_SIZES) == show.NAMES
    lengths = {name: len((GALLERY / f"{name}.py").read_text().splitlines()) for name in show.NAMES}
    assert [name for name, length in lengths.items() if length > LONGEST] == []


def test_every_program_has_a_title_and_a_description():
    for name in show.NAMES:
        title, _, text = show.load(name).__doc__.partition("\n\n")
        assert ": " in title, name
        assert title.endswith("."), name
        assert text, name


@pytest.mark.parametrize("name", SMALL_SIZES)
def test_a_program_has_numpys_result(name, client):
    program = show.load(name)
    program.STEPS = 5
    compared = show.compare(program, client, SMALL_SIZES[name], rounds=1)
    assert compared.difference < program.TOLERANCE
    assert compared.mesh_s > 0


def test_a_program_runs_as_a_script(server, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["show.py", "heat", server.address, "--size", "24"])
    heat = show.load("heat")
    heat.STEPS = 5
    monkeypatch.setattr(show, "load", lambda name: heat)
    assert show.main() == 0
    assert "yes the results differ by at most" in capsys.readouterr().out


def test_a_program_with_another_result_fails(server, monkeypatch, capsys):
    heat = show.load("heat")
    heat.STEPS = 5
    heat.in_numpy = lambda size: heat.start(size) + 1
    monkeypatch.setattr(show, "load", lambda name: heat)
    monkeypatch.setattr(sys, "argv", ["show.py", "heat", server.address, "--size", "24"])
    assert show.main() == 1
    assert "NO  the results differ" in capsys.readouterr().out
