"""Many callers at once, as threads of one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from harness.answering import Answer, Handler


def loaded(call: Callable[[], object], seconds: float) -> Handler:
    """Returns a handler that calls from the requested number of threads for a number of seconds."""

    def handler(threads: int) -> Answer:
        began, cpu = time.perf_counter(), time.process_time()
        deadline = began + seconds

        def caller() -> int:
            calls = 0
            while time.perf_counter() < deadline:
                call()
                calls += 1
            return calls

        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(caller) for _ in range(threads)]
            calls = sum(future.result() for future in futures)
        took = time.perf_counter() - began
        return {"seconds": took, "calls": calls, "cpu": time.process_time() - cpu}

    return handler
