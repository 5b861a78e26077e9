"""Answers of a worker to commands."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from shardcall_server.link.framing import Link, LinkClosedError, LinkFullError
from shardcall_server.mesh.failures import failure_of
from shardcall_worker.v1 import link_pb2

T = TypeVar("T")


class CommandAnswer:
    """The one answer to a command; as a context manager it sends an exception of the body as a Failure.

    Attributes:
        call_id: the id of the command.
        more: True if it may wait for later answers, to share a write to the link.
    """

    def __init__(self, link: Link, call_id: int) -> None:
        self.more = False
        self._link = link
        self.call_id = call_id

    def __enter__(self) -> CommandAnswer:
        return self

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> bool:
        if error is not None and isinstance(error, (Exception, SystemExit)):  # a kernel's code may raise SystemExit
            self.send(failure=failure_of(error))
            return True
        return False

    def report_gathered(self, byte_count: int) -> None:
        """Reports the number of bytes of the results that are gathered, before the answer itself."""
        self.send(gathered=link_pb2.Gathered(byte_count=byte_count))

    def settle(self, answer: Callable[[T], dict[str, object]]) -> Callable[[Future[T]], None]:
        """Returns a callback for a future that sends its outcome."""

        def done(future: Future[T]) -> None:
            with self:
                self.send(**answer(future.result()))

        return done

    def send(self, **answer: object) -> None:
        """Sends the answer; does nothing if the front end is gone."""
        self.send_message(link_pb2.WorkerMessage(call_id=self.call_id, **answer))  # type: ignore[arg-type]

    def send_message(self, message: link_pb2.WorkerMessage) -> None:
        """Sends the answer as a message; does nothing if the front end is gone."""
        try:
            self._link.send(message.SerializeToString(), more=self.more)
        except LinkClosedError:
            pass
        except LinkFullError:  # a call without an answer would retain its memory for ever, so the mesh restarts
            self._link.close()
