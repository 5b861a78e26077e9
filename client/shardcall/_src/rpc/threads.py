"""Starts the client's threads, and refuses calls when Python has stopped them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

import grpc

from shardcall_core.types.errors import ClientClosedError, ResourceExhaustedError


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


def no_thread(error: RuntimeError) -> ClientClosedError | ResourceExhaustedError:
    """Returns the error of a call that needs a thread, from that of its start."""
    if "interpreter shutdown" in str(error):  # Python 3.12 starts none in functions of `atexit` either
        return ClientClosedError("Python exits and starts no threads any more, and this call needs one; make it before")
    return ResourceExhaustedError(
        f"a thread of the client cannot be started: {error}; let this process have more memory (ulimit -v) or more "
        "threads (ulimit -u)",
        status=grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
