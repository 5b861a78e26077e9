"""What is claimed of transfers: ratios of medians of one run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from harness.asking import Samples
from harness.report import Claim, at_most, size_name, table

ByWay = Mapping[str, Samples]
_MIB = 1 << 20
_LARGE, _MIDDLE = 128 * _MIB, 8 * _MIB
_ONCE, _COPIES = ("once-1", "once-2"), ("memcpy-1", "memcpy-2")
_FLOORS = {
    "tcp": ("TCP ÷ (gRPC echo + kernel)", ("echo-unary-tcp", "echo-stream-tcp")),
    "uds": ("UDS ÷ (gRPC echo + kernel)", ("echo-unary-uds", "echo-stream-uds")),
    "segment-in-place": ("segment, read in place ÷ (memcpy in and out + kernel)", _COPIES),
    "segment-copied": ("segment, copied out ÷ (memcpy in and out + kernel)", _COPIES),
    "segment-empty": ("segment, made there ÷ (memcpy once + kernel)", _ONCE),
}


def median(samples: ByWay, ways: Sequence[str]) -> float | None:
    """The lowest median among ways; None if none of them was measured."""
    found = [statistics.median(samples[way].seconds) for way in ways if way in samples and samples[way].seconds]
    return min(found, default=None)


def kernel(samples: ByWay, way: str = "") -> float | None:
    """The kernel's own time, as one way's calls were told it; the lowest of all ways' medians if none is named."""
    ways = [way] if way else list(samples)
    found = [statistics.median(samples[way].execute) for way in ways if way in samples and samples[way].execute]
    return min(found, default=None)


def over_floor(samples: ByWay, way: str) -> float | None:
    """A way's time over its floor and the kernel's time, if all were measured."""
    took, floor, computed = median(samples, [way]), median(samples, _FLOORS[way][1]), kernel(samples, way)
    if took is None or floor is None or computed is None:
        return None
    return took / (floor + computed)


def ratios(measured: Mapping[int, ByWay]) -> list[str]:
    """Every way of ours over its floor, by size."""
    rows = [["÷ floor", *map(size_name, measured)]]
    for way, (title, _) in _FLOORS.items():
        cells = [over_floor(samples, way) for samples in measured.values()]
        if any(cell is not None for cell in cells):
            rows.append([title, *("" if cell is None else f"{cell:.2f}" for cell in cells)])
    return table(rows)


def claims(measured: Mapping[int, ByWay]) -> list[Claim]:
    """What is claimed, of the sizes that were measured."""
    found = [Claim("every result is np.diff's, bit for bit", "", _all_right(measured))]
    if samples := measured.get(_LARGE):
        found += _large(samples)
    if samples := measured.get(_MIDDLE):
        found += _middle(samples)
    return found


def _all_right(measured: Mapping[int, ByWay]) -> bool:
    return all(way.right for samples in measured.values() for way in samples.values())


def _large(samples: ByWay) -> Iterator[Claim]:
    size = size_name(_LARGE)
    for way, limit, text in (
        ("segment-in-place", 1.3, "segment, read in place: at most 1.3 × (memcpy in and out + kernel)"),
        ("segment-copied", 2.0, "segment, copied out: at most 2.0 × (memcpy in and out + kernel)"),
        ("segment-empty", 1.3, "segment, made there, read in place: at most 1.3 × (kernel + memcpy once)"),
        ("tcp", 1.25, "TCP stream: at most 1.25 × (bare gRPC echo + kernel)"),
    ):
        if (ratio := over_floor(samples, way)) is not None:
            yield at_most(f"{size}: {text}", limit, ratio)
    ours = median(samples, ["segment-in-place"])
    for title, ways in (
        ("JAX in process, jnp.diff", ["jax-diff"]),
        ("JAX in process, the server's halo", ["jax-halo"]),
        ("a Ray actor", ["ray_actor-diff", "ray_actor-halo"]),
        ("Triton's shared memory", ["triton_server-diff", "triton_server-halo"]),
    ):
        theirs = median(samples, ways)
        if ours is not None and theirs is not None:
            text = f"{size}: segment, read in place, is faster than {title}"
            yield Claim(text, f"{theirs / ours:.2f} ×", theirs > ours)
    tcp, uds = median(samples, ["tcp"]), median(samples, ["uds"])
    if tcp is not None and uds is not None:
        yield Claim(f"{size}: the client's way over UDS is no slower than over TCP", f"{uds / tcp:.2f} ×", uds <= tcp)


def _middle(samples: ByWay) -> Iterator[Claim]:
    size = size_name(_MIDDLE)
    tcp, echo = median(samples, ["tcp"]), median(samples, ["echo-stream-tcp"])
    if tcp is None or echo is None:
        return
    yield at_most(f"{size}: TCP stream: at most 1.25 × the bare gRPC echo", 1.25, tcp / echo)
    flight = median(samples, ["arrow_flight-diff", "arrow_flight-halo"])
    if flight is not None:
        yield Claim(f"{size}: TCP stream is faster than Arrow Flight", f"{flight / tcp:.2f} ×", flight > tcp)
