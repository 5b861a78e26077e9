"""The optional fields of a line of a token file: an expiry, the limits of its principal and the token before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

MAX_WEIGHT = 100
MAX_LIMIT = 1 << 60
"""The largest number of bytes, and of arrays, that a limit may be."""

_UNITS = MappingProxyType({"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "": 1})
_SIZE = re.compile(r"([0-9]{1,19})(KiB|MiB|GiB|TiB|)")
_COUNT = re.compile(r"([0-9]{1,19})()")
_DURATION = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_DURATION_UNITS = MappingProxyType({"m": "minutes", "h": "hours", "d": "days", "w": "weeks"})
_MIN_TOKEN = 16  # a shorter text is no token, and neither is one with a colon
_MAX_SHOWN = 40
_DATE_RULE = "a date and time with the zone, such as 2027-01-31T00:00:00Z"


class FieldError(ValueError):
    """A field that cannot be used. The message contains no text that may be a token."""


@dataclass(frozen=True)
class PrincipalLimits:
    """The limits of one principal, beside those of all clients.

    Attributes:
        max_bytes: the bytes of its arrays on the devices; None for no limit.
        max_arrays: the number of its arrays; None for no limit.
        max_file_bytes: the bytes of its files; None for no limit.
        weight: the number of its waiting calls that are launched for each one of a principal of weight 1.
    """

    max_bytes: int | None = None
    max_arrays: int | None = None
    max_file_bytes: int | None = None
    weight: int = 1

    def __str__(self) -> str:
        return " ".join(texts_of_limits(self))


NO_LIMITS = PrincipalLimits()


def no_limits(_: str) -> PrincipalLimits:
    """Returns the limits of a principal where there is no token file."""
    return NO_LIMITS


@dataclass(frozen=True)
class PreviousToken:
    """The token that a principal had before a rotation.

    Attributes:
        token: the token; not in the repr.
        expires: the moment until which it is valid.
    """

    token: str = field(repr=False)
    expires: datetime


@dataclass(frozen=True)
class TokenFields:
    """The optional fields of one line.

    Attributes:
        expires: the moment from which the token is refused; None if it does not expire.
        limits: the limits of the principal.
        previous: the token before the present one; None if it is not valid any more.
    """

    expires: datetime | None = None
    limits: PrincipalLimits = NO_LIMITS
    previous: PreviousToken | None = None


def parse_size(name: str, text: str) -> int:
    """Returns a number of bytes.

    Args:
        name: the field or the option, for the error message.
        text: a whole number, with or without a unit: ``8GiB``.

    Raises:
        FieldError: it is no such text, or too large.
    """
    return _number(name, text, _SIZE, range(MAX_LIMIT + 1), "{} of bytes{}, also in KiB, MiB, GiB or TiB, such as 8GiB")


def parse_count(name: str, text: str) -> int:
    """Returns a number of arrays; arguments and errors as for `parse_size`."""
    return _number(name, text, _COUNT, range(MAX_LIMIT + 1), "{}{}, such as 1000")


def parse_weight(name: str, text: str) -> int:
    """Returns a weight; arguments and errors as for `parse_size`."""
    return _number(name, text, _COUNT, range(1, MAX_WEIGHT + 1), "{}{}, such as 2")


def parse_time(name: str, text: str) -> datetime:
    """Returns a moment, in UTC.

    Args:
        name: the field or the option, for the error message.
        text: a date and time of ISO 8601 with a zone.

    Raises:
        FieldError: it is no such text.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise FieldError(f"{name} is {_shown(text)}; give {_DATE_RULE}")


def parse_expiry(name: str, text: str, now: datetime) -> datetime | None:
    """Returns the moment that a duration from now, or a date and time, stands for; None for ``never``.

    Raises:
        FieldError: it is no such text, or in the past.
    """
    if text == "never":
        return None
    try:
        moment = now + parse_duration(name, text) if _DURATION.fullmatch(text) else parse_time(name, text)
    except FieldError:
        raise FieldError(
            f"{name} is {_shown(text)}; give minutes, hours, days or weeks, such as 90m, 12h, 30d or 8w, {_DATE_RULE}, "
            "or never"
        ) from None
    if moment <= now:
        raise FieldError(f"{name} is {_shown(text)}, which is in the past; give a later time")
    return moment


