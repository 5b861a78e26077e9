"""Names of arrays on the mesh."""

import re

MAX_NAME = 64
"""The most characters of a name."""

NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")
"""The form of a name, without the principal that it belongs to."""
