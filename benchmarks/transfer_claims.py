"""Claims about transfers: ratios of medians of one run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from harness.asking import Samples
from harness.report import Claim, ratio_claim, size_name, table

ByRow = Mapping[str, Samples]
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


def median(samples: ByRow, names: Sequence[str]) -> float | None:
    """Returns the lowest median among rows; None if no row was measured."""
    medians = [statistics.median(samples[name].seconds) for name in names if name in samples and samples[name].seconds]
    return min(medians, default=None)


def kernel(samples: ByRow, name: str = "") -> float | None:
    """Returns the median time of the kernel in the calls of one row; without a name, the lowest of all rows."""
    names = [name] if name else list(samples)
    medians = [statistics.median(samples[name].execute) for name in names if name in samples and samples[name].execute]
    return min(medians, default=None)


def floor_ratio(samples: ByRow, name: str) -> float | None:
    """Returns a row's time divided by its floor plus the kernel's time; None if one was not measured."""
    took, floor, computed = median(samples, [name]), median(samples, _FLOORS[name][1]), kernel(samples, name)
    if took is None or floor is None or computed is None:
        return None
    return took / (floor + computed)


def ratios(measured: Mapping[int, ByRow]) -> list[str]:
    """Returns a table of the shardcall rows divided by their floors, by size."""
    rows = [["÷ floor", *map(size_name, measured)]]
    for name, (title, _) in _FLOORS.items():
        cells = [floor_ratio(samples, name) for samples in measured.values()]
        if any(cell is not None for cell in cells):
            rows.append([title, *("" if cell is None else f"{cell:.2f}" for cell in cells)])
    return table(rows)


def claims(measured: Mapping[int, ByRow]) -> list[Claim]:
    """Returns the claims about the sizes that were measured."""
    claimed = [Claim("every result is np.diff's, bit for bit", "", _all_right(measured))]
    if samples := measured.get(_LARGE):
        claimed += _large(samples)
    if samples := measured.get(_MIDDLE):
        claimed += _middle(samples)
    return claimed


def _all_right(measured: Mapping[int, ByRow]) -> bool:
    return all(one.right for samples in measured.values() for one in samples.values())


def _large(samples: ByRow) -> Iterator[Claim]:
    size = size_name(_LARGE)
    for name, limit, text in (
        ("segment-in-place", 1.3, "segment, read in place: at most 1.3 × (memcpy in and out + kernel)"),
        ("segment-copied", 2.0, "segment, copied out: at most 2.0 × (memcpy in and out + kernel)"),
        ("segment-empty", 1.3, "segment, made there, read in place: at most 1.3 × (kernel + memcpy once)"),
        ("tcp", 1.25, "TCP stream: at most 1.25 × (bare gRPC echo + kernel)"),
    ):
        if (ratio := floor_ratio(samples, name)) is not None:
            yield ratio_claim(f"{size}: {text}", limit, ratio)
    ours = median(samples, ["segment-in-place"])
    for title, names in (
        ("JAX in process, jnp.diff", ["jax-diff"]),
        ("JAX in process, the server's halo", ["jax-halo"]),
        ("a Ray actor", ["ray_actor-diff", "ray_actor-halo"]),
        ("Triton's shared memory", ["triton_server-diff", "triton_server-halo"]),
    ):
        theirs = median(samples, names)
        if ours is not None and theirs is not None:
            text = f"{size}: segment, read in place, is faster than {title}"
            yield Claim(text, f"{theirs / ours:.2f} ×", theirs > ours)
    tcp, uds = median(samples, ["tcp"]), median(samples, ["uds"])
    if tcp is not None and uds is not None:
        yield Claim(
            f"{size}: the client's transport over UDS is no slower than over TCP", f"{uds / tcp:.2f} ×", uds <= tcp
        )


def _middle(samples: ByRow) -> Iterator[Claim]:
    size = size_name(_MIDDLE)
    tcp, echo = median(samples, ["tcp"]), median(samples, ["echo-stream-tcp"])
    if tcp is None or echo is None:
        return
    yield ratio_claim(f"{size}: TCP stream: at most 1.25 × the bare gRPC echo", 1.25, tcp / echo)
    flight = median(samples, ["arrow_flight-diff", "arrow_flight-halo"])
    if flight is not None:
        yield Claim(f"{size}: TCP stream is faster than Arrow Flight", f"{flight / tcp:.2f} ×", flight > tcp)
