import itertools
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from client.stream_server import wait_for
from rows import rows

import shardcall
from shardcall._src.display import meters, notebook_bars, watches
from shardcall._src.display.meters import SILENT, Meters
from shardcall._src.display.progress import Progress
from shardcall._src.display.watches import ShownWatch, Watcher

SETUP = """
    import sys, threading
    from shardcall._src.display.meters import Meters, SILENT
    from shardcall._src.display.progress_bars import Bar
    meters = Meters(True, show_after_s=0)
    def wait(): sys.stdin.readline()
"""
SHOW_CURSOR, HIDE_CURSOR, ERASE_LINE = "\x1b[?25h", "\x1b[?25l", "\x1b[2K"


class Terminal:
    """A program whose standard error is a terminal, and what it drew there."""

    def __init__(self, code, **environment):
        mine, theirs = pty.openpty()
        self.drawn = ""
        self._screen = mine
        command = [sys.executable, "-c", textwrap.dedent(SETUP) + textwrap.dedent(code)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": theirs}
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, error_type, error, trace):
        self.process.kill()
        self.process.communicate()
        os.close(self._screen)

    def wait_for(self, text):
        """Reads what is drawn until a text comes; whatever comes before it is kept too."""
        start = len(self.drawn)
        while text not in self.drawn[start:]:
            assert self._read(), f"the program ended without {text!r}; it drew {self.drawn!r}"
        return self.drawn[start:]

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """Waits for the program's end; gives what it drew and what it printed."""
        while self._read():
            pass
        printed, _ = self.process.communicate(timeout=60)
        return self.drawn, printed

    def _read(self):
        try:
            drawn = os.read(self._screen, 65536).decode(errors="replace")
        except OSError:  # the program closed its end
            return ""
        self.drawn += drawn
        return drawn


def test_a_callback_gets_the_end_of_every_phase():
    reports = []
    with Meters(reports.append).start() as meter:
        meter.compile()
        meter.upload(6)
        meter.add(2)
        meter.add(4)
        meter.download(0)
        meter.download(3)
        meter.add(3)
    ends = [(one.phase, one.done_bytes, one.total_bytes) for one in reports]
    assert ends == [("compiling", 0, 0), ("upload", 6, 6), ("download", 3, 3)]
    assert all(one.elapsed_s >= 0 for one in reports)


def test_a_compilation_shows_its_operands_and_the_sizes_before():
    now = Progress("compiling", what="sort", operands="float64[4,2]")
    now = replace(now, earlier_operands=("float64[3,2]",), waiting_calls=2)
    assert notebook_bars.phase_label(now) == "compiling sort of float64[4,2]"
    assert notebook_bars.amounts(now) == "0 s, 2 calls wait, for each size: float64[3,2] before"
    assert notebook_bars.phase_label(replace(now, operands="a" * 99)) == f"compiling sort of {'a' * 39}…"
    assert notebook_bars.amounts(Progress("compiling")) == "0 s"


def test_the_third_size_of_a_kernel_has_advice_once():
    sizes = ["f4[2]", "f4[3]"]
    now = Progress("compiling", what="sort", operands="f4[4]")
    watch = ShownWatch(
        iter([replace(now, earlier_operands=tuple(sizes[:n])) for n in (0, 1, 2, 2)]).__next__, 60.0, advised := set()
    )
    watch.update()
    watch.update()
    advice = r"sort is compiled for each size.*\[2\].*\[3\].*\[4\].*bucket"
    with pytest.warns(shardcall.RecompilationWarning, match=advice):
        watch.update()
    watch.update()  # a warning would be an error
    watch.close()
    assert advised == {"sort"}


def test_a_callback_is_called_no_more_than_ten_times_a_second():
    reports: list[Progress] = []
    began = time.monotonic()
    with Meters(reports.append).start() as meter:
        meter.upload(10**9)
        while len(reports) < 3:
            meter.add(1)
        meter.add(10**9)
    assert len(reports) <= 10 * (time.monotonic() - began) + 1
    done = [one.done_bytes for one in reports]
    assert done == sorted(set(done))
    assert all(later.elapsed_s >= sooner.elapsed_s for sooner, later in itertools.pairwise(reports))


def upload(listener, *chunks, fails_by=None):
    with Meters(listener).start() as meter:
        meter.upload(sum(chunks))
        for chunk in chunks:
            meter.add(chunk)
        if fails_by is not None:
            raise fails_by


def fail(progress):
    raise LookupError("mine")


