"""The versions of names that a client has seen."""

from unittest.mock import Mock

import pytest

from shardcall._src.services import named_arrays
from shardcall._src.services.named_arrays import NamedArrays
from shardcall.v1.array_service_pb2 import NameVersion


@pytest.fixture
def names() -> NamedArrays:
    return NamedArrays(Mock(), Mock(), Mock())


def test_the_last_version_of_a_name_stays_if_no_other_is_accepted(names):
    assert names.seen("u") is None
    first, second = (NameVersion(number=number, since_microseconds=5) for number in (1, 2))
    restored = NameVersion(number=1, since_microseconds=7)
    for version, expected in [(first, first), (second, second), (first, second), (restored, restored)]:
        names.see("u", version)
        assert names.seen("u") == expected
    names.see("u", first, accepts=True)
    assert names.seen("u") == first


def test_the_versions_of_names_that_were_used_last_stay(names, monkeypatch):
    monkeypatch.setattr(named_arrays, "MAX_SEEN", 3)
    for name in "abcad":
        names.see(name, NameVersion(number=1))
    assert [name for name in "abcd" if names.seen(name)] == ["a", "c", "d"]
