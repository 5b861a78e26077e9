"""What a server holds, as people read it."""

from shardcall.usage import Usage


def test_usage_prints_as_a_table():
    usage = Usage(
        regions=1,
        bytes_in_use=3 * 2**20,
        bytes_high_water=2**30,
        bytes_idle=2048,
        segments=4,
        leases=2,
        arrays=5,
        array_bytes=2**20,
        descriptors=30,
    )
    assert str(usage).splitlines() == [
        "calls         1 regions, 2 KiB kept warm",
        "memory        3 MiB, 1 GiB at most",
        "segments      4",
        "arrays        5, 1 MiB on the devices",
        "leases        2",
        "open files    30",
    ]
