"""The optional fields of the lines of token files, and the options that set them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rows import rows

from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import (
    NO_LIMITS,
    FieldError,
    PrincipalLimits,
    TokenFields,
    parse_duration,
    parse_expiry,
    size_text,
)
from shardcall_core.wire.token_file import Entry, TokenFileError

TOKEN, OLD = "0123456789abcdef", "fedcba9876543210"
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
LIMITS = PrincipalLimits(max_bytes=8 << 30, max_arrays=1000, max_file_bytes=0, weight=2)
TEXTS = "expires=2027-01-01T00:00:00Z max_bytes=8GiB max_arrays=1000 max_file_bytes=0 weight=2"


@pytest.fixture
def read(tmp_path):
    """Reads a file of these lines."""

    def read(text):
        path = tmp_path / "token"
        path.write_text(text)
        path.chmod(0o600)
        return token_file.read(str(path))

    return read


def test_a_line_has_fields_in_any_order(read):
    text = f"ada run {TOKEN} weight=2 {' '.join(reversed(TEXTS.split()[:-1]))} # a guest\nbob run {OLD}\n"
    ada, bob = read(text)
    assert ada.fields == TokenFields(NEW_YEAR, LIMITS)
    assert bob.fields == TokenFields(None, NO_LIMITS)


@rows("text", ["2027-01-01T01:00:00+01:00", "2026-12-31T19:00-05:00", "20270101T000000Z", "2027-01-01T00Z"])
def test_an_expiry_is_a_moment_in_any_zone(read, text):
    assert read(f"ada run {TOKEN} expires={text}\n")[0].fields.expires == NEW_YEAR


def test_a_file_is_written_as_it_is_read(tmp_path):
    path = str(tmp_path / "token")
    ada = Entry.make("ada", ("run",), TokenFields(NEW_YEAR, LIMITS)).rotate(NOW, timedelta(hours=1))
    token_file.create(path, [ada, Entry("bob", ("run", "arrays"), TOKEN)])
    assert token_file.read(path)[0] == ada
    lines = (tmp_path / "token").read_text().splitlines()
    assert lines[1].startswith(f"ada run {ada.token} {TEXTS} previous=")
    assert lines[1].endswith(" previous_expires=2026-11-27T13:00:00Z")
    assert lines[2] == f"bob run,arrays {TOKEN}"


ZONE = "give a date and time with the zone, such as 2027-01-31T00:00:00Z"
BYTES = "give a whole number of bytes from 0 to 1152921504606846976, also in KiB, MiB, GiB or TiB, such as 8GiB"
COUNT = "give a whole number from 0 to 1152921504606846976, such as 1000"
BAD_FIELDS = [
    ("expires=2027-01-01", f"expires is '2027-01-01'; {ZONE}"),
    ("expires=2027-01-01T00:00:00", f"expires is '2027-01-01T00:00:00'; {ZONE}"),
    ("expires=0001-01-01T00:00:00+12:00", f"expires is '0001-01-01T00:00:00+12:00'; {ZONE}"),
    ("max_bytes=8GB", f"max_bytes is '8GB'; {BYTES}"),
    ("max_bytes=-1", f"max_bytes is '-1'; {BYTES}"),
    ("max_bytes=2000000TiB", f"max_bytes is '2000000TiB'; {BYTES}"),
    ("max_bytes=٣", f"max_bytes is '٣'; {BYTES}"),
    ("max_file_bytes=all", f"max_file_bytes is 'all'; {BYTES}"),
    ("max_arrays=1KiB", f"max_arrays is '1KiB'; {COUNT}"),
    ("max_arrays=", f"max_arrays is ''; {COUNT}"),
    ("weight=0", "weight is '0'; give a whole number from 1 to 100, such as 2"),
    ("weight=101", "weight is '101'; give a whole number from 1 to 100, such as 2"),
    ("weight=2 weight=2", "weight comes twice; give it once"),
    ("wait=2", "field 4 is none of expires, max_bytes, max_arrays, max_file_bytes, weight, previous"),
    ("weight=2 more", "field 5 is none of expires, "),
    (f"previous={OLD}", "one of previous and previous_expires is missing; give both or neither"),
    ("previous=short previous_expires=2027-01-01T00:00:00Z", "previous is no token: it is too short, 5 characters"),
    (f"previous={OLD} previous_expires=soon", f"previous_expires is 'soon'; {ZONE}"),
    (f"previous={TOKEN} previous_expires=2027-01-01T00:00:00Z", "repeats a name or a token"),
    (f"weight={OLD}", "weight is a text of 16 characters; give a whole number"),
]


@rows(("texts", "says"), BAD_FIELDS)
def test_an_invalid_field_is_refused_by_its_line_and_name(read, texts, says):
    with pytest.raises(TokenFileError) as caught:
        read(f"bob run {'b' * 16}\nada run {TOKEN} {texts}\n")
    assert str(caught.value).startswith("line 2 of the token file ")
    assert says in str(caught.value)
    assert not any(token in str(caught.value) for token in (TOKEN, OLD))


def test_a_token_is_valid_in_one_line_alone(read):
    with pytest.raises(TokenFileError, match=r"line 2 .* repeats a name or a token"):
        read(f"ada run {TOKEN}\nbob run {'b' * 16} previous={TOKEN} previous_expires=2027-01-01T00:00:00Z\n")


def test_no_repr_of_an_entry_contains_its_previous_token():
    assert TOKEN not in repr(Entry("ada", ("run",), TOKEN).rotate(NOW, timedelta(days=1)))


def test_a_rotation_voids_the_token_at_once_or_after_a_grace_period():
    ada = Entry("ada", ("run",), TOKEN, TokenFields(NEW_YEAR, LIMITS))
    at_once = ada.rotate(NOW, timedelta())
    assert at_once.tokens == ((at_once.token, NEW_YEAR),)
    assert at_once.token != TOKEN
    assert at_once.fields.limits == LIMITS
    later = ada.rotate(NOW, timedelta(hours=1))
    assert later.tokens == ((later.token, NEW_YEAR), (TOKEN, NOW + timedelta(hours=1)))
    assert later.rotate(NOW, timedelta(minutes=5)).tokens[1] == (later.token, NOW + timedelta(minutes=5))
    assert ada.rotate(NOW, timedelta(days=99)).tokens[1] == (TOKEN, NEW_YEAR)
    assert len(ada.rotate(NEW_YEAR, timedelta(days=1)).tokens) == 1


@rows(("text", "expected"), [("90m", 1.5), ("12h", 12), ("30d", 720), ("8w", 1344)])
def test_an_expiry_may_be_a_duration_from_now(text, expected):
    assert parse_duration("grace", text) == timedelta(hours=expected)
    assert parse_expiry("--expires", text, NOW) == NOW + timedelta(hours=expected)


def test_an_expiry_may_be_a_moment_or_never():
    assert parse_expiry("--expires", "2027-01-01T00:00:00Z", NOW) == NEW_YEAR
    assert parse_expiry("--expires", "never", NOW) is None


@rows("text", ["", "30", "d", "0d", "-1d", "1y", "100000d", "1.5h", "tomorrow", "2027-01-01"])
def test_what_is_no_expiry_is_refused(text):
    with pytest.raises(FieldError, match=r"^--expires is '.*'; give minutes, .* 30d .*, a date and time .*, or never$"):
        parse_expiry("--expires", text, NOW)


def test_an_expiry_in_the_past_is_refused():
    with pytest.raises(FieldError, match="--expires is '2026-01-01T00:00:00Z', which is in the past"):
        parse_expiry("--expires", "2026-01-01T00:00:00Z", NOW)


@rows(
    ("nbytes", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1KiB"), (3 << 20, "3MiB"), (8 << 30, "8GiB"), (1 << 50, "1024TiB")],
)
def test_sizes_are_short_texts(nbytes, text):
    assert size_text(nbytes) == text
