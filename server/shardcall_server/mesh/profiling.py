"""Recording what the devices do, with JAX's profiler."""

from __future__ import annotations

import jax

from shardcall_server.errors import CallError, Reason


class Profiler:
    """Starts and stops the one recording of this process."""

    def __init__(self) -> None:
        self._recording = False

    def start(self, directory: str) -> None:
        """Begins to record.

        Args:
            directory: where the files go when it stops.

        Raises:
            CallError: a recording runs already.
        """
        if self._recording:
            raise CallError(Reason.PROFILE_STATE, "a profile is being recorded already; repeat this when it has ended")
        options = jax.profiler.ProfileOptions()
        # Tracing every Python call would slow down the thread that launches, and show the server's own files.
        options.python_tracer_level = 0
        options.raise_error_on_start_failure = True
        jax.profiler.start_trace(directory, profiler_options=options)
        self._recording = True

    def stop(self) -> None:
        """Ends the recording, and writes its files.

        Raises:
            CallError: none runs.
        """
        if not self._recording:
            raise CallError(Reason.PROFILE_STATE, "no profile is being recorded; start one first")
        self._recording = False
        jax.profiler.stop_trace()
