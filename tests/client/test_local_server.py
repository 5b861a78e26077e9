"""`local` around processes that behave well and badly; the real server is met in tests/end_to_end."""

import gc
import subprocess
import sys
import weakref

import pytest

import shardcall
from shardcall import local_server
from shardcall.local_server import ServerProcess, local

READY = "print('shardcall ready at {address} (8 cpu devices); connect with: …', flush=True)\n"
UNTIL_STDIN_ENDS = "import sys\nsys.stdin.read()\n"


def python(code):
    return [sys.executable, "-c", code]


@pytest.fixture
def start():
    started = []

    def start_process(code):
        started.append(ServerProcess(python(code)))
        return started[-1]

    yield start_process
    for process in started:
        process.stop()


def test_the_address_is_read_from_the_ready_line(start):
    process = start("print('something else')\n" + READY.format(address="127.0.0.1:1234") + UNTIL_STDIN_ENDS)
    assert process.wait_until_ready(30) == "127.0.0.1:1234"
    process.stop()
    assert process._process.returncode == 0
    process.stop()


def test_a_server_that_fails_tells_what_it_printed(start):
    process = start("import sys; print('x' * 10**6, file=sys.stderr); sys.exit('pip install shardcall[server]')")
    with pytest.raises(shardcall.ServerUnavailableError, match=r"\(exit status 1\); it printed") as caught:
        process.wait_until_ready(30)
    assert str(caught.value).endswith("pip install shardcall[server]")


def test_a_server_that_says_why_it_ends_is_quoted_in_one_sentence(start):
    process = start("import sys; print('a log line', file=sys.stderr); sys.exit('shardcall: setting port is -1: no')")
    with pytest.raises(shardcall.ServerUnavailableError) as caught:
        process.wait_until_ready(30)
    assert str(caught.value) == "the local server ended before it was ready (exit status 1): setting port is -1: no"


def test_a_setting_that_there_is_not_is_named():
    with pytest.raises(
        shardcall.ServerUnavailableError, match=r"\(exit status 2\): No such option: --colour-scheme.*\)$"
    ):
        local(colour_scheme="blue")


def test_a_server_that_says_nothing_is_given_up(start):
    process = start(UNTIL_STDIN_ENDS)
    with pytest.raises(shardcall.ServerUnavailableError, match=r"not ready within 0.05 s; it printed nothing"):
        process.wait_until_ready(0.05)


def test_output_after_the_ready_line_is_drained(start):
    flood = "import sys\nfor f in sys.stdout, sys.stderr: f.write('line\\n' * 100_000); f.flush()\n"
    process = start(READY.format(address="a:1") + flood + UNTIL_STDIN_ENDS)
    process.wait_until_ready(30)
    process.stop()
    assert process._process.returncode == 0


def test_a_server_that_does_not_stop_is_killed(start, monkeypatch):
    monkeypatch.setattr(local_server, "_STOP_TIMEOUT_S", 0.05)
    process = start(READY.format(address="a:1") + "import threading\nthreading.Event().wait()\n")
    process.wait_until_ready(30)
    process.stop()
    assert process._process.returncode not in (0, None)


@pytest.fixture
def commands(server, monkeypatch):
    """Puts a process in the place of the server that tells of the fake one; returns the commands started."""
    started = []

    class Stub(ServerProcess):
        def __init__(self, command, environment):
            self.command, self.environment = command, environment
            started.append(self)
            super().__init__(python(READY.format(address=server.address) + UNTIL_STDIN_ENDS))

    monkeypatch.setattr(local_server, "ServerProcess", Stub)
    return started


def test_settings_become_options(commands):
    with local(devices=4, log_level="error", tune_allocator=False, quiet=True, limit=3) as client:
        assert client.call("echo", 1.0).array == 1.0
    assert commands[0].command == [
        *(sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", "4", "--exit-with-stdin"),
        *("--no-spare-worker", "--warm-s", "0"),
        *("--log-level", "error", "--no-tune-allocator", "--quiet", "--limit", "3"),
    ]
    assert commands[0]._process.returncode == 0


def test_the_server_is_given_a_token_that_others_do_not_see_and_its_client_shows_it(commands, server):
    tokens = set()
    for _ in range(2):
        with local() as client:
            client.call("echo", 1.0)
        (token,) = commands[-1].environment.values()
        assert list(commands[-1].environment) == ["SHARDCALL_TOKEN"]
        assert not any(token in word for word in commands[-1].command)
        assert server.metadata[-1]["authorization"] == f"Bearer {token}"
        tokens.add(token)
    assert len(tokens) == 2


def test_the_server_ends_with_its_client(commands):
    client = local()
    assert commands[0]._process.poll() is None
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert commands[0]._process.returncode == 0


def test_the_server_ends_if_the_connection_fails(commands, server, abort):
    server.info = lambda request, context: context.abort(shardcall.transport.grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(shardcall.ShardcallError, match=r"broken"):
        local()
    assert commands[0]._process.returncode == 0


@pytest.mark.parametrize("devices", [0, -1, 2.0, "8", True])
def test_devices_are_counted(devices):
    with pytest.raises(shardcall.InvalidParameterError, match=r"devices is .*1 or more"):
        local(devices)


def test_the_server_ends_with_its_owner(server, tmp_path):
    code = READY.format(address=server.address) + UNTIL_STDIN_ENDS + "open(sys.argv[1], 'w').close()\n"
    owner = f"""
import sys
from shardcall import local_server
class Stub(local_server.ServerProcess):
    def __init__(self, command, environment):
        super().__init__([sys.executable, "-c", {code!r}, {str(tmp_path / "ended")!r}])
local_server.ServerProcess = Stub
client = local_server.local()
"""
    ended = subprocess.run(python(owner), capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    assert (tmp_path / "ended").exists()
