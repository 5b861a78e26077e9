"""Deletion of a lease's arrays when answers and lists overlap."""

import sys

import pytest
from client.forking import LeasedObject

from shardcall._src.device_arrays.lease import Lease

HANDLE = b"\1" * 32


@pytest.fixture
def deleted():
    return []


@pytest.fixture
def lease(deleted):
    lease_under_test = Lease(600.0, lambda _: None, deleted.extend, collection_s=600.0)
    yield lease_under_test
    lease_under_test.close()


def drop(lease, deleted):
    del deleted[:]
    lease.delete_dropped(deleted.extend)
    return list(deleted)


def test_a_listed_array_that_no_answer_brought_is_deleted_once_all_calls_of_then_have_ended(lease, deleted):
    first, second, later = lease.making(), lease.making(), lease.making()
    first.__enter__()
    second.__enter__()
    lease.hold_listed(HANDLE, LeasedObject)
    later.__enter__()
    lease.hold_listed(HANDLE, LeasedObject)
    first.__exit__(None, None, None)
    assert drop(lease, deleted) == []
    second.__exit__(None, None, None)
    assert drop(lease, deleted) == [HANDLE]
    later.__exit__(None, None, None)
    assert drop(lease, deleted) == []


def test_a_list_omits_an_array_that_is_being_deleted(lease):
    lease.hold(HANDLE, LeasedObject)
    shown = []
    assert lease.delete_dropped(lambda _: shown.append(lease.hold_listed(HANDLE, LeasedObject)))
    assert shown == [None]
    assert lease.hold_listed(HANDLE, LeasedObject) is not None  # the server still shows it


def test_no_python_runs_when_an_object_is_dropped(lease, deleted):
    """A Ctrl-C in a weak reference's callback would be ignored."""
    held = lease.hold(HANDLE, LeasedObject)
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_qualname) if event == "call" else None)
    del held
    sys.setprofile(None)
    assert (calls, drop(lease, deleted)) == ([], [HANDLE])


def test_arrays_whose_objects_stand_for_others_are_deleted(lease, deleted):
    held = lease.hold(HANDLE, LeasedObject)
    assert drop(lease, deleted) == []
    lease.drop([HANDLE, b"another"])
    assert drop(lease, deleted) == [HANDLE]
    assert held is not None


def test_an_array_is_deleted_before_what_has_replaced_it_and_later_if_that_is_gone():
    other, replacements, calls = b"2" * 32, {}, []
    lease = Lease(600.0, lambda _: None, print, lambda handle: replacements.get(handle, b""), collection_s=600.0)

    def drop(*handles):
        held = [lease.hold(handle, LeasedObject) for handle in handles]
        del held
        lease.delete_dropped(lambda dropped, replaced_by=b"": calls.append((dropped, replaced_by)))

    replacements[HANDLE] = other
    drop(other, HANDLE)
    drop(HANDLE)
    assert calls == [([HANDLE], other), ([other], b"")]
    del replacements[HANDLE]
    drop()
    assert calls[2:] == [([HANDLE], b"")]
    lease.close()
