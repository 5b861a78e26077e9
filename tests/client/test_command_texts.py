"""The arguments of commands, and the values that commands compute from answers."""

import numpy as np
import pytest
from rows import rows

import shardcall as sc
from shardcall.v1 import server_info_service_pb2
from shardcall_core.types import server_info
from shardcall_core.types.usage import CallTotals, MeshState, PrincipalUsage, RunningLoop, Usage
from shardcall_core.versions import build_version

pytest.importorskip("typer")

from rich.console import Console  # only with typer
from rich.table import Table

from shardcall.cli import checks, exits, server_checks, status, texts
from shardcall.cli.array_files import ArraySource
from shardcall.cli.output import console, plain
from shardcall.cli.snapshots import Snapshot
from shardcall.cli.top import LiveRates, rates


@rows(
    ("read", "text", "expected"),
    [
        (texts.parse_type, "float64[4096,4096]", sc.Array((4096, 4096), "float64")),
        (texts.parse_type, " bfloat16[ 3 ] ", sc.Array(3, "bfloat16")),
        (texts.parse_type, "int4[]", sc.Array((), "int4")),
        (texts.parse_type, "bool[0,3]", sc.Array((0, 3), "bool")),
        *((texts.parse_type, text, None) for text in ("float64", "x.npy", "a.npz[x]", "float64[-1]")),
        *((texts.parse_spec, text, sc.P("x", None)) for text in ("x,-", "x,None")),
        (texts.parse_spec, "-,x", sc.P(None, "x")),
        *((texts.parse_spec, text, sc.P(("a", "b"), None)) for text in ("(a,b),-", "P(('a', 'b'), None)")),
        *((texts.parse_spec, text, sc.P()) for text in ("P()", "")),
        (texts.parse_spec, "x", sc.P("x")),
        (texts.parse_mesh, "x=4, y=2", sc.Mesh(x=4, y=2)),
        *((texts.parse_value, f"{text}?", f"{text}?") for text in ("3", "(0,1)", "true", "None")),
        *((texts.parse_value, text, value) for text, value in (("3", 3), ("-0.5", -0.5), ("true", True))),
        *((texts.parse_value, text, None) for text in ("None", "none")),
        *((texts.parse_value, text, value) for text, value in (("(0,1)", (0, 1)), ("[1]", [1]))),
    ],
)
def test_texts_are_types_specs_meshes_and_values(read, text, expected):
    assert read(text) == expected
    assert type(read(text)) is type(expected)


@rows("text", ["x;-", "1,2", "x y", "x.y", "__import__('os')", "(x"])
def test_other_texts_are_no_specs(text):
    with pytest.raises(exits.CommandError, match="name the mesh axis") as caught:
        texts.parse_spec(text)
    assert caught.value.status == exits.USAGE
    with pytest.raises(sc.ShardcallError):
        texts.parse_mesh("x=0")


@rows(
    ("status", "errors"),
    [
        (exits.DENIED, [sc.AccessDeniedError]),
        (exits.UNREACHABLE, [sc.MeshRestartedError]),
        (exits.USAGE, [sc.ShardingError, sc.AxisError, sc.KernelNotFoundError]),
        (exits.FAILED, [sc.ArrayLostError, sc.DeadlineExceededError, sc.OutOfDeviceMemoryError]),
    ],
)
def test_statuses(status, errors):
    assert [exits.status_of(error()) for error in errors] == [status] * len(errors)


def test_rates_are_those_since_the_snapshot_before():
    before = {"diff": CallTotals(10, 1, 1.0, 100), "sum": CallTotals(50, 0, 0.0, 0)}
    now = {"diff": CallTotals(30, 2, 2.0, 300), "sum": CallTotals(4, 0, 0.0, 0), "sin": CallTotals(1, 0, 0.5, 8)}
    shown = rates(before, now, 2.0)
    assert list(shown) == ["diff", "sum", "sin"]  # the busiest first
    diff = shown["diff"]
    assert (diff.calls_per_s, diff.failed_per_s, diff.busy, diff.bytes_per_s) == (10, 0.5, 0.5, 100)
    assert shown["sum"].calls_per_s == 2  # of another process, which began at 0


def test_status_has_a_line_for_every_loop_and_counts_arrays_with_names_apart_from_those_under_leases():
    loops = RunningLoop("a1", "alice", 1200, 8800, 3.4), RunningLoop("b2", "bob", 5, 2**62 - 5, 0.2)
    usage = Usage(*[0] * 5, leases=1, arrays=13, array_bytes=1 << 20, descriptors=9, named_arrays=8, loops=loops)
    rows = status.held_rows(Snapshot(usage, None))
    assert rows["loops"] == "1,200 of 10,000 iterations in 3 s, alice\n5 iterations in 0 s, bob"
    assert rows["arrays"] == "5 under 1 leases, 8 with names, 1 MiB on the devices"
    assert "loops" not in status.held_rows(Snapshot(Usage(*[0] * 9), None))


