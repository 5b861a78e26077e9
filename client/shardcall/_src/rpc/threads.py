"""Starts the client's threads, keeps them alive, and refuses calls when Python has stopped them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import grpc

from shardcall_core.types.errors import (
    ClientClosedError,
    InternalServerError,
    ResourceExhaustedError,
    ShardcallError,
)


def check_not_exiting() -> None:
    """Checks that other threads still run, before this one waits for them.

    Finalizers run after Python has stopped all threads, wherever they were: what they hold stays locked, what they
    would answer stays unanswered, and a thread that is started never runs.

    Raises:
        ClientClosedError: if Python exits.
    """
    if sys.is_finalizing():
        raise ClientClosedError(
            "Python exits and has stopped its threads, so this client makes no calls any more; read values before, or "
            "in a function that is registered by atexit.register"
        )


def start_thread(name: str, target: Callable[..., object], arguments: Sequence[object] = ()) -> threading.Thread:
    """Starts a thread that ends with the process, and returns it.

    Raises:
        ClientClosedError: if Python exits.
        ResourceExhaustedError: if the process can have no more threads.
    """
    check_not_exiting()
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(error) from None
    return thread


def is_running(thread: threading.Thread | None) -> bool:
    """Returns False for a thread that was not started, or has ended by an exception."""
    return thread is not None and thread.is_alive()


@contextmanager
def surviving() -> Iterator[None]:
    """Keeps a thread running after an exception of the block, which is reported by `threading.excepthook`.

    An error of a call, whose caller gets it, is not shown.
    """
    try:
        yield
    except ShardcallError:
        pass
    except Exception:  # noqa: BLE001
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def thread_failure(error: Exception) -> ShardcallError:
    """Returns the error of calls for an exception in the thread of this client that was to send or to answer them."""
    if isinstance(error, ShardcallError):
        return error
    name = threading.current_thread().name
    return InternalServerError(f"the thread {name} of this client failed: {type(error).__name__}: {error}")


def no_thread(error: RuntimeError) -> ClientClosedError | ResourceExhaustedError:
    """Returns the error of a call that needs a thread, from that of its start."""
    if "interpreter shutdown" in str(error):  # Python 3.12 starts none in functions of `atexit` either
        return ClientClosedError("Python exits and starts no threads any more, and this call needs one; make it before")
    return ResourceExhaustedError(
        f"a thread of the client cannot be started: {error}; let this process have more memory (ulimit -v) or more "
        "threads (ulimit -u)",
        status=grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
