"""Fetching a profile from a server that may not be a friend."""

from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

import shardcall as sc
from shardcall.deadline import deadline
from shardcall.profile import Profile
from shardcall.progress import Meters
from shardcall.transport import Transport
from shardcall.v1 import profile_service_pb2, profile_service_pb2_grpc


class Servicer(profile_service_pb2_grpc.ProfileServiceServicer):
    def __init__(self, pieces, end):
        self.pieces, self.end = pieces, end

    def StartProfile(self, request, context):
        return profile_service_pb2.StartProfileResponse()

    def StopProfile(self, request, context):
        for path, data in self.pieces:
            yield profile_service_pb2.StopProfileResponse(path=path, data=data)
        if self.end is not None:
            context.abort(self.end, "it ended")


@contextmanager
def profile_of(directory, *pieces, end=None):
    """A profile whose files are these pieces, each a path and some bytes."""
    with futures.ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        profile_service_pb2_grpc.add_ProfileServiceServicer_to_server(Servicer(pieces, end), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        transport = Transport(grpc.insecure_channel(f"127.0.0.1:{port}"), "here", Meters(False))
        try:
            yield Profile(transport, directory, 0, lambda: deadline(30, 0))
        finally:
            transport.close()
            server.stop(0).wait()


def files(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_pieces_become_files_in_a_fresh_folder_each_time(tmp_path):
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
        assert files(folder) == {"a.pb", "host/b.gz", "empty"}
        assert (folder / "a.pb").read_bytes() == b"one"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../up",
            "a/../../up",
            "/etc/cron",
            "..",
            ".",
            "",
            "a//b",
            "a/",
            "C:/x",
            "..\\up",
            "a\\b",
            "nul\0",
            "a:stream",
        ),
        "/".join("a" * 9),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_and_nothing_is_left(tmp_path, path):
    inside = tmp_path / "in" / "side"
    with (
        profile_of(inside, ("good", b"1"), (path, b"2")) as profile,
        pytest.raises(sc.ProtocolError, match="not below its folder"),
        profile,
    ):
        pass
    assert profile.path is None
    assert files(tmp_path) == set()


@pytest.mark.parametrize("again", ["a", "a/b"])
def test_a_file_that_comes_twice_or_as_a_folder_is_refused(tmp_path, again):
    with (
        profile_of(tmp_path, ("a", b"1"), ("c", b"2"), (again, b"3")) as profile,
        pytest.raises(sc.ProtocolError, match="twice"),
        profile,
    ):
        pass
    assert files(tmp_path) == set()


def test_links_that_lie_below_the_directory_are_not_written_through(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    with profile_of(tmp_path / "traces", ("a", b"1")) as profile:
        profile.start()
        (tmp_path / "traces" / "a").symlink_to(elsewhere)
        assert files(profile.stop()) == {"a"}
    assert elsewhere.read_text() == "untouched"


def test_half_a_profile_is_none(tmp_path):
    with (
        profile_of(tmp_path, ("a", b"1"), end=grpc.StatusCode.UNAVAILABLE) as profile,
        pytest.raises(sc.ServerUnavailableError),
        profile,
    ):
        pass
    assert profile.path is None
    assert files(tmp_path) == set()


def test_the_blocks_own_error_passes_where_stopping_fails_too(tmp_path):
    with (
        profile_of(tmp_path, end=grpc.StatusCode.UNAVAILABLE) as profile,
        pytest.raises(KeyError),
        profile,
    ):
        raise KeyError


def test_endless_files_are_refused(tmp_path):
    with (
        profile_of(tmp_path, *((f"file{i}", b"") for i in range(1001))) as profile,
        pytest.raises(sc.ProtocolError, match="more than 1000"),
        profile,
    ):
        pass
    assert files(tmp_path) == set()
