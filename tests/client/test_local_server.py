"""`local` around processes that behave well and badly; the real server is met in tests/end_to_end."""

import gc
import importlib.util
import json
import re
import sys
import threading
import tomllib
import weakref
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from rows import rows

import shardcall
from shardcall import local_server
from shardcall._src.local import server_packages
from shardcall._src.local.local_settings import options, refusal
from shardcall.cli.app import run
from shardcall.local_server import ServerProcess, local

pytestmark = pytest.mark.usefixtures("quick_collections")

READY = "print('shardcall ready at {address} (8 cpu devices); connect with: …', flush=True)\n"
WAIT_FOR_STDIN = "import sys\nsys.stdin.read()\n"


def python(code):
    return [sys.executable, "-c", code]


@pytest.fixture
def start():
    started = []

    def start_process(code, **options):
        started.append(ServerProcess(python(code), **options))
        return started[-1]

    yield start_process
    for process in started:
        process.stop()


def test_the_address_is_read_from_the_ready_line(start):
    process = start("print('something else')\n" + READY.format(address="127.0.0.1:1234") + WAIT_FOR_STDIN)
    assert process.wait_for_ready(30) == "127.0.0.1:1234"
    process.stop()
    assert process.process.returncode == 0
    process.stop()


@rows(
    ("reason", "says"),
    [
        ("pip install shardcall[server]", r"\(exit status 1\); it printed.*x\npip install shardcall\[server\]$"),
        ("shardcall: setting port is -1: no", r"^the local server .* \(exit status 1\): setting port is -1: no$"),
    ],
)
def test_the_error_of_a_failed_server_contains_its_output_or_the_sentence_that_says_why(start, capsys, reason, says):
    process = start(f"import sys; print('x' * 10**6, file=sys.stderr); sys.exit({reason!r})")
    with pytest.raises(shardcall.ServerUnavailableError, match=f"(?s){says}"):
        process.wait_for_ready(30)
    assert capsys.readouterr().err == ""


REFUSED = [
    ({"colour_scheme": "blue"}, "'colour_scheme' is no setting .*; shardcall serve --help lists them", TypeError),
    ({"devces": 3}, "'devces' is no setting of the server and no argument of local; did you mean 'devices'", TypeError),
    ({"shared_memry": False}, "'shared_memry' is no setting .*; did you mean 'shared_memory'", TypeError),
    ({"spare_wrker": False}, "'spare_wrker' is no setting .*; did you mean 'spare_worker'", TypeError),
    ({"log_level": True}, "setting log_level is True, and takes a value", ValueError),
    ({"log_level": False}, "setting log_level is False, and takes a value", ValueError),
    ({"spare_worker": 3}, "spare_worker is 3; give True or False", ValueError),
]


@rows(("settings", "said", "error_class"), REFUSED)
def test_a_setting_that_the_command_refuses_is_named_as_python_has_it(capsys, settings, said, error_class):
    with pytest.raises(SystemExit):
        run(["serve", *options(settings)])
    reason = capsys.readouterr().err.removeprefix("shardcall: ").strip()
    refused = refusal(settings, ["devices", "shared_memory"], reason)
    assert isinstance(refused, error_class)
    assert re.match(said, refused.message)
    assert refused.field == next(iter(settings))


@rows(
    ("settings", "said"),
    [({"devces": 3}, REFUSED[1][1]), ({"max_call_bytes": "abc"}, "setting max_call_bytes is 'abc': ")],
)
def test_a_setting_that_the_command_or_the_server_refuses_is_an_error_of_its_caller(settings, said):
    with pytest.raises(shardcall.InvalidParameterError, match=f"^{said}") as caught:
        local(**settings)
    assert caught.value.field == next(iter(settings))


def test_a_silent_server_times_out(start):
    process = start(WAIT_FOR_STDIN)
    with pytest.raises(shardcall.ServerUnavailableError, match=r"not ready within 0.05 s; it printed nothing"):
        process.wait_for_ready(0.05)


LOGGED = {"event": "a kernel could not be loaded", "level": "error", "kernel": "own", "exception": "Traceback: x\ny"}