def test_a_failed_call_is_not_reported_as_complete():
    reports = []
    with pytest.raises(KeyError):
        upload(reports.append, 2, fails_by=KeyError())
    assert [one.phase for one in reports] == ["upload"]
    meter = Meters(reports.append).start()
    meter.compile()
    meter.close(done=False)
    assert len(reports) == 1


def test_the_error_of_a_function_is_warned_of_once_and_silences_it():
    calls = []

    def listen(progress):
        calls.append(progress)
        fail(progress)

    meters = Meters(listen)

    def transfer():
        for _ in range(2):
            with meters.start() as meter, ExitStack() as stack:  # whose frames are not the caller's either
                meter.upload(1)
                stack.callback(meter.add, 1)

    with pytest.warns(RuntimeWarning, match=r"LookupError\('mine'\) and is not called again") as caught:
        transfer()
    assert len(calls) == len(caught) == 1
    assert caught[0].filename == __file__
    meters.latest = lambda request_id, what: Progress("running")
    assert meters.watch() is None


@pytest.mark.filterwarnings("error")
def test_the_error_of_a_function_ends_no_call():
    upload(fail, 1)
    with pytest.raises(KeyError):
        upload(fail, 1, fails_by=KeyError())


def test_no_progress_is_reported_unless_requested():
    assert Meters(False).start() is SILENT
    with SILENT as meter:
        meter.upload(5)
        meter.compile()
        meter.add(5)


@rows("progress", [None, "yes", 1])
def test_other_wishes_are_refused(progress):
    with pytest.raises(shardcall.InvalidParameterError, match="give a function") as caught:
        Meters(progress)
    assert caught.value.field == "progress"


def test_nothing_is_shown_in_a_pipe():
    code = textwrap.dedent(SETUP) + "assert meters.start() is SILENT"
    code += "; assert 'rich' not in sys.modules; assert threading.active_count() == 1"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_a_terminal_shows_a_bar_and_is_left_clean():
    code = """
        with meters.start() as meter:
            meter.upload(64 * 2**20)
            meter.add(2**20); wait()
            meter.add(31 * 2**20); wait()
            meter.compile(); wait()
            meter.download(16 * 2**20)
            meter.add(2**20); wait()
        print("done", threading.active_count())
    """
    with Terminal(code) as terminal:
        assert HIDE_CURSOR in terminal.wait_for("1 MiB of 64 MiB")
        for text in ("32 MiB of 64 MiB", "compiling", "1 MiB of 16 MiB"):
            terminal.go_on()
            terminal.wait_for(text)
        terminal.go_on()
        drawn, printed = terminal.end()
    assert "upload" in drawn
    assert drawn.rpartition(HIDE_CURSOR)[2].count(SHOW_CURSOR) == 1
    assert drawn.endswith(ERASE_LINE)
    assert printed.startswith("done ")


def test_a_narrow_terminal_shows_one_line_and_what_a_full_upload_waits_for():
    code = """
        with meters.start() as meter:
            meter.upload(1023 * 2**20)
            meter.add(1022 * 2**20); wait()
            meter.add(2**20); wait()
            frozen = meter.now().elapsed_s
            assert meter.now().elapsed_s == frozen
            meter.compile()
            assert meter.now().elapsed_s != frozen
    """
    with Terminal(code, COLUMNS="64") as terminal:
        terminal.wait_for("1022 MiB of 1023 MiB")
        terminal.go_on()
        terminal.wait_for("waiting for the mesh")
        terminal.wait_for("1023 MiB of 1023 MiB")
        terminal.go_on()
        drawn, _ = terminal.end()
    assert "\x1b[1A" not in drawn.rpartition("1023 MiB")[0]
    assert terminal.process.returncode == 0


WITHOUT_A_BAR = {
    "a call under a second, and a small transfer, do not load rich": """
        from shardcall._src.display.meters import SHOW_AFTER_S
        with meters.start() as meter:
            meter.upload(2**20)
            assert threading.active_count() == 1
        with Meters(True, show_after_s=SHOW_AFTER_S * 600).start() as meter:
            meter.upload(64 * 2**20)
            meter.add(64 * 2**20)
        assert "rich" not in sys.modules
    """,
    "a bar that comes after its call": """
        bar = Bar(lambda: None)
        bar.hide()
        bar.show()
        bar.hide()
    """,
    "there is no rich": """
        sys.modules["rich"] = None
        Bar(lambda: None).show()
        with meters.start() as meter:
            meter.upload(64 * 2**20)
            meter._timer.join()
    """,
}


@pytest.mark.parametrize("why", WITHOUT_A_BAR)
def test_nothing_is_shown(why):
    with Terminal(WITHOUT_A_BAR[why]) as terminal:
        drawn, _ = terminal.end()
    assert (drawn, terminal.process.returncode) == ("", 0)


