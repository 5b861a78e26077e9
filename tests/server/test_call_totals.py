from shardcall_server.frontend.observability.call_totals import Total, TotalsByName


def test_calls_are_counted_by_kernel_and_by_principal():
    totals = TotalsByName()
    for kernel, principal, is_failed in (("diff", "ada", False), ("diff", "bob", True), ("", "ada", False)):
        totals.add(kernel, principal, is_failed=is_failed, execute_s=0.5, array_bytes=8)
    by_kernel, by_principal = totals.snapshot()
    totals.add("diff", "ada", is_failed=False, execute_s=0.0, array_bytes=0)  # a snapshot does not change
    assert by_kernel == {"diff": Total(2, 1, 1.0, 16)}
    assert by_principal == {"ada": Total(2, 0, 1.0, 16), "bob": Total(1, 1, 0.5, 8)}


def test_the_number_of_names_is_bounded():
    totals = TotalsByName(max_names=2)
    for name in ("a", "b", "c", "a"):
        totals.add(name, "", is_failed=False, execute_s=0.0, array_bytes=0)
    assert {name: total.calls for name, total in totals.snapshot()[0].items()} == {"a": 2, "b": 1}
