from rows import rows

from shardcall.v1 import timing_pb2
from shardcall_core.types.timing import PHASES, Timing, from_proto


def test_every_duration_of_the_contract_is_an_attribute():
    names = [field.name.removesuffix("_seconds") for field in timing_pb2.Timing.DESCRIPTOR.fields]
    assert names == [*PHASES, "total"]
    message = timing_pb2.Timing(**{f"{name}_seconds": i + 1.0 for i, name in enumerate(names)})
    timing = from_proto(message, round_trip=9.0)
    assert [getattr(timing, name) for name in names] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert timing.transport == 1.0


def test_print_draws_an_aligned_table():
    timing = Timing(receive=0.002, execute=0.005, total=0.008, round_trip=0.010)
    assert str(timing).splitlines() == [
        "receive           2.000 ms  20.0%  █████",
        "queue             0.000 ms   0.0%",
        "compile           0.000 ms   0.0%",
        "place             0.000 ms   0.0%",
        "execute           5.000 ms  50.0%  ████████████",
        "gather            0.000 ms   0.0%",
        "send              0.000 ms   0.0%",
        "total             8.000 ms  80.0%  ███████████████████",
        "transport         2.000 ms  20.0%  █████",
        "round_trip       10.000 ms 100.0%  ████████████████████████",
    ]


def test_one_line_has_no_exponents():
    assert repr(Timing(execute=2.4096, total=2.41, round_trip=2.41)).startswith("<Timing 2,410 ms: execute 2,410 ms")
    assert repr(Timing(execute=0.00123456, total=0.002, round_trip=0.002)).startswith("<Timing 2 ms: execute 1.23 ms")


@rows("timing", [Timing(), Timing(total=2.0, round_trip=1.0), Timing(queue=5.0, total=1.0)])
def test_odd_figures_draw_too(timing):
    assert len(str(timing).splitlines()) == 10
    assert max(map(len, str(timing).splitlines())) <= 60
