from hypothesis import given
from hypothesis import strategies as st

from shardcall._src.memory.free_list import FreeList

SIZE = 4096


def test_the_first_range_that_fits_is_taken():
    free = FreeList(1000)
    assert [free.allocate(100, 1) for _ in range(3)] == [0, 100, 200]
    free.free(0, 100)
    free.free(200, 100)
    assert free.allocate(150, 1) == 200
    assert free.allocate(50, 1) == 0
    assert free.allocate(701, 1) is None


def test_neighbours_grow_together():
    free = FreeList(300)
    for _ in range(3):
        free.allocate(100, 1)
    for offset in (0, 200, 100):
        assert not free.is_unused
        free.free(offset, 100)
    assert free.is_unused
    assert free.allocate(300, 1) == 0


def test_bytes_skipped_by_alignment_stay_free():
    free = FreeList(256)
    assert free.allocate(10, 1) == 0
    assert free.allocate(64, 64) == 64
    assert free.allocate(54, 1) == 10


STEPS = st.lists(st.tuples(st.integers(1, 900), st.sampled_from([1, 64, 512]), st.integers(0, 9)), max_size=60)


@given(STEPS)
def test_no_byte_is_allocated_twice_and_none_is_lost(steps):
    free, taken = FreeList(SIZE), []
    for nbytes, alignment, which in steps:
        offset = free.allocate(nbytes, alignment)
        if offset is not None:
            assert offset % alignment == 0
            assert offset + nbytes <= SIZE
            assert all(offset + nbytes <= begin or begin + size <= offset for begin, size in taken)
            taken.append((offset, nbytes))
        elif taken:
            free.free(*taken.pop(which % len(taken)))
    for begin, size in taken:
        free.free(begin, size)
    assert free.is_unused
