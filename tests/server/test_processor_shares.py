"""The share of the processor that each client has in the front end."""

from shardcall_server.frontend.rpc.processor_shares import ProcessorShares


def test_a_client_that_uses_more_than_its_share_waits_unless_it_is_alone():
    now, waited, used_s = [0.0], [], 0.0
    shares = ProcessorShares(lambda: now[0], waited.append)
    greedy = shares.of("greedy")
    for step in range(100):
        shares.of(f"client {step}").spend(0.001)  # of those that have left, some are forgotten
        now[0] += 2.0
    assert len(shares._by_client) < 70
    for _ in range(100):
        greedy.spend(1.0)
        now[0] += 1.0
        greedy.wait()
    assert not waited
    for _ in range(1000):
        shares.of("modest").spend(0.002)
        now[0] += 0.01
        assert not shares.of("modest").pause_s()
        if not greedy.pause_s():
            greedy.spend(0.01)
            used_s += 0.01
    assert 2.8 < used_s < 4.0  # a third of ten seconds
    greedy.spend(60.0)
    with greedy.meter() as meter:
        assert [*meter.paced(iter([1]))] == [1]
    assert waited == [1.0] * 20  # this clock stands still
