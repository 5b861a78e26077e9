"""Valid names of hosts."""

from __future__ import annotations

import re

HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

HOST_NAME_RULE = "1 to 64 letters, digits, dots, hyphens and underscores, a letter or digit first"
"""Description of `HOST_NAME` for messages."""
