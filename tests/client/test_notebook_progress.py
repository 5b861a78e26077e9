"""Progress bars in the output of a notebook's cell, by what IPython itself offers."""

import queue
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rows import rows

from shardcall._src.display.meters import SILENT, Meters
from shardcall._src.display.progress_bars import Bar


class Publisher:
    """Takes outputs of a cell, as IPython's kernel does."""

    def __init__(self) -> None:
        self.outputs: queue.Queue[dict[str, Any]] = queue.Queue()

    def publish(self, data: dict[str, str], metadata: dict[str, Any], *, transient: Any, update: bool) -> None:
        self.outputs.put({"data": data, "id": transient["display_id"], "update": update})

    def wait_for(self, text: str) -> dict[str, Any]:
        """Returns the first output from now on that has a text."""
        while True:
            output = self.outputs.get(timeout=60)
            if text in output["data"]["text/plain"]:
                return output


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Publisher:
    publisher = Publisher()
    shell = SimpleNamespace(kernel=object(), display_pub=publisher)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    return publisher


def test_a_notebook_shows_a_bar_in_one_output_which_is_empty_afterwards(publisher: Publisher) -> None:
    with Meters(True, show_after_s=0).start() as meter:
        meter.upload(64 * 2**20)
        first = publisher.wait_for("upload 0 bytes of 64 MiB")
        meter.add(16 * 2**20)
        second = publisher.wait_for("16 MiB of 64 MiB")
        assert "width:25.0%" in second["data"]["text/html"]
        meter.add(48 * 2**20)
        publisher.wait_for("waiting for the mesh")
        meter.compile()
        publisher.wait_for("compiling")
    last = publisher.wait_for("")
    while last["data"]["text/plain"]:
        last = publisher.outputs.get(timeout=60)
    assert last["data"] == {"text/plain": "", "text/html": ""}
    assert (first["update"], second["update"], last["update"]) == (False, True, True)
    assert first["id"] == second["id"] == last["id"]


def test_calls_of_several_threads_share_the_output(publisher: Publisher) -> None:
    finished = threading.Event()

    def call(size: int) -> None:
        with Meters(True, show_after_s=0).start() as meter:
            meter.upload(size * 2**20)
            finished.wait(60)

    threads = [threading.Thread(target=call, args=[size]) for size in (100, 200)]
    for thread in threads:
        thread.start()
    while "of 100 MiB" not in (both := publisher.wait_for("of 200 MiB")["data"]["text/plain"]):
        assert both
    finished.set()
    for thread in threads:
        thread.join()


def test_a_call_under_a_second_shows_nothing(publisher: Publisher) -> None:
    with Meters(True, show_after_s=600).start() as meter:
        meter.upload(64 * 2**20)
    late = Bar(lambda: None)
    late.hide()
    late.show()
    assert publisher.outputs.empty()


@rows("shell", [SimpleNamespace(), SimpleNamespace(kernel=None)])
def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch, shell: SimpleNamespace) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stderr", None)
    assert Meters(True).start() is SILENT


def test_a_notebook_that_is_gone_ends_no_call(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError("the notebook is closed")

    monkeypatch.setattr(publisher, "publish", fail)
    with Meters(True, show_after_s=0).start() as meter:
        meter.upload(64 * 2**20)
        meter.add(64 * 2**20)
