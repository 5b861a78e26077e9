"""Commands and answers that share writes to the links of a session."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from server.fake_workers import PATIENCE_S, FakeWorker
from server.refusals import refusal
from server.threads import on_threads

from shardcall_worker.v1 import link_pb2


def test_a_batch_is_sent_at_its_end_and_before_commands_of_other_threads(run):
    workers = FakeWorker("a"), FakeWorker("b")
    mesh = run(*workers)
    with mesh.session.batch:
        with mesh.session.batch:
            first = mesh.execute("1")
        assert not first.done()
        assert all(worker.commands[1:] == [] for worker in workers)
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: mesh.execute("2").result(PATIENCE_S)).result()
        assert first.result(PATIENCE_S)
        last = mesh.execute("3")
        mesh.session.notify(link_pb2.FrontEndMessage(trim=link_pb2.Trim()))
    assert last.result(PATIENCE_S)
    mesh.execute("4").result(PATIENCE_S)
    for worker in workers:
        assert [sequence for _, _, sequence in worker.commands[1:]] == [1, 2, 3, 4, 5]
        assert [message.execute.key_digest for message in worker.got[1:]] == ["1", "2", "3", "", "4"]


def test_batches_of_many_threads_keep_one_order(run):
    mesh = run(FakeWorker("a"), FakeWorker("b"))

    def many(thread: int) -> None:
        for i in range(20):
            with mesh.session.batch:
                answers = [mesh.execute(f"{thread}.{i}.{j}") for j in range(5)]
            for answer in answers:
                answer.result(PATIENCE_S)

    on_threads(many, range(6))
    first, second = (worker.commands[1:] for worker in mesh.workers)
    assert [sequence for _, _, sequence in first] == list(range(1, 601))
    assert first == second


def test_a_batch_whose_body_fails_is_sent(run):
    mesh = run(FakeWorker("a"))
    answers = []
    with contextlib.suppress(KeyError), mesh.session.batch:
        answers.append(mesh.execute())
        raise KeyError
    assert answers[0].result(PATIENCE_S)


def test_commands_of_a_batch_are_lost_with_the_worker(run):
    mesh = run(FakeWorker("a"))
    with mesh.session.batch:
        answer = mesh.execute()
        mesh.workers[0].kill()
        mesh.exit_reason.result(PATIENCE_S)
    assert "restarted" in refusal(answer.result, PATIENCE_S).message
