"""The link: complete messages, descriptors beside them, and a peer that stops or leaves."""

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


def send_many(link: Link, body: bytes, *, more: bool = False) -> None:
    for _ in range(100):
        link.send(body, more=more)


def test_messages_arrive_complete_and_in_order(pair):
    sender, receiver = pair
    bodies = [b"", b"a", b"b" * 70_000, bytes(range(256)) * 3000, b"end"]
    thread = threading.Thread(target=lambda: [sender.send(body) for body in bodies])
    thread.start()
    frames = receiver.frames()
    assert [next(frames) for _ in bodies] == [(body, None) for body in bodies]
    thread.join()


@pytest.mark.parametrize("more", [False, True])
def test_a_descriptor_comes_with_its_message_which_may_wait_and_is_closed_on_exec(pair, more):
    sender, receiver = pair
    for i in range(3):
        fd = os.memfd_create("file")
        os.write(fd, b"%d" % i)
        sender.send(b"with", fd, more=more)
        sender.send(b"without", more=more)
        os.close(fd)
    sender.flush()
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


@pytest.mark.parametrize("more", [False, True])
def test_a_backlog_has_an_end(pair, more):
    sender, _ = pair
    with pytest.raises(LinkFullError):
        send_many(sender, b"x" * 100_000, more=more)
    assert not sender.has_capacity(100_000)


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


def test_messages_that_may_wait_come_together_and_before_later_ones(pair):
    sender, receiver = pair
    batches = receiver.batches()
    for body in (b"a", b"b"):
        sender.send(body, more=True)
    assert not receiver.readable, "they wait"
    sender.flush()
    assert next(batches) == [(b"a", None), (b"b", None)]
    sender.send(b"c", more=True)
    sender.send(b"d")
    assert next(batches) == [(b"c", None), (b"d", None)]
    sender.flush()
    assert not receiver.readable
    for _ in range(7):
        sender.send(b"x" * 10_000, more=True)
    assert len(next(batches)) == 7, "up to 64 KiB wait"


def test_messages_that_wait_are_dropped_when_the_peer_is_gone(pair):
    sender, receiver = pair
    sender.send(b"x", more=True)
    receiver.close()
    sender.flush()
    with pytest.raises(LinkClosedError):
        sender.send(b"y")
