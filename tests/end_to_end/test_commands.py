"""The commands against a real server: what they print for programs, their exit statuses, and pipes."""

import errno
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from end_to_end.messages import token_of
from rows import rows

from shardcall.cli import array_files
from shardcall.cli.app import run
from shardcall.cli.exits import DENIED, FAILED, UNREACHABLE, USAGE
from shardcall_core.access.session import user_addresses
from shardcall_core.wire import token_file

X = np.arange(4099.0 * 3).reshape(4099, 3) ** 1.5  # rows that 8 devices do not divide
ALONG = ("--mesh", "x=8", "--spec", "x,-")


@pytest.fixture
def shardcall(server, capsysbinary, monkeypatch):
    """Runs a command in this process; returns its exit status and what it wrote."""
    monkeypatch.setenv("SHARDCALL_ADDRESS", server.address)

    def command(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            run([str(argument) for argument in arguments])
        sys.stdout.flush()
        said = capsysbinary.readouterr()
        return ended.value.code or 0, said.out, said.err.decode()

    return command


@pytest.fixture
def answer(shardcall):
    """Runs a command that succeeds; returns the JSON that it printed."""

    def of(*arguments, **options):
        status, out, err = shardcall(*arguments, "--json", **options)
        assert (status, err) == (0, "")
        return json.loads(out)

    return of


@pytest.fixture
def refused(shardcall):
    """Runs a command that fails; returns its exit status and all that it said, which has to have a part."""

    def of(says, *arguments, **options):
        status, _, err = shardcall(*arguments, **options)
        assert says in err
        return status, err

    return of


@pytest.fixture
def array_of(shardcall):
    """Runs a command that writes an array to standard output; returns the array."""

    def of(*arguments, **options):
        status, out, _ = shardcall(*arguments, **options)
        assert status == 0
        return np.load(io.BytesIO(out))

    return of


@pytest.fixture
def x_file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    return path


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_info_and_kernels_describe_the_server(answer, server):
    printed = answer("info", server.address)
    assert (printed["address"], len(printed["devices"]), printed["ready"]) == (server.address, 8, True)
    assert printed["default_mesh"]["axes"] == {"x": 8}
    listed = answer("kernels", "--search", "numpy.diff")
    assert [kernel["name"] for kernel in listed] == ["diff"]
    assert answer("kernels", "diff")["strategies"][1]["name"] == "halo"
    assert answer("health") == {"address": server.address, "host": None, "ready": True}


def test_plan_is_a_dry_run_of_types(answer):
    planned = answer("plan", "diff", "float64[4096,4096]", "axis=0", "prepend=0.0", *ALONG)
    assert planned["strategy"] == "halo"
    assert planned["collectives"] == [{"opcode": "collective-permute", "count": 1, "bytes_per_device": 32768}]
    assert planned["memory"]["output_bytes"] == 4096 * 4096 * 8 // 8
    assert "512:1024" in planned["pictures"]["operand 0"]
    assert planned["results"][0]["type"] == "float64[4096,4096]"


def test_plan_prints_the_picture(shardcall, x_file):
    status, out, _ = shardcall("plan", "matmul", "float32[64,8]", "rhs=float32[8,64]", "lhs_spec=x,-", "--mesh", "x=8")
    assert status == 0
    assert "float32[64,64]" in out.decode()
    assert "┌" in out.decode()
    assert "┌" not in shardcall("plan", "sum", x_file, "--no-picture")[1].decode()


def test_call_reads_and_writes_files(answer, x_file, tmp_path):
    out = tmp_path / "d.npy"
    printed = answer("call", "diff", x_file, "axis=0", "--out", out, *ALONG)
    assert printed["results"] == [{"type": "float64[4098,3]", "values": None}]
    assert np.array_equal(np.load(out), np.diff(X, axis=0))
    np.savez(tmp_path / "two.npz", a=X, b=2 * X)
    assert answer("call", "sum", f"{tmp_path}/two.npz[b]", "axis=(0,1)")["results"][0]["type"] == "float64[]"
    assert answer("call", "maximum", tmp_path / "two.npz", "-o", out)["file"] == str(out)
    assert np.array_equal(np.load(out), 2 * X)


@pytest.mark.parametrize("value", [np.float64(2.5), np.empty((0, 3)), np.array([1, np.nan, np.inf])])
def test_call_reads_and_writes_pipes(array_of, value):
    assert np.array_equal(array_of("call", "multiply", "-", 2, stdin=npy(value)), value * 2, equal_nan=True)


def test_a_result_that_npy_files_do_not_hold_is_written_with_a_warning(shardcall, refused):
    status, out, err = shardcall("call", "astype", "-", "dtype=bfloat16", stdin=npy(np.arange(3.0)))
    assert (status, np.load(io.BytesIO(out)).dtype.str) == (0, "|V2")
    assert ".view(ml_dtypes.bfloat16)" in err
    assert refused("type is not known", "call", "sqrt", "-", stdin=out)[0] == USAGE


@rows("name", ["commands/x.npy", "commands/x.zarr"])
def test_an_array_is_saved_in_a_file_of_the_server_and_loaded(name, shardcall, answer, x_file):
    handle = answer("put", x_file)["handle"]
    saved = answer("save", handle, name)
    assert saved == answer("files", name)[0]
    assert name.encode() in shardcall("files")[1]
    loaded = answer("load", name, "--mesh", "x=2", "--spec", "-,x")
    assert (loaded["type"], loaded["spec"]) == (saved["type"], [None, "x"])
    code, output, error = shardcall("files", "--remove", name, "--remove", "none.npy")
    assert (code, output.strip(), "no files none.npy" in error) == (1, b"removed 1", True)
    assert name.encode() not in shardcall("files")[1]
    assert "without --remove" in shardcall("files", "runs/", "--remove", name)[2]
    answer("rm", handle, loaded["handle"])


def test_arrays_outlive_the_command_that_put_them(shardcall, answer, array_of, refused, x_file):
    handle = answer("put", x_file, "--spec", "x,-", "--keep-for", 600)["handle"]
    assert handle in [entry["handle"] for entry in answer("ls")]
    assert answer("plan", "sum", f"@{handle}", "axis=0")["operands"][0]["spec"] == ["x", None]
    total = answer("call", "sum", f"@{handle[:8]}", "axis=0", "keepdims=False")
    assert np.allclose(total["results"][0]["values"], X.sum(axis=0))
    assert np.array_equal(array_of("get", handle[:8]), X)
    assert answer("rm", handle[:8]) == {"removed": 1}
    assert refused("see: shardcall ls", "get", handle[:8])[0] == FAILED
    assert shardcall("rm", handle)[0] == FAILED


def test_commands_take_the_names_of_arrays(shardcall, answer, array_of, refused, x_file):
    put = answer("put", x_file, "--name", "u", "--spec", "x,-")
    assert put["name"] == "u"
    (entry,) = (entry for entry in answer("ls") if entry["name"])
    assert (entry["handle"], entry["name"], entry["expires_in_s"], entry["guests"]) == (put["handle"], "u", None, [])
    assert np.array_equal(array_of("get", "u"), X)
    assert np.allclose(answer("call", "sum", "@u", "axis=0", "keepdims=False")["results"][0]["values"], X.sum(axis=0))
    assert answer("plan", "sum", "@u", "axis=0")["operands"][0]["spec"] == ["x", None]
    status, err = refused("'u' stands for another array", "put", x_file, "--name", "u")
    assert status == USAGE
    assert "delete that array by shardcall rm u, or replace it by --replace" in err
    status, _, err = shardcall("rm", "u", "nope")
    assert (status, err.startswith("shardcall: no array has the name 'nope'")) == (FAILED, True)
    assert err.endswith("; nothing was removed\n")
    brief = answer("put", x_file, "--name", "u", "--replace", "--keep-for", 600)
    (entry,) = (entry for entry in answer("ls") if entry["name"])
    assert entry["handle"] == brief["handle"]
    assert 0 < entry["expires_in_s"] <= 600
    assert answer("rm", "u") == {"removed": 1}
    for command in (("rm", "u"), ("get", "u"), ("call", "sum", "@u")):
        assert refused("no array has the name 'u'", *command)[0] == FAILED


def test_a_name_wins_of_digits_and_all_digits_of_a_handle_of_a_name(array_of, answer, x_file, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDCALL_TOKEN", token_of("owner"))  # whose arrays are all removed
    put = answer("put", x_file)
    digits, handle = put["handle"][:8], put["handle"]
    ones = tmp_path / "ones.npy"
    np.save(ones, np.ones(3))
    for name, expected in ((digits, np.ones(3)), (handle, X)):
        answer("put", ones, "--name", name)
        np.testing.assert_array_equal(array_of("get", name), expected)
    with pytest.raises(AssertionError):
        answer("get", digits[:3] + "!")
    answer("rm", digits, handle)
    assert answer("rm", "--all")["removed"] >= 1
    assert answer("ls") == []


def test_principals_share_names_by_commands(shardcall, answer, array_of, refused, x_file, monkeypatch):
    answer("put", x_file, "--name", "v")
    assert shardcall("share", "v", "--with", "guest", "--write") == (0, b"", "")
    (entry,) = (entry for entry in answer("ls") if entry["name"])
    assert entry["guests"] == [{"principal": "guest", "write": True}]
    assert "guest" in shardcall("ls")[1].decode()
    shared = f"{token_file.user_name()}/v"
    with monkeypatch.context() as patch:
        patch.setenv("SHARDCALL_TOKEN", token_of("guest"))
        (entry,) = answer("ls")
        assert (entry["name"], entry["owner"]) == (shared, token_file.user_name())
        np.testing.assert_array_equal(array_of("get", shared), X)
        total = answer("call", "sum", f"@{shared}", "axis=0", "keepdims=False")
        assert np.allclose(total["results"][0]["values"], X.sum(axis=0))
        assert refused("another principal", "rm", shared)[0] == FAILED
        assert answer("rm", "--all") == {"removed": 0}
        assert shardcall("share", shared, "--with", "owner")[0] == USAGE
    assert shardcall("unshare", "v") == (0, b"", "")
    with monkeypatch.context() as patch:
        patch.setenv("SHARDCALL_TOKEN", token_of("guest"))
        assert answer("ls") == []
        assert shardcall("get", shared)[0] == FAILED
    assert answer("rm", "v") == {"removed": 1}


def test_a_kept_result_is_an_operand_of_the_next_command(array_of, answer, x_file):
    kept = answer("call", "square", x_file, *ALONG, "--keep")
    assert kept["type"] == "float64[4099,3]"
    np.testing.assert_allclose(array_of("call", "sqrt", f"@{kept['handle'][:12]}"), X)
    assert answer("rm", kept["handle"]) == {"removed": 1}


def test_a_call_on_two_meshes_is_explained_by_options(shardcall, answer, refused, x_file):
    here, there = answer("put", x_file, "--mesh", "x=8"), answer("put", x_file, "--mesh", "x=4")
    remedy = "set the mesh of the call, --mesh …, or move one of them with shardcall call reshard @HANDLE"
    assert refused(remedy, "call", "add", f"@{here['handle']}", f"@{there['handle']}")[0] == USAGE
    shardcall("rm", here["handle"], there["handle"])


def test_a_closed_pipe_ends_a_command_quietly(monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as ended:
            run(["config", "show"])
    assert not ended.value.code
    assert capfd.readouterr().err == ""


def test_a_failed_write_keeps_the_file(refused, tmp_path, monkeypatch):
    out = tmp_path / "out.npy"
    np.save(out, X)

    def save(file, array):
        file.write(b"part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(array_files.np, "save", save)
    assert refused("cannot be written: No space left on device", "call", "sqrt", 4, "-o", out)[0] == FAILED
    assert list(tmp_path.iterdir()) == [out]
    assert np.array_equal(np.load(out), X)


def test_top_counts_kernels_and_callers(answer):
    answer("call", "cbrt", 27.0)
    printed = answer("top", "--interval", 0.1)
    assert printed["kernels"]["cbrt"]["calls"] >= 1
    assert printed["principals"][token_file.user_name()]["calls"] >= 1
    assert printed["usage"]["mesh"]["ready"] is True


def test_top_redraws_a_terminal_and_stops_at_ctrl_c(server):
    in_terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    command = [sys.executable, "-m", "shardcall.cli", "top", server.address, "--interval", "0.1"]
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", in_terminal, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "TERM": "xterm"},
    ) as top:
        assert top.stdin is not None
        assert top.stdout is not None
        while b"device time" not in shown:
            shown += (more := top.stdout.read(4096))
            assert more, shown
        top.stdin.write(b"\x03")
        while more := top.stdout.read(4096):
            shown += more
    assert top.returncode == 130
    assert (b"Traceback" in shown, shown.endswith(b"\x1b[?1049l")) == (False, True)  # the screen of before


def test_bench_has_its_floor_beside_it(answer):
    printed = answer("bench", "--mib", 1, "--rounds", 1, "--calls", 3, "--threads", 2)
    names = [item["name"] for item in printed["measurements"]]
    assert [name.startswith("floor") for name in names] == [True, False, False, True, False, False]
    assert all((item["ratio"] is None) == item["name"].startswith("floor") for item in printed["measurements"])


def test_trace_records_a_command(shardcall, tmp_path):
    status, out, _ = shardcall("trace", "--json", tmp_path / "traces", "--", sys.executable, "-c", "print('recorded')")
    assert status == 0
    printed = json.loads(out)
    assert printed["command_status"] == 0
    assert printed["trace"].endswith(".trace.json.gz")


def test_doctor_finds_nothing_wrong(answer, server):
    printed = answer("doctor", server.address)
    states = {check["name"]: check["state"] for check in printed["checks"]}
    assert printed["healthy"] is True
    assert {"results": "ok", "versions": "ok", "devices": "ok", "shared memory": "ok"}.items() <= states.items()


def test_doctor_says_what_is_wrong(shardcall, monkeypatch):
    status, out, _ = shardcall("doctor", "localhost:1", "--json")
    (port,) = [check for check in json.loads(out)["checks"] if check["name"].startswith("port")]
    assert (status, port["state"]) == (FAILED, "failed")
    assert "shardcall serve" in port["fix"]
    monkeypatch.setenv("SHARDCALL_TOKEN", "wrong-but-long-enough")
    status, out, _ = shardcall("doctor", "--json")
    (wrong,) = [check for check in json.loads(out)["checks"] if check["state"] == "failed"]
    assert (status, "not valid on this server" in wrong["detail"]) == (FAILED, True)


def test_cache_why_explains_a_miss(answer):
    first = answer("cache", "why", "diff", "float32[11]")
    assert first["outcome"] in ("compiled now", "loaded from disk")
    assert "float32[11]" in first["key"].values()
    assert answer("cache", "why", "diff", "float32[11]")["outcome"] == "cached"


def test_cache_lists_and_removes_programs(answer, shardcall, tmp_path):
    folder = tmp_path / "cache"
    (folder / "programs").mkdir(parents=True)
    program, foreign = folder / "programs" / f"{'0' * 64}.program", folder / "programs" / "notes"
    program.write_bytes(b"content")
    foreign.write_bytes(b"")
    assert answer("cache", "ls", "--cache-dir", folder)["bytes"] == 7
    assert answer("cache", "rm", "--cache-dir", folder, "--older-than", 1)["removed"] == 0
    assert answer("cache", "rm", "--cache-dir", folder, "--all")["removed"] == 1
    assert (program.exists(), foreign.exists()) == (False, True)
    assert shardcall("cache", "rm", "--cache-dir", folder)[0] == USAGE


def test_config_says_where_every_value_comes_from(answer, refused, tmp_path, monkeypatch):
    file = tmp_path / "server.toml"
    file.write_text("port = 9000\nmax_rank_typo = 1\n")
    assert refused("max_rank_typo", "config", "show", "--config", file)[0] == USAGE
    file.write_text("port = 9000\n")
    monkeypatch.setenv("SHARDCALL_TOKEN", "secret-that-is-long")
    shown = answer("config", "show", "--config", file, "--devices", 3)
    sources = {(entry["of"], entry["name"]): (entry["value"], entry["source"]) for entry in shown}
    assert sources["server", "devices"] == (3, "flag")
    assert sources["server", "port"] == (9000, "file")
    assert sources["server", "strategy"] == ("fixed", "environment")
    assert sources["server", "hosts_port"] == (8471, "default")
    assert sources["client", "address"][1] == "environment"
    assert "secret" not in json.dumps(shown)


def test_token_prints_the_addresses_of_the_servers_that_run(server, shardcall, monkeypatch):
    port = server.address.rpartition(":")[2]
    assert [address for address in user_addresses() if address.endswith(f":{port}")] == [f"localhost:{port}"]
    monkeypatch.setattr("shardcall.cli.token.is_terminal", lambda: True)
    status, out, _ = shardcall("token")
    assert status == 0
    assert f'shardcall.connect("localhost:{port}", token="' in out.decode()
    assert "export SHARDCALL_ADDRESS=localhost:" in out.decode()


WRONG = [
    (["plan", "diff", "float65[8]"], "dtype is 'float65', which names no element type"),
    (["plan", "diff", "no_such_file"], "is no file, and no operand; give a type such as float64[4096,4096]"),
    (["plan", "diff", "float64[8]", "axis=4"], "axis"),
    (["plan", "dif", "float64[8]"], "did you mean 'diff'?"),
    (["plan", "xyzzy", "float64[8]"], "client.kernels(), or shardcall kernels, lists all"),
    (["plan", "diff", "float64[8]", "--mesh", "8"], "give sizes by name, such as x=8"),
    (["plan", "diff", "float64[8]", "--mesh", "x=2,x=4"], "names an axis twice"),
    (["plan", "diff", "float64[8]", "--spec", "x;-"], "name the mesh axis of each array axis"),
    (["plan", "diff", "float64[8]", "n=1", "n=2"], "n= is given twice"),
    (["call", "diff", "missing.npy"], "cannot be read (No such file or directory)"),
    (["call", "add", "-", "-"], "- is given twice"),
    (["call", "sum", "@z z"], "is neither a name nor a handle"),
    (["put", "-", "--replace"], "--replace is of a name"),
    (["put", "missing.npy"], "cannot be read"),
    (["rm"], "give names or handles, or --all"),
    (["info", "localhost:1", "--address", "localhost:2"], "the address is given twice"),
    (["info", "nonsense"], "is no address of a server"),
    (["trace", "traces", "--", "/no/such/program"], "cannot be started"),
]


@pytest.mark.parametrize(
    ("arguments", "says"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_arguments_are_one_clear_line(shardcall, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    status, out, err = shardcall(*arguments, stdin=npy(X))
    assert (status, out) == (USAGE, b"")
    assert err.startswith("shardcall: ")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize("what", [["info"], ["kernels"], ["plan", "diff", "float64[8]"], ["top"], ["ls"], ["bench"]])
def test_an_unreachable_server_and_a_wrong_token_have_specific_statuses(refused, monkeypatch, what):
    status, err = refused("no server answers", *what, "--address", "localhost:1")
    assert (status, err.count("\n")) == (UNREACHABLE, 1)
    monkeypatch.setenv("SHARDCALL_TOKEN", "wrong-but-long-enough")
    status, err = refused("", *what)
    assert (status, err.count("\n")) == (DENIED, 1)


def test_the_address_of_the_environment_is_named_if_it_is_wrong(refused, monkeypatch):
    monkeypatch.setenv("SHARDCALL_ADDRESS", "http://localhost")
    assert refused("environment variable SHARDCALL_ADDRESS", "info")[0] == USAGE
