"""The link: complete messages, descriptors beside them, and a peer that stops or leaves."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from shardcall_server.link.framing import Link, LinkClosedError, LinkFullError


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    links = Link(ours, backlog_bytes=1 << 20), Link(theirs)
    yield links
    for link in links:
        link.close()


def send_many(link: Link, body: bytes) -> None:
    for _ in range(100):
        link.send(body)


def test_messages_arrive_complete_and_in_order(pair):
    sender, receiver = pair
    bodies = [b"", b"a", b"b" * 70_000, bytes(range(256)) * 3000, b"end"]
    thread = threading.Thread(target=lambda: [sender.send(body) for body in bodies])
    thread.start()
    frames = receiver.frames()
    assert [next(frames) for _ in bodies] == [(body, None) for body in bodies]
    thread.join()


def test_a_descriptor_comes_with_its_message_and_is_closed_on_exec(pair):
    sender, receiver = pair
    files = [os.memfd_create(f"file {i}") for i in range(3)]
    for i, fd in enumerate(files):
        os.write(fd, b"%d" % i)
        sender.send(b"with", fd)
        sender.send(b"without")
        os.close(fd)
    frames = receiver.frames()
    for i in range(3):
        body, fd = next(frames)
        assert body == b"with"
        assert os.pread(fd, 10, 0) == b"%d" % i
        assert not os.get_inheritable(fd)
        os.close(fd)
        assert next(frames) == (b"without", None)


def test_a_send_to_a_peer_that_does_not_read_does_not_block_and_arrives_later(pair):
    sender, receiver = pair
    fd = os.memfd_create("file")
    for i in range(400):
        sender.send(b"%03d" % i + b"x" * 1000, fd if i == 399 else None)
    os.close(fd)
    frames = receiver.frames()
    got = [next(frames) for _ in range(400)]
    assert [body[:3] for body, _ in got] == [b"%03d" % i for i in range(400)]
    assert got[-1][1] is not None
    os.close(got[-1][1])


def test_a_backlog_has_an_end(pair):
    sender, _ = pair
    with pytest.raises(LinkFullError):
        send_many(sender, b"x" * 100_000)


def test_a_peer_that_is_gone_ends_the_frames_and_refuses_messages(pair):
    sender, receiver = pair
    sender.send(b"last")
    sender.close()
    assert list(receiver.frames()) == [(b"last", None)]
    with pytest.raises(LinkClosedError):
        send_many(receiver, b"into nothing")


def test_closing_wakes_the_thread_that_reads(pair):
    receiver = pair[1]
    thread = threading.Thread(target=lambda: list(receiver.frames()))
    thread.start()
    receiver.close()
    thread.join(5)
    assert not thread.is_alive()
