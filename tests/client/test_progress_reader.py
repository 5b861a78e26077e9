"""The progress of calls, with a server that answers at once and a clock of the test's own."""

import threading
from types import SimpleNamespace

import pytest

from shardcall._src.display.meters import Meters
from shardcall._src.display.progress import Progress
from shardcall._src.programs.pending_calls import PendingCall, PendingCalls
from shardcall._src.programs.progress_reader import MAX_CALLS, ProgressReader
from shardcall._src.rpc.deadline import Deadline
from shardcall.v1 import array_pb2, kernel_pb2
from shardcall.v1 import server_info_service_pb2 as info
from shardcall_core.types import mesh, specs
from shardcall_core.types.errors import ServerUnavailableError

RUNNING = info.CALL_PHASE_RUNNING


class Server:
    """A server for the reader; `calls` are those that it lists, `asked` the request ids of each request."""

    def __init__(self):
        self.calls, self.asked, self.error = [], [], None
        self.now = 100.0
        self.stubs = SimpleNamespace(server=SimpleNamespace(GetProgress=None))

    def unary(self, method, request, deadline, *, retryable):
        assert not retryable
        self.asked.append(list(request.request_ids))
        if self.error is not None:
            raise self.error
        return info.GetProgressResponse(calls=[call for call in self.calls if call.request_id in request.request_ids])

    def pause(self, seconds):
        self.now += seconds


class Submitted:
    """Calls that were submitted: each has its name as its request id."""

    def __init__(self):
        self.pending = PendingCalls()

    def add(self, name, *depends_on):
        call = PendingCall(self.pending, name, (), 60.0)
        streamed = SimpleNamespace(request_id=name, add_done_callback=lambda callback: None, cancel=lambda: None)
        self.pending.send([call], lambda sending: sending(streamed), [], depends_on)
        return call


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def submitted():
    return Submitted()


@pytest.fixture
def reader(server, submitted):
    return ProgressReader(server, submitted.pending, lambda: server.now, server.pause)


def listed(name, phase=RUNNING, **fields):
    return info.CallProgress(request_id=name, phase=phase, **fields)


def test_a_loop_is_shown_with_its_iterations(server, reader, submitted):
    loop = submitted.add("step")
    server.calls = [listed("step", iterations=3, iterations_left=7, seconds=2)]
    progress = reader.of_call(loop, Deadline(10))
    assert progress == Progress("running", elapsed_s=2, iteration=3, iterations=10, what="step")
    assert progress.share == 0.3
    server.now += 1
    server.calls = [listed("step", iterations=3, iterations_left=2**62)]
    progress = reader.of_call(loop, Deadline(10))
    assert (progress.iteration, progress.iterations, progress.share) == (3, None, None)


def test_what_waits_is_shown_with_its_position(server, reader, submitted):
    call = submitted.add("matmul")
    server.calls = [listed("matmul", info.CALL_PHASE_QUEUED, queue_position=4, seconds=1)]
    assert reader.of_call(call, Deadline(10)) == Progress("queued", elapsed_s=1, queue_position=4, what="matmul")
    server.now += 1
    about = {"operands": "float64[3]", "earlier_operands": ("float64[2]",), "waiting_calls": 4}
    server.calls = [listed("matmul", info.CALL_PHASE_COMPILING, seconds=2, **about)]
    assert reader.of_call(call, Deadline(10)) == Progress("compiling", elapsed_s=2, what="matmul", **about)


def test_a_call_that_waits_for_another_shows_that_one(server, reader, submitted):
    loop = submitted.add("loop")
    last = submitted.add("last", submitted.add("between", loop))
    submitted.add("other")
    server.calls = [listed("loop", iterations=1, iterations_left=1)]
    assert (reader.of_call(last, Deadline(10)).what, server.asked) == ("loop", [["loop", "between", "last"]])


def test_a_call_that_is_not_listed_runs_in_one_launch(server, reader, submitted):
    call = submitted.add("diff")
    assert reader.of_call(call, Deadline(10)) == Progress("running", what="diff")
    server.now += 3
    assert reader.of_call(call, Deadline(10)) == Progress("running", elapsed_s=3, what="diff")
    call.is_done = True
    server.now += 3
    assert reader.of_call(call, Deadline(10)) is None


