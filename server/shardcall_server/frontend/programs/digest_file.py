"""Values that are kept by digest from one start of the server to the next."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import structlog

from shardcall_core.locks import lock
from shardcall_core.wire import private_files
from shardcall_core.wire.private_files import PrivateFileError

K = TypeVar("K", bound=str)
V = TypeVar("V")
_FORMAT = 1
MAX_VALUES = 4096
_MAX_FILE_BYTES = 16 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


class DigestFile(ABC, Generic[K, V]):
    """Values by SHA-256 digest, in memory and in a JSON file.

    Only this user may write to the file; servers that share it add to it. A file that is damaged, or another user's,
    is ignored.

    Args:
        directory: the folder of the file, made if it is missing. Empty for no file.

    Attributes:
        FILE_NAME: the file's name.
        FIELD: the field of its JSON that holds the values.
        NOT_READ: the log event for a file that is ignored.
        NOT_WRITTEN: the log event for a value that cannot be written.
    """

    FILE_NAME: ClassVar[str]
    FIELD: ClassVar[str]
    NOT_READ: ClassVar[str]
    NOT_WRITTEN: ClassVar[str]

    def __init__(self, directory: str) -> None:
        self._file = Path(directory, self.FILE_NAME) if directory else None
        # Held while the file is merged and written. A value is read without it: the launch lock may be held then.
        self._lock = lock(f"the lock of {self.FILE_NAME}")
        self._values: dict[K, V] = {}
        try:
            self._values = self._read()
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            structlog.get_logger().warning(self.NOT_READ, reason=str(error))

    def put(self, digest: K, value: V) -> None:
        """Keeps a value; of too many, the oldest are dropped."""
        with self._lock:
            self._values = {**self._values, digest: value}
            try:
                self._merge_file()
                for oldest in list(self._values)[: max(0, len(self._values) - MAX_VALUES)]:
                    del self._values[oldest]
                if self._file is None:
                    return
                encoded = {key: self._encode(value) for key, value in self._values.items() if self._is_lasting(value)}
                private_files.write_file(self._file, json.dumps({"format": _FORMAT, self.FIELD: encoded}).encode())
            except (OSError, PrivateFileError) as error:
                structlog.get_logger().warning(self.NOT_WRITTEN, reason=str(error))

    def _merge_file(self) -> None:
        """Adds the values that other servers have written since; this server's own prevail, of those that last.

        Raises:
            OSError: if the file cannot be read, and so is not to be replaced.
        """
        with suppress(FileNotFoundError, ValueError):  # reported when the server started, or damaged since
            written = self._read()
            ours = {k: value for k, value in self._values.items() if k not in written or self._is_lasting(value)}
            self._values = {**written, **ours}

    def _read(self) -> dict[K, V]:
        if self._file is None:
            return {}
        text = private_files.read_file(self._file, _MAX_FILE_BYTES, is_secret=False)
        try:
            content = json.loads(text)
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r} and this server's is {_FORMAT}")
            items: Mapping[K, Any] = content[self.FIELD]
            if wrong := next((digest for digest in items if not _DIGEST.fullmatch(digest)), None):
                raise ValueError(f"{wrong[:80]!r} is no digest")
            return {digest: self._decode(value) for digest, value in items.items()}
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"{self.FILE_NAME} is damaged or another program's: {error!r}") from None

    def _is_lasting(self, value: V) -> bool:
        """Returns whether a value is to be written."""
        return True

    @abstractmethod
    def _encode(self, value: V) -> Any:
        """Returns a value as JSON."""

    @abstractmethod
    def _decode(self, content: Any) -> V:
        """Returns the value of a piece of JSON; may raise any exception if it is invalid."""
