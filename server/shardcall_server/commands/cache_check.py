"""The check of the folder of compiled programs, for `shardcall doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shardcall.cli.checks import Check, failed, ok, warning
from shardcall_core.types.sizes import human
from shardcall_core.wire.private_files import PrivateFileError
from shardcall_server.compilation.program_store import private_program_dir
from shardcall_server.frontend.programs.cache_files import default_cache_dir, stored_programs

_LITTLE_DISK_BYTES = 1 << 30


def cache_folder() -> Iterator[Check]:
    """Checks the folder of compiled programs of this user's servers on this machine."""
    folder = os.environ.get("SHARDCALL_CACHE_DIR", "") or default_cache_dir()
    if not folder:
        yield warning("cache", "there is none: every start compiles again", "set --cache-dir or XDG_CACHE_HOME")
        return
    try:
        private_program_dir(folder)
    except PrivateFileError as error:
        yield failed("cache", str(error), f"chmod 700 {folder}/programs")
        return
    existing = next(path for path in (Path(folder), *Path(folder).parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield warning("cache", f"{folder} cannot be written", "make it this user's, or set --cache-dir")
        return
    status = os.statvfs(existing)
    free = status.f_bavail * status.f_frsize
    programs = stored_programs(Path(folder))
    text = f"{folder}: {len(programs)} programs, {human(sum(p.nbytes for p in programs))}; {human(free)} free"
    if free < _LITTLE_DISK_BYTES:
        yield warning("cache", text, "free some space, or remove old programs: shardcall cache rm --older-than 30")
    else:
        yield ok("cache", text)