def test_the_log_of_a_server_that_is_ready_goes_to_its_callers_standard_error(start, capsys):
    say = f"import sys\nprint({json.dumps(LOGGED)!r}, file=sys.stderr, flush=True)\n"
    process = start(say + READY.format(address="a:1") + "print('E0000 of a library', file=sys.stderr)\n" + say)
    process.wait_for_ready(30)
    process.stop()
    output = "shardcall server: error: a kernel could not be loaded kernel=own\nTraceback: x\ny\n"
    assert capsys.readouterr().err == f"{output}E0000 of a library\n{output}"


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_standard_error_that_takes_nothing_does_not_hold_up_the_server(start, monkeypatch, is_broken):
    flood, goes_on = "import sys\nsys.stderr.write('line\\n' * 100_000)\n", threading.Event()
    monkeypatch.setattr(sys, "stderr", object() if is_broken else SimpleNamespace(write=lambda text: goes_on.wait(60)))
    process = start(flood + READY.format(address="a:1") + flood)
    process.wait_for_ready(30)
    assert process.process.wait(60) == 0
    goes_on.set()


def test_output_after_the_ready_line_is_drained(start):
    flood = "import sys\nfor f in sys.stdout, sys.stderr: f.write('line\\n' * 100_000); f.flush()\n"
    process = start(READY.format(address="a:1") + flood + WAIT_FOR_STDIN)
    process.wait_for_ready(30)
    process.stop()
    assert process.process.returncode == 0


def test_a_server_that_does_not_stop_is_killed(start):
    process = start(READY.format(address="a:1") + "import threading\nthreading.Event().wait()\n", stop_timeout_s=0.05)
    process.wait_for_ready(30)
    process.stop()
    assert process.process.returncode not in (0, None)


@pytest.fixture
def commands(server, monkeypatch):
    """Replaces the server process by one that announces the fake server; returns the commands started."""
    started = []

    class Stub(ServerProcess):
        def __init__(self, command, environment):
            self.command, self.environment = command, environment
            started.append(self)
            super().__init__(python(READY.format(address=server.address) + WAIT_FOR_STDIN))

    monkeypatch.setattr(local_server, "ServerProcess", Stub)
    return started


def test_a_private_server_logs_warnings_by_default(commands, monkeypatch):
    monkeypatch.delenv("SHARDCALL_LOG_LEVEL", raising=False)
    local().close()
    assert commands[0].command[-2:] == ["--log-level", "warning"]
    monkeypatch.setenv("SHARDCALL_LOG_LEVEL", "debug")
    local().close()
    assert "--log-level" not in commands[1].command


def test_settings_become_options(commands):
    with local(devices=4, log_level="error", tune_allocator=False, quiet=True, limit=3) as client:
        assert client.call("echo", 1.0).array == 1.0
    python, *command = commands[0].command
    settings = "--no-spare-worker --warm-up-s 0 --log-level error --no-tune-allocator --quiet --limit 3"
    assert python == sys.executable
    assert command == f"-m shardcall.cli serve --port 0 --devices 4 --exit-with-stdin {settings}".split()
    assert commands[0].process.returncode == 0


def test_the_server_gets_a_token_that_others_do_not_see_and_its_client_shows_it(commands, server):
    tokens = set()
    for _ in range(2):
        with local() as client:
            client.call("echo", 1.0)
        ((name, token),) = commands[-1].environment.items()
        assert name == "SHARDCALL_TOKEN"
        assert not any(token in word for word in commands[-1].command)
        assert server.metadata[-1]["authorization"] == f"Bearer {token}"
        tokens.add(token)
    assert len(tokens) == 2


def test_the_server_ends_with_its_client(commands):
    client = local()
    assert commands[0].process.poll() is None
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert commands[0].process.returncode == 0


def test_the_server_ends_if_the_connection_fails(commands, server, abort):
    server.info = lambda request, context: context.abort(grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(shardcall.ShardcallError, match=r"broken"):
        local()
    assert commands[0].process.returncode == 0


@rows("devices", [0, -1, 2.0, "8", True])
def test_devices_are_counted(devices):
    with pytest.raises(shardcall.InvalidParameterError, match=r"devices is .*1 or more"):
        local(devices)


def test_the_packages_are_those_of_the_extras():
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {re.split(r"[<>=!\[]", requirement)[0] for requirement in (*extras["cli"], *extras["server"])}
    assert set(server_packages.MODULES) == declared - {"shardcall"}


def test_local_names_all_missing_packages_at_once(monkeypatch):
    find, missing = importlib.util.find_spec, ("jax", "structlog", "typer")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    says = r"typer, jax, structlog are missing; pip install 'shardcall\[server\]'"
    with pytest.raises(shardcall.ServerUnavailableError, match=says):
        shardcall.local(devices=2)


def test_local_needs_linux(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert "needs Linux, and this is darwin" in server_packages.server_refusal("shardcall.local")