def test_ctrl_c_takes_the_bar_away():
    code = """
        try:
            with meters.start() as meter:
                meter.upload(64 * 2**20)
                threading.Event().wait(60)
        except KeyboardInterrupt:
            print("interrupted")
    """
    with Terminal(code) as terminal:
        terminal.wait_for("of 64 MiB")
        terminal.process.send_signal(signal.SIGINT)
        drawn, printed = terminal.end()
    assert printed == "interrupted\n"
    assert drawn.rpartition(HIDE_CURSOR)[2].count(SHOW_CURSOR) == 1
    assert drawn.endswith(ERASE_LINE)


def test_calls_of_several_threads_share_the_terminal():
    code = """
        def call(size, over):
            with meters.start() as meter:
                meter.upload(size * 2**20)
                over.wait(60)
        first, second = threading.Event(), threading.Event()
        threads = [threading.Thread(target=call, args=pair) for pair in ((100, first), (200, second))]
        for thread in threads: thread.start()
        wait(); first.set(); threads[0].join()
        wait(); second.set(); threads[1].join()
    """
    with Terminal(code) as terminal:
        while not ("100 MiB" in (frame := terminal.wait_for("of 200 MiB")) and HIDE_CURSOR in terminal.drawn):
            assert frame
        terminal.go_on()
        terminal.wait_for("of 200 MiB")
        terminal.go_on()
        drawn, _ = terminal.end()
    assert drawn.count(HIDE_CURSOR) == drawn.count(SHOW_CURSOR) == 1
    assert drawn.endswith(ERASE_LINE)
    assert terminal.process.returncode == 0


def test_what_a_program_prints_into_a_file_stays_there():
    code = """
        with meters.start() as meter:
            meter.upload(64 * 2**20); wait()
            print("for the file")
            print("for the terminal", file=sys.stderr)
    """
    with Terminal(code) as terminal:
        terminal.wait_for("of 64 MiB")
        terminal.go_on()
        drawn, printed = terminal.end()
    assert printed == "for the file\n"
    assert "for the terminal" in drawn


def test_a_client_reports_the_bytes_that_it_moves(server):
    reports = []
    x = np.arange(2**19, dtype=np.float64)
    with shardcall.connect(server.address, progress=reports.append) as client:
        client.call("echo", 1.0)
        assert not [one for one in reports if one.phase != "running"]  # that of a call that took long
        client.call("echo", x)
        client.compile("echo", shardcall.Array(2, "float64"))
    ends = [(one.phase, one.done_bytes) for one in reports if one.done_bytes == one.total_bytes]
    assert ends == [("upload", x.nbytes), ("download", x.nbytes), ("compiling", 0)]


@pytest.mark.parametrize("progress", [lambda report: None, True])
def test_a_call_is_watched_while_it_moves_no_bytes(monkeypatch, progress):
    asked, queued = threading.Semaphore(0), Progress("queued", queue_position=2, what="sum")

    def latest(request_id, what):
        assert (request_id, what) == ("1", "sum")
        asked.release()
        return queued

    monkeypatch.setattr(meters, "on_terminal", lambda: True)
    monkeypatch.setattr(meters, "_WATCH_AFTER_S", 0.1)
    watched = Meters(progress)
    watched.latest = latest
    with watched.start("1", "sum") as meter:
        meter.upload(10)
        assert not asked.acquire(timeout=0.3)
        meter.add(10)
        assert asked.acquire(timeout=30)
        if progress is True:
            wait_for(lambda: meter.now() == queued)
    while asked.acquire(timeout=0.3):
        pass
    with watched.start():  # without a request id
        assert not asked.acquire(timeout=0.3)


class Call(threading.Event):
    """A call that a thread watches."""

    refresh = threading.Event.set


def test_the_thread_of_watched_calls_ends_without_them(monkeypatch):
    monkeypatch.setattr(watches, "_IDLE_LOOKS", 0)
    call, watcher = Call(), Watcher(0)
    for _ in range(2):
        call.clear()
        watcher.add(call)
        assert call.wait(30)
        watcher.remove(call)
        wait_for(lambda: not watcher._is_running)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_are_watched_again_after_an_error():
    class FailingCall:
        def refresh(self):
            raise MemoryError

    failing, call, watcher = FailingCall(), Call(), Watcher(0)
    watcher.add(failing)
    wait_for(lambda: not watcher._is_running)
    watcher.remove(failing)
    watcher.add(call)
    assert call.wait(30)
    watcher.remove(call)
