"""A sample of the calls of a case that makes thousands: NumPy answers in a microsecond, the service in milliseconds.

A form is a function with its keywords and its operands' ranks and element types. Each of its shapes is a program of its
own, which takes a tenth of a second to compile.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

SHAPES = 1
"""How many shapes of a form a case sends of arrays of fewer than 8 elements, and how many of larger ones."""
CALLS, EVERY = 20, 50
"""How many calls of one form and shape a case sends before it sends only every so many."""

PROGRAMS, EVERY_PROGRAM = 12, 32
"""How many forms and shapes a case sends before it sends only every so many."""

Shape = tuple[int, ...]


class Sampling:
    """Calls that a case has sent so far.

    Args:
        complete: whether it sends everything.
    """

    def __init__(self, *, complete: bool) -> None:
        self._complete = complete
        self._shapes: Counter[Hashable] = Counter()
        self._calls: Counter[Hashable] = Counter()
        self._sent: dict[Hashable, bool] = {}

    def takes(self, form: Hashable, shapes: Sequence[Shape]) -> bool:
        """Returns whether the next call, of a form with operands of some shapes, is sent."""
        if self._complete:
            return True
        program = form, tuple(shapes)
        if program not in self._sent:
            self._sent[program] = self._takes_program(form, shapes)
        count = self._calls[program]
        self._calls[program] += 1
        return self._sent[program] and (count < CALLS or count % EVERY == 0)

    def _takes_program(self, form: Hashable, shapes: Sequence[Shape]) -> bool:
        kind = form, any(size >= 8 for shape in shapes for size in shape)
        self._shapes[kind] += 1
        count = len(self._sent)
        return self._shapes[kind] <= SHAPES and (count < PROGRAMS or count % EVERY_PROGRAM == 0)
