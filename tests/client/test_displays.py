"""Displays of objects in notebooks and terminals: bounded, escaped, without scripts, and without a round trip."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client.test_plan import MESSAGE, MISS
from rows import rows

import shardcall as sc
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays import plan
from shardcall._src.device_arrays.array_version import ArrayVersion, ServerIdentity
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.rpc.deadline import deadline_after
from shardcall._src.services.profile import Profile
from shardcall_core.markup import page
from shardcall_core.placements.placement import ArrayPlacement, MeshPlacement
from shardcall_core.types import kernels
from shardcall_core.types.server_info import Device, Limits, ServerInfo, Versions
from shardcall_core.types.usage import Usage

HOSTILE = '</style><script>alert("&")</script>\x00'
MESH = sc.Mesh(x=4, y=2, device_ids=range(8))
BY_BOTH = sc.P("x", "y")
TIMING = sc.Timing(receive=0.001, execute=0.002, total=0.004, round_trip=0.01)
EMPTY = {"br", "col", "hr", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """Reads a display as a browser does: its tags, its texts, and whether each tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in EMPTY:
            self._open.append(tag)
        assert not any(name.startswith("on") or "javascript:" in (value or "") for name, value in attrs)
        assert not any(name in ("src", "href") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def make_plan(reason: str = "the rule") -> plan.Plan:
    return replace(plan.from_proto(MESSAGE, MISS), strategy_reason=reason)


def make_result(monkeypatch: pytest.MonkeyPatch, *arrays: Any) -> Result:
    monkeypatch.setattr(Result, "plan", make_plan())
    return Result(arrays=arrays, timing=TIMING, cache_hit=True, explanation="", _plan=b"")


class Unreachable:
    """A client of which nothing may be asked."""

    _shows_values = False

    def _expected_placement(self, call: object, index: int) -> None:
        """Returns that of a result of a call that nobody has placed yet."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a display asks the client for {name}")


class Pending:
    is_done, is_failed = False, False

    def begin(self) -> None:
        raise AssertionError("a display sends recorded calls")

    wait = begin


def make_array(spec: sc.P = BY_BOTH, shape: tuple[int, ...] = (16, 6), pending: Any = None) -> RemoteArray:
    owner, array_type = Unreachable(), sc.Array(shape, "float64")
    where = None if pending else MeshPlacement(ArrayPlacement(array_type, spec, shape, shape), MESH, 768)
    return RemoteArray(ArrayVersion(owner, ServerIdentity("here", 1), b"h", array_type, where, pending))  # type: ignore[arg-type]


def make_kernel(name: str = "diff", text: str = "Differences.") -> kernels.KernelDescription:
    operands = (kernels.OperandDescription("x", text, optional=False),)
    parameters = (kernels.ParameterDescription("n", text, 1, required=False),)
    strategies = (kernels.StrategyDescription("halo", text),)
    return kernels.KernelDescription(name, 1, text, operands, parameters, strategies, "always")


def make_info(device_kind: str = "cpu") -> ServerInfo:
    limits = Limits(*[1] * 12)
    return ServerInfo((Device(0, device_kind, 0),), "cpu", sc.Mesh(x=1), limits, Versions("0", "1", "2"), 7)


DISPLAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "mesh": (lambda: MESH, "Mesh(x=4, y=2)"),
    "mesh of many": (lambda: sc.Mesh(x=64, y=128), "7,168 more devices"),
    "timing": (lambda: TIMING, "transport"),
    "timing of nothing": (sc.Timing, "0 ms"),
    "plan": (make_plan, "collective-permute"),
    "array": (make_array, "on Mesh(x=4, y=2)"),
    "array of rank 3": (lambda: make_array(sc.P("x"), (8, 2, 2)), "0:2"),
    "scalar": (lambda: make_array(sc.P(), ()), "float64[]"),
    "pending array": (lambda: make_array(pending=Pending()), "pending"),
    "kernel": (make_kernel, "the same bits on every mesh"),
    "kernels": (lambda: sc.KernelTable([make_kernel(f"k{i}") for i in range(600)]), "100 more"),
    "server": (make_info, "1 × cpu"),
    "usage": (lambda: Usage(*[1] * 9), "open files"),
}


@rows(("make", "shown"), DISPLAYS.values())
def test_a_display_is_closed_and_bounded_and_a_repr_is_for_people(make: Callable[[], Any], shown: str) -> None:
    html = make()._repr_html_()
    parsed = Page(html)
    assert shown in parsed.text
    assert "script" not in parsed.tags
    assert "prefers-color-scheme:dark" in html
    assert "var(--jp-" in html
    assert len(html) < 300_000
    assert not re.search(r"^\w+\(\w+=[^)]*\w+\(", repr(make())), "it is a dump of fields"


def test_a_result_shows_its_blocks_its_times_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = Page(make_result(monkeypatch, np.arange(4096.0))._repr_html_())
    assert "svg" in parsed.tags
    for text in ("diff → float64[4096]", ".array", "execute", "20.0%", "4.095e+03"):
        assert text in parsed.text
    assert "…" not in parsed.text
    assert ".arrays" in Page(make_result(monkeypatch, np.zeros(1), np.zeros(2))._repr_html_()).text


@rows("array", [np.zeros((2,) * 20), np.zeros(0), np.array(1.0), make_array()])
def test_a_result_of_any_shape_has_a_short_display(array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(make_result(monkeypatch, array)._repr_html_()) < 20_000


def test_texts_of_a_server_are_escaped() -> None:
    for one in (make_plan(HOSTILE), make_kernel(HOSTILE, HOSTILE), make_info(HOSTILE)):
        html = one._repr_html_()
        parsed = Page(html)
        assert "script" not in parsed.tags
        assert 'alert("&")' in parsed.text
        assert "\x00" not in html
    assert len(Page(page.page("x" * 10**6)).text) < 3000


def test_a_profile_lists_its_files(tmp_path: Path) -> None:
    transport: Any = None
    profile = Profile(transport, tmp_path, 0, lambda: deadline_after(1, 0))
    assert "during a with block" in repr(profile)
    assert "during a with block" in Page(profile._repr_html_()).text
    (tmp_path / "a.xplane.pb").write_bytes(b"12345")
    profile.path = tmp_path
    assert str(tmp_path) in repr(profile)
    assert "5 bytes" in Page(profile._repr_html_()).text
