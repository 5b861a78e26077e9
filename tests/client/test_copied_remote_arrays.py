"""Objects that share an array, on a server that keeps arrays in a dict."""

import copy
import gc

import pytest
from end_to_end.processes import wait_for
from rows import rows

import shardcall

pytestmark = pytest.mark.usefixtures("quick_collections")


@pytest.fixture
def client(memory):
    with shardcall.connect(memory.server.address) as connected:
        yield connected


@rows("make", [copy.copy, copy.deepcopy, lambda array: copy.deepcopy({"x": [array]})["x"][0]])
def test_a_copy_is_another_reference(client, memory, make):
    array = client.put([1.0])
    other = make(array)
    del array
    gc.collect()
    client.put([2.0])  # deletes unreferenced arrays
    assert other.get() == [1.0]
    del other
    gc.collect()
    last = client.put([3.0])
    wait_for(lambda: [*memory.stored] == [bytes.fromhex(last.handle)])  # a thread may be deleting the others


def test_a_copy_keeps_its_array_when_the_object_stands_for_another(client, memory):
    array = client.put([1.0])
    kept = copy.copy(array)
    handle = array.handle
    assert client.describe(handle) is array
    array._write(client.put([2.0])._version)
    assert (array.get(), kept.get()) == ([2.0], [1.0])
    assert (client.describe(array.handle), client.describe(handle).get()) == (array, [1.0])
    gc.collect()
    last = client.put([3.0])
    assert len(memory.stored) == 3
    del last
    kept.delete()
    assert kept.lost
    assert array.get() == [2.0]


@pytest.mark.parametrize("share", [copy.copy, copy.deepcopy, lambda array: copy.copy(array[...])])
@pytest.mark.parametrize("swapped", [False, True])
def test_deleting_an_object_leaves_those_that_share_its_array(client, memory, share, swapped):
    array = client.put([[1.0, 2.0]])
    pair = array, share(array)
    deleted, kept = pair[::-1] if swapped else pair
    assert client.delete(deleted) == 0
    assert (deleted.lost, kept.lost) == (True, False)
    with pytest.raises(shardcall.ArrayLostError):
        deleted.get()
    assert kept.get().tolist() == [[1, 2]]
    (listed,) = client.list()
    assert not listed.lost
    assert client.delete(kept) == (listed is kept)
    assert client.delete(listed) == (listed is not kept)
    assert not memory.stored


@pytest.mark.parametrize("view", [lambda array: array[...], lambda array: array[:, 0:2], lambda array: array.view()])
def test_deleting_an_array_deletes_its_views_and_deleting_a_view_leaves_the_array(client, memory, view):
    array = client.put([[1.0, 2.0]])
    part, other = view(array), view(array)
    assert client.delete(part) == 0
    assert (part.lost, other.lost, array.lost) == (True, False, False)
    assert other.get().tolist() == array.get().tolist() == [[1, 2]]
    array.delete()
    assert other.lost
    with pytest.raises(shardcall.ArrayLostError, match="which was deleted"):
        other.get()
    assert not memory.stored


def test_deleting_a_handle_or_all_that_share_an_array_deletes_it(client, memory):
    array = client.put([1.0])
    copies = [copy.copy(array) for _ in range(3)]
    assert client.delete(array, *copies) == 1
    assert all(item.lost for item in (array, *copies))
    array = client.put([1.0])
    other, dropped = copy.copy(array), copy.copy(array)
    del dropped
    assert client.delete(array.handle) == 1
    assert array.lost
    assert other.lost
    assert not memory.stored