def parse_duration(name: str, text: str) -> timedelta:
    """Returns a duration.

    Raises:
        FieldError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise FieldError(f"{name} is {_shown(text)}; give minutes, hours, days or weeks, such as 90m, 12h, 30d or 8w")
    return timedelta(**{_DURATION_UNITS[match[2]]: int(match[1])})


_PARSERS: Mapping[str, Callable[[str, str], Any]] = MappingProxyType(
    {
        "expires": parse_time,
        "max_bytes": parse_size,
        "max_arrays": parse_count,
        "max_file_bytes": parse_size,
        "weight": parse_weight,
        "previous": lambda _, text: text,
        "previous_expires": parse_time,
    }
)
_LIMITS = ("max_bytes", "max_arrays", "max_file_bytes", "weight")


def parse_fields(fields: Sequence[str]) -> TokenFields:
    """Returns what the fields after the token of a line say.

    Raises:
        FieldError: one is unknown, has an invalid value or comes twice.
    """
    values: dict[str, Any] = {}
    for number, text in enumerate(fields, 4):
        name, equals, value = text.partition("=")
        if not equals or name not in _PARSERS:  # it may be a token
            raise FieldError(f"field {number} is none of {', '.join(_PARSERS)}; give such as weight=2")
        if name in values:
            raise FieldError(f"{name} comes twice; give it once")
        values[name] = _PARSERS[name](name, value)
    if ("previous" in values) != ("previous_expires" in values):
        raise FieldError("one of previous and previous_expires is missing; give both or neither")
    previous = PreviousToken(values["previous"], values["previous_expires"]) if "previous" in values else None
    limits = PrincipalLimits(**{name: values[name] for name in _LIMITS if name in values})
    return TokenFields(values.get("expires"), limits, previous)


def texts_of(fields: TokenFields) -> list[str]:
    """Returns the texts that `parse_fields` takes."""
    texts = [f"expires={time_text(fields.expires)}"] if fields.expires is not None else []
    texts += texts_of_limits(fields.limits)
    if fields.previous is not None:
        expires = time_text(fields.previous.expires)
        texts += [f"previous={fields.previous.token}", f"previous_expires={expires}"]
    return texts


def texts_of_limits(limits: PrincipalLimits) -> list[str]:
    """Returns the limits of a principal as fields, those that are set."""
    texts = []
    for name, text_of in (("max_bytes", size_text), ("max_arrays", str), ("max_file_bytes", size_text)):
        value = getattr(limits, name)
        if value is not None:
            texts.append(f"{name}={text_of(value)}")
    return texts if limits.weight == 1 else [*texts, f"weight={limits.weight}"]


def time_text(moment: datetime) -> str:
    """Returns a moment in UTC as ``2027-01-31T00:00:00Z``."""
    return moment.isoformat().replace("+00:00", "Z")


def size_text(nbytes: int) -> str:
    """Returns a number of bytes in the largest unit of which it is a multiple: ``8GiB``."""
    unit = next(name for name, size in _UNITS.items() if nbytes % size == 0 and (nbytes or not name))
    return f"{nbytes // _UNITS[unit]}{unit}"


def _number(name: str, text: str, pattern: re.Pattern[str], allowed: range, rule: str) -> int:
    match = pattern.fullmatch(text)
    value = int(match[1]) * _UNITS[match[2]] if match else -1
    if value not in allowed:
        limits = f" from {allowed.start} to {allowed.stop - 1}"
        raise FieldError(f"{name} is {_shown(text)}; give {rule.format('a whole number', limits)}")
    return value


def _shown(text: str) -> str:
    if len(text) < _MIN_TOKEN or ":" in text:
        return repr(text[:_MAX_SHOWN])
    return f"a text of {len(text)} characters"
