"""The gallery: every program is short, and has NumPy's result."""

import sys
from pathlib import Path

import pytest
from examples.test_examples import load

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


show = load("gallery/show")


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


@pytest.mark.parametrize(
    ("more", "status", "line"), [(0, 0, "yes the results differ by at most"), (1, 1, "NO  the results")]
)
def test_a_program_as_a_script_says_whether_it_has_numpys_result(server, monkeypatch, capsys, more, status, line):
    monkeypatch.setattr(sys, "argv", ["show.py", "heat", server.address, "--size", "24"])
    heat = show.load("heat")
    heat.STEPS = 5
    in_numpy = heat.in_numpy
    monkeypatch.setattr(heat, "in_numpy", lambda size: in_numpy(size) + more)
    monkeypatch.setattr(show, "load", lambda name: heat)
    assert show.main() == status
    assert line in capsys.readouterr().out
