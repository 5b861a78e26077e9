"""Fetching a profile from a server that may not be a friend."""

import asyncio
import queue
import threading
from concurrent import futures
from contextlib import contextmanager
from functools import partial

import grpc
import pytest
from client.conftest import cancel, serving
from client_parts import transport_of
from rows import rows

import shardcall as sc
from shardcall._src.rpc.cancellation import Cancellation
from shardcall._src.rpc.deadline import deadline_after
from shardcall._src.services.profile import Profile
from shardcall.aio.profile import AsyncProfile
from shardcall.aio.threads import Threads
from shardcall.v1 import profile_service_pb2, profile_service_pb2_grpc
from shardcall_core.wire.metadata import REQUEST_ID_KEY


class Servicer(profile_service_pb2_grpc.ProfileServiceServicer):
    def __init__(self, *pieces, end=None, is_truncated=False):
        self.pieces, self.end, self.is_truncated = pieces, end, is_truncated
        self.started, self.stopped = queue.SimpleQueue(), queue.SimpleQueue()
        self.answers = threading.Event()
        self.answers.set()

    def StartProfile(self, request, context):
        self.started.put(dict(context.invocation_metadata())[REQUEST_ID_KEY])
        assert self.answers.wait(20)
        return profile_service_pb2.StartProfileResponse()

    def StopProfile(self, request, context):
        self.stopped.put(None)
        for path, data in self.pieces:
            yield profile_service_pb2.StopProfileResponse(path=path, data=data, is_truncated=self.is_truncated)
        if self.end is not None:
            context.abort(self.end, "it ended")


@contextmanager
def profile_of(directory, *pieces, servicer=None, timeout_s=30, **options):
    """A profile whose files are these pieces, each a path and some bytes."""
    servicer = servicer or Servicer(*pieces, **options)
    add = partial(profile_service_pb2_grpc.add_ProfileServiceServicer_to_server, servicer)
    with serving(add) as server, sc.connect(server.address, retries=False) as client:
        yield Profile(transport_of(client), directory, 0, lambda: deadline_after(timeout_s, 0))


def files(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_pieces_become_files_in_a_new_folder_every_time(tmp_path):
    pieces = [("a.pb", b"on"), ("a.pb", b"e"), ("host/b.gz", b"two"), ("empty", b"")]
    with profile_of(tmp_path, *pieces) as profile:
        with profile:
            pass
        first = profile.path
        with profile:
            pass
    assert profile.path != first
    for folder in (first, profile.path):
        assert folder.parent == tmp_path / "plugins" / "profile"
        assert (files(folder), (folder / "a.pb").read_bytes()) == ({"a.pb", "host/b.gz", "empty"}, b"one")


@rows(("directory", "seconds", "field"), [(None, 0, "directory"), ("d", "1", "max_seconds")])
def test_what_is_no_folder_and_no_time_is_refused(directory, seconds, field):
    with pytest.raises(sc.InvalidParameterError, match=f"^{field} is ") as refused:
        Profile(None, directory, seconds, None)
    assert refused.value.field == field


def test_one_that_is_asked_for_wrongly_does_not_begin(tmp_path):
    servicer = Servicer()
    refused = pytest.raises(sc.InvalidParameterError, match="timeout is -1")
    with profile_of(tmp_path, servicer=servicer, timeout_s=-1.0) as profile, refused:
        profile.start()
    assert servicer.started.empty()


def test_a_profile_whose_start_was_abandoned_before_the_answer_is_stopped(tmp_path):
    servicer, cancellation = Servicer(("a.pb", b"a")), Cancellation()
    servicer.answers.clear()
    with profile_of(tmp_path, servicer=servicer) as profile, futures.ThreadPoolExecutor(1) as thread:

        def start():
            with cancellation, pytest.raises(sc.CallCancelledError):
                profile.start()

        started = thread.submit(start)
        first = servicer.started.get(timeout=20)
        cancellation.cancel()
        servicer.answers.set()
        assert servicer.started.get(timeout=20) == first  # the same call: it has its effect once
        servicer.stopped.get(timeout=20)
        started.result(20)
    assert files(tmp_path) == set()


PATHS = [
    *("../up", "a/../../up", "/etc/cron", "..", ".", "", "a//b", "a/", "C:/x", "..\\up", "a\\b", "nul\0", "a:stream")
]
REFUSED = [
    *([("good", path), None, "not below its folder"] for path in [*PATHS, "/".join("a" * 9)]),
    (("a", "c", "a"), None, "twice"),
    (("a", "c", "a/b"), None, "twice"),
    ([f"file{i}" for i in range(1001)], None, "more than 1000"),
    (("a",), grpc.StatusCode.UNAVAILABLE, "went away"),
]


@rows(("paths", "end", "says"), REFUSED)
def test_a_profile_that_is_refused_leaves_nothing(tmp_path, paths, end, says):
    inside = tmp_path / "in" / "side"
    refused = pytest.raises((sc.ProtocolError, sc.ServerUnavailableError), match=says)
    with profile_of(inside, *((path, b"1") for path in paths), end=end) as profile, refused, profile:
        pass
    assert profile.path is None
    assert files(tmp_path) == set()


def test_links_below_the_directory_are_not_written_through(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    with profile_of(tmp_path / "traces", ("a", b"1")) as profile:
        profile.start()
        (tmp_path / "traces" / "a").symlink_to(elsewhere)
        assert files(profile.stop()) == {"a"}
    assert elsewhere.read_text() == "untouched"


def test_the_error_of_the_block_passes_where_stopping_fails_too(tmp_path):
    with profile_of(tmp_path, end=grpc.StatusCode.UNAVAILABLE) as profile, pytest.raises(KeyError), profile:
        raise KeyError


def test_a_recording_that_a_cancelled_task_has_begun_is_ended(tmp_path):
    servicer, began, go_on = Servicer(), threading.Event(), threading.Event()
    with profile_of(tmp_path, servicer=servicer) as profile:
        start = profile.start

        def start_and_wait():
            start()
            began.set()
            assert go_on.wait(20)

        profile.start = start_and_wait

        async def use():
            pool = Threads()
            task = asyncio.create_task(AsyncProfile(profile, pool).__aenter__())
            assert await asyncio.to_thread(began.wait, 20)
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await cancel(task)
            await pool.close(lambda: None)

        asyncio.run(use())
        assert servicer.stopped.get(timeout=20) is None


@rows("is_truncated", [True, False])
def test_a_profile_says_whether_the_server_ended_it_early(tmp_path, is_truncated):
    with profile_of(tmp_path, ("a", b"1"), is_truncated=is_truncated) as profile:
        assert not profile.is_truncated
        profile.stop()
    assert profile.is_truncated is is_truncated
