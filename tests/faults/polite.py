"""Callers that retry refused calls when the server says that they may."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
from end_to_end.messages import details

_MAX_ROUNDS = 400


@dataclass
class Outcome:
    """Outcomes of many calls.

    Attributes:
        right: how many answers were right.
        lost: descriptions of the calls that ended otherwise.
    """

    right: int = 0
    lost: list[str] = field(default_factory=list)

    def refuse(self, error: grpc.RpcError) -> float:
        """Counts an error; returns the seconds until its call may be retried, 0 for never."""
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            self.lost.append(f"{error.code().name}: {error.details()}")
            return 0.0
        info = details(error)
        retry_s = float(info["RetryInfo"].retry_delay.ToTimedelta().total_seconds())
        pushback_ms = dict(error.trailing_metadata())["grpc-retry-pushback-ms"]
        assert info["QuotaFailure"].violations[0].subject
        assert retry_s > 0
        assert int(pushback_ms) == round(retry_s * 1000)
        return retry_s

    def check(self, calls: int) -> None:
        """Raises unless every call got a right answer in the end."""
        assert not self.lost, (len(self.lost), self.lost[:3])
        assert self.right == calls


def all_at_once(begin: Sequence[Callable[[], grpc.Future]], is_right: Callable[[object], bool]) -> Outcome:
    """Starts all calls before it reads any answer, and retries those that were refused, until none is.

    Args:
        begin: begins a call; may be called again.
        is_right: whether an answer is what it should be.
    """
    outcome, waiting = Outcome(), list(begin)
    for _ in range(_MAX_ROUNDS):
        begun = [(call, call()) for call in waiting]
        waiting, wait_s = [], 0.0
        for call, future in begun:
            error = future.exception()
            if error is None:
                assert is_right(future.result())
                outcome.right += 1
            elif (retry_s := outcome.refuse(error)) > 0:
                waiting.append(call)
                wait_s = max(wait_s, retry_s)
        if not waiting:
            break
        time.sleep(wait_s)  # as long as the server asks for
    return outcome