class Busy:
    """Snapshots of a server with many kernels and callers, which then ends."""

    def __init__(self) -> None:
        kernels = {f"{name}_of_many_words_that_are_long": CallTotals(1, 0, 0.0, 8) for name in range(30)}
        principals = {f"principal-{name}@some-team.example.org": CallTotals(1, 0, 0.0, 8) for name in range(9)}
        held = {name: PrincipalUsage(arrays=1234, array_bytes=1 << 20, calls=3) for name in principals}
        usage = Usage(*[0] * 9, mesh=MeshState(restarts=2), kernels=kernels, principals=principals, by_principal=held)
        self.left = [Snapshot(usage, None)] * 2

    def take(self) -> Snapshot:
        if not self.left:
            raise sc.ServerUnavailableError("no server answers at localhost:1")
        return self.left.pop()


def lines_of(renderable, **size):
    """Returns what a terminal of a size shows."""
    terminal = Console(**size)
    with terminal.capture() as shown:
        terminal.print(renderable)
    return shown.get().splitlines()


@rows("lines", [24, 40])
def test_top_fits_into_its_terminal_and_outlives_the_server(lines):
    watch = LiveRates(Busy(), "localhost:1")
    printed = lines_of(watch.picture(lines), width=80, height=lines)
    assert len(printed) == lines
    assert max(map(len, printed)) <= 80
    assert sum("principal-" in line for line in printed) == 4
    assert "no server answers" in str(watch.picture(lines))


def test_top_shows_the_arrays_of_callers_in_a_wide_terminal():
    printed = lines_of(LiveRates(Busy(), "localhost:1").picture(columns=110), width=110)
    assert max(map(len, printed)) <= 110
    rows_of_callers = [line for line in printed if "principal-" in line]
    assert len(rows_of_callers) == 9
    assert [text.strip() for text in rows_of_callers[0].split("│")[7:10]] == ["3", "1,234", "1 MiB"]


def test_a_check_that_raises_has_failed_with_its_advice():
    def broken():
        yield checks.ok("first", "fine")
        raise sc.ShardingError("too small; make it larger")

    failed = checks.Check("second", "failed", "too small", "make it larger")
    assert checks.guarded("second", broken) == [checks.Check("first", "ok", "fine"), failed]


def test_json_has_no_values_that_json_does_not_have():
    values = {"type": sc.Array(3, "int8"), "mesh": sc.Mesh(x=2), "nan": float("nan"), "a": np.array([1.5, np.inf])}
    mesh = {"axes": {"x": 2}, "device_ids": None}
    assert plain(values) == {"type": "int8[3]", "mesh": mesh, "nan": None, "a": [1.5, None]}
    assert plain((1 + 2j, np.bool_(True), sc.P("x", ("a", "b")))) == [[1.0, 2.0], True, ["x", ["a", "b"]]]


@rows(
    ("version", "state", "says"),
    [
        (build_version(), "ok", "like this client"),
        ("0.0.9+0123456789", "warning", "calls that need something newer are refused by name"),
        (f"{sc.__version__}+0123456789", "warning", "different builds of one version"),
        ("10.0.0+0123456789", "ok", "a newer server serves all calls of an older client"),
    ],
)
def test_doctor_says_whether_a_server_of_another_version_matters(version, state, says):
    mesh = {"axes": [{"name": "x", "size": 1}]}
    other = server_info_service_pb2.GetServerInfoResponse(versions={"shardcall": version}, default_mesh=mesh)
    (check,) = server_checks.versions(server_info.from_proto(other))
    assert (check.state, check.fix) == (state, "install the same version on both sides" * (state == "warning"))
    assert says in check.detail
    assert version in check.detail
    assert build_version() in check.detail or version == build_version()


@pytest.mark.parametrize("columns", ["80", "20"])
def test_a_pipe_breaks_no_line(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    name, spec = "n" * 64, "P('x', None) " * 20
    table = Table()
    for column in ("name", "spec"):
        table.add_column(column, overflow="fold")
    table.add_row(name, spec)
    console().print(table)
    console(stderr=True).print(f"{name} {spec}")
    output, errors = capsys.readouterr()
    (row,) = (line for line in output.splitlines() if name in line)
    assert spec.strip() in row
    assert (len(errors.splitlines()), len(output.splitlines())) == (1, 5)


def test_of_several_arrays_of_a_file_one_is_named_where_one_is_needed(tmp_path):
    path = f"{tmp_path}/two.npz"
    np.savez(path, a=np.arange(3), b=np.arange(4))
    assert [len(x) for x in ArraySource().read(path, 2)] == [3, 4]
    assert [len(x) for x in ArraySource().read(f"{path}[b]", 1)] == [4]
    with pytest.raises(exits.CommandError, match=r"holds 2 arrays, and one is needed; name it: .*two\.npz\[NAME\]"):
        ArraySource().read(path, 1)