def test_the_server_is_asked_up_to_ten_times_a_second(server, reader, submitted):
    first, second = submitted.add("first"), submitted.add("second")
    for _ in range(20):
        reader.of_call(first, Deadline(10))
    assert len(server.asked) == 1
    began = server.now
    for _ in range(10):
        reader.of_call(second, Deadline(10))  # pauses at first, as the last answer lacks the call
        reader.of_call(first, Deadline(10))
    assert server.asked == [["first"], ["second", "first"]]
    assert server.now - began == pytest.approx(0.1)
    server.now += 2
    reader.of_call(first, Deadline(10))
    assert server.asked[2:] == [["first"]]


def test_threads_with_different_calls_read_one_answer(server, reader):
    server.calls = [listed("queued", info.CALL_PHASE_QUEUED, queue_position=4)]
    phases = []
    for _ in range(20):
        server.now += 0.04
        phases.append([reader.of_wait(name, name).phase for name in ("queued", "other")])
    assert phases == [["queued", "running"]] * 20
    assert len(server.asked) <= 20 * 0.04 / 0.1 + 2


def test_a_call_that_was_not_asked_for_has_no_progress_while_another_thread_asks(server, reader, submitted):
    call = submitted.add("call")
    answers = []

    def answer(*_, **__):
        server.unary = unary
        answers.append(reader.of_wait("other", "diff"))
        thread.start()
        thread.join(0.1)
        return info.GetProgressResponse()

    unary, server.unary = server.unary, answer
    thread = threading.Thread(target=lambda: answers.append(reader.of_call(call, Deadline(30))))
    assert reader.of_wait("mine", "sum").what == "sum"
    thread.join(30)
    assert answers == [None, Progress("running", what="call")]


def test_a_wait_shows_its_call_or_the_oldest(server, reader, submitted):
    assert reader.of_wait("", "") is None
    assert server.asked == []  # with no call there is nothing to ask
    for i in range(100):
        submitted.add(f"call{i}")
    assert (reader.of_wait("mine", "diff").what, len(server.asked[0])) == ("diff", MAX_CALLS)
    server.now += 1
    server.calls = [listed("call1", iterations=1)]
    assert reader.of_wait("", "").what == "call1"


def test_a_server_that_cannot_answer_ends_no_wait(server, reader, submitted):
    call = submitted.add("diff")
    server.error = ServerUnavailableError("it is away")
    assert reader.of_wait("", "") is None
    server.now += 1
    with pytest.raises(ServerUnavailableError):
        reader.of_call(call, Deadline(10))


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_watch_reports_while_the_reader_exists_and_asks_nothing_where_nobody_looks(server, submitted, is_watched):
    reports = []
    meters = Meters(reports.append if is_watched else False)
    reader = ProgressReader(server, submitted.pending, lambda: server.now, server.pause)
    reader.serve(meters)
    watch = meters.watch("mine", "diff")
    if not is_watched:
        assert (watch, server.asked) == (None, [])
        return
    watch.update()
    assert [(one.phase, one.what) for one in reports] == [("running", "diff")]
    del reader
    watch.update()
    watch.close()
    assert len(reports) == 1


def test_the_placement_of_a_result_is_the_servers(server, reader, submitted):
    call = submitted.add("step")
    assert reader.placement(call, 0, Deadline(1)) is None
    array_type = {"element_type": array_pb2.ELEMENT_TYPE_FLOAT64, "shape": [8]}
    spec = {"entries": [{"axis_names": ["x"]}]}
    placed = kernel_pb2.ArrayPlacement(type=array_type, spec=spec, padded_shape=[8], block_shape=[4])
    server.calls = [listed("step", results=[placed], mesh=mesh.to_proto(mesh.Mesh(x=2)))]
    answer = reader.placement(call, 0, Deadline(1))
    assert (answer.placement.spec, answer.mesh.axes, answer.device_bytes) == (specs.PartitionSpec("x"), (("x", 2),), 64)
    assert reader.placement(call, 1, Deadline(1)) is None
