"""The settings of a server by subject. `shardcall_server.settings.Settings` consists of these groups."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, Field, SecretStr

from shardcall_core.wire.token_file import usual_path
from shardcall_server.host_memory import memory_bytes

LogLevel = Literal["debug", "info", "warning", "error"]
_MIB = 1 << 20


def default_cache_dir() -> str:
    """Returns the user's cache folder for shardcall by the XDG specification; empty if it is not known."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification: a relative one is to be ignored
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "shardcall") if os.path.isabs(base) else ""


class NetworkSettings(BaseModel):
    """Addresses, connections and messages."""

    host: str = Field("localhost", description="Address to listen on; localhost is 127.0.0.1 and ::1.")
    port: int = Field(8470, ge=0, le=65535, description="Port to listen on; 0 selects a free one.")
    unix_socket: str = Field("", description="Path of a Unix socket to listen on as well, for this user only.")
    max_connections: int = Field(
        512, ge=1, le=65536, description="Maximum number of connections; further ones are closed immediately."
    )
    max_streams_per_connection: int = Field(
        8192,
        ge=1,
        le=65536,
        description="Maximum number of concurrent calls of one connection; gRPC refuses further ones.",
    )
    handshake_timeout_s: float = Field(
        10.0, gt=0, le=600, description="Seconds for establishing a connection, including TLS."
    )
    max_connection_idle_s: float = Field(
        1800.0, ge=1, le=604800, description="Seconds after which a connection without calls is closed."
    )
    max_message_bytes: int = Field(4 * _MIB, ge=2 * _MIB, le=64 * _MIB, description="Maximum bytes of a gRPC message.")
    max_inline_bytes: int = Field(_MIB, ge=0, le=_MIB, description="Maximum bytes of the arrays in a unary call.")
    max_chunk_bytes: int = Field(_MIB, ge=4096, le=_MIB, description="Maximum bytes of a chunk in a stream.")


class AccessSettings(BaseModel):
    """TLS, tokens and access from other machines."""

    tls_cert: str = Field("", description="PEM file of the server's certificate chain; enables TLS.")
    tls_key: str = Field("", description="PEM file of the certificate's key, readable by this user only.")
    tls_client_ca: str = Field(
        "", description="PEM file of the authority that signs client certificates; empty requires none."
    )
    auth: bool = Field(True, description="Require a token for every call except health checks.")
    token_file: str = Field(
        default_factory=usual_path,
        description="File of the tokens, one principal per line: NAME SCOPES TOKEN. It is created at the first start, "
        "with the file admin-token beside it. SHARDCALL_TOKEN sets a single token instead.",
    )
    token: SecretStr = Field(SecretStr(""), description="The only token of the server, instead of those of a file.")
    insecure_allow_remote: bool = Field(
        False, description="Allow an address that other machines can reach, without TLS and authentication."
    )
    reflection: bool = Field(
        False, description="Allow gRPC reflection from other machines too; it is always allowed on loopback."
    )


class MeshSettings(BaseModel):
    """Devices, worker processes and hosts."""

    devices: int = Field(0, ge=0, le=512, description="Virtual CPU devices; 0 uses the platform's devices.")
    platform: Literal["", "cpu", "gpu", "tpu"] = Field(
        "", description="Platform of the devices; empty uses the one that JAX selects."
    )
    mesh: str = Field("", description="Default mesh, such as x=4,y=2; empty is one axis x over all devices.")
    spare_worker: bool = Field(
        True, description="Keep a spare worker process that takes over when the active one ends."
    )
    start_timeout_s: float = Field(120.0, gt=0, le=86400, description="Seconds for starting the mesh.")
    worker_silence_s: float = Field(
        3.0, ge=2, le=86400, description="Seconds without a heartbeat of the mesh, which sends one each second."
    )
    tune_allocator: bool = Field(True, description="Start with glibc's allocator configured to keep large blocks.")
    hosts: int = Field(
        0,
        ge=0,
        le=4096,
        description="Hosts of the mesh, each with an agent (shardcall worker); 0 is this host without an agent.",
    )
    hosts_port: int = Field(8471, ge=0, le=65535, description="Port at which agents join; 0 selects a free one.")
    host_silence_s: float = Field(8.0, ge=2, le=86400, description="Seconds without a heartbeat of a host's agent.")
    straggler_timeout_s: float = Field(
        5.0,
        ge=0.5,
        le=86400,
        description="Seconds that a host may be behind the others, or get almost no processor time.",
    )


class CallSettings(BaseModel):
    """Durations and numbers of calls."""

    max_call_s: float = Field(3600.0, gt=0, le=604800, description="Maximum seconds of a call.")
    stream_idle_s: float = Field(
        30.0,
        ge=0.1,
        le=604800,
        description="Seconds until a call ends whose next message neither arrives nor is accepted.",
    )
    max_concurrent_calls: int = Field(
        64,
        ge=1,
        le=4096,
        description="Maximum number of calls in progress, including those that wait for the mesh; as many more "
        "may arrive. Calls of call streams that wait for their clients are not counted.",
    )
    max_concurrent_calls_per_client: int = Field(
        0, ge=0, le=4096, description="Maximum number of calls in progress of one client; 0 is three quarters of all."
    )
    max_launched_calls: int = Field(
        8,
        ge=1,
        le=256,
        description="Maximum number of calls launched on the mesh, of one client at most two that take longer than 10 "
        "ms; further ones wait, and clients alternate. A call that takes at most 1 MiB on the devices counts as a "
        "quarter, unless the maximum is 1.",
    )
    max_queued_calls: int = Field(
        0, ge=0, le=4096, description="Maximum number of calls that wait for the mesh; 0 is max_concurrent_calls."
    )
    max_queued_calls_per_client: int = Field(
        0, ge=0, le=4096, description="Maximum number of waiting calls of one client; 0 is three quarters of all."
    )
    max_call_streams: int = Field(
        64, ge=1, le=4096, description="Maximum number of open call streams; one client has at most three quarters."
    )
    max_streamed_calls: int = Field(
        1024, ge=1, le=65536, description="Maximum number of unanswered calls of one call stream."
    )
    max_streamed_bytes: int = Field(
        64 * _MIB,
        ge=_MIB,
        description="Maximum bytes of the operands of the unanswered calls of one call stream, and of results that its "
        "client has not read.",
    )
    max_execute_s: float = Field(
        60.0, gt=0, le=604800, description="Maximum seconds of one run of a program; then the mesh is restarted."
    )
    slice_s: float = Field(
        0.5,
        gt=0,
        le=3600,
        description="Seconds of a launch of a loop in a traced program; other calls run between two launches.",
    )
    max_compile_s: float = Field(
        300.0,
        gt=0,
        le=604800,
        description="Maximum seconds of a compilation; then it ends, or the mesh restarts if the worker compiles.",
    )
    deadline_grace_s: float = Field(
        5.0,
        ge=0,
        le=604800,
        description="Seconds that a program may continue without a caller that waits; then the mesh is restarted.",
    )
    drain_s: float = Field(
        30.0, ge=0, le=86400, description="Seconds that a server which shuts down waits for calls in progress."
    )


class MemorySettings(BaseModel):
    """Memory of the host and of the devices."""

    max_call_bytes: int = Field(
        default_factory=lambda: memory_bytes() // 4, ge=_MIB, description="Maximum bytes of the arrays of one call."
    )
    max_bytes_in_flight: int = Field(
        default_factory=lambda: memory_bytes() // 2, ge=_MIB, description="Maximum bytes of the arrays of all calls."
    )
    max_bytes_per_client: int = Field(
        default_factory=lambda: memory_bytes() * 3 // 8,
        ge=_MIB,
        description="Maximum bytes of the arrays of all calls and segments of one client, identified by its token.",
    )
    segments: bool = Field(True, description="Share memory with clients of this user on this host.")
    shared_memory_regions: bool = Field(
        False,
        description="Let clients of the Open Inference Protocol on this host register any file of this user in "
        "/dev/shm; see docs/inference.md.",
    )
    max_segment_bytes: int = Field(
        default_factory=lambda: memory_bytes() // 4,
        ge=2 * _MIB,
        description="Maximum bytes of all segments of one client.",
    )
    trim_after_s: float = Field(
        10.0, ge=0.1, le=86400, description="Seconds that unused memory is kept for the next call."
    )
    max_device_bytes: int = Field(
        0,
        ge=0,
        description="Maximum bytes on all devices of resident arrays and running programs; 0 is the memory that the "
        "platform reports, or else the host's.",
    )
    max_resident_bytes: int = Field(
        0,
        ge=0,
        description="Maximum bytes on the devices of all resident arrays, at most max_device_bytes; 0 is seven "
        "eighths of the memory that the platform reports, or else half of the host's.",
    )
    max_resident_arrays: int = Field(
        1 << 18,
        ge=1,
        le=1 << 24,
        description="Maximum number of all resident arrays; one client has at most three quarters of them.",
    )
    max_resident_bytes_per_lease: int = Field(
        0,
        ge=0,
        description="Maximum bytes on the devices of the resident arrays of one lease; 0 is the limit of its client.",
    )
    max_resident_bytes_per_client: int = Field(
        0,
        ge=0,
        description="Maximum bytes on the devices of the resident arrays of one client; 0 is three quarters of what "
        "other clients leave of max_resident_bytes.",
    )
    lease_s: float = Field(
        60.0, ge=1, le=86400, description="Seconds after which the arrays of a client without contact are deleted."
    )
    max_lease_s: float = Field(
        86400.0,
        ge=0,
        description="Maximum seconds for which a client may have arrays kept without contact; 0 forbids it.",
    )


class ArrayFileSettings(BaseModel):
    """Arrays in files of the server."""

    array_dir: str = Field(
        "", description="Folder of the files in which clients save arrays, see docs/files.md; empty for none."
    )
    max_file_bytes: int = Field(64 << 30, ge=_MIB, description="Maximum bytes of the files of one client.")
    max_files: int = Field(1000, ge=1, le=10000, description="Maximum number of the files of one client.")


class ProgramSettings(BaseModel):
    """Compiled programs and the selection of strategies."""

    max_cached_programs: int = Field(
        256,
        ge=1,
        description="Maximum number of compiled programs in the cache. Each has up to 70 memory mappings, and Linux "
        "permits a process 65,530 of them (vm.max_map_count).",
    )
    max_cached_bytes: int = Field(1 << 30, ge=_MIB, description="Maximum bytes of compiled programs in the cache.")
    max_compiler_bytes: int = Field(
        4 << 30,
        ge=256 << 20,
        description="Maximum bytes that compiling one program may allocate, where a compiler process does it.",
    )
    cache_dir: str = Field(
        default_factory=default_cache_dir,
        description="Folder of compiled programs and tuning results for later starts; empty for none.",
    )
    max_program_dir_bytes: int = Field(
        4 << 30,
        ge=64 << 10,
        description="Maximum bytes of compiled programs in cache_dir; the least recently used are removed first.",
    )
    warm_up_file: str = Field(
        "",
        description="JSON file of calls whose programs are compiled before the server is ready; see docs/serving.md.",
    )
    warm_up_s: float = Field(
        10.0,
        ge=0,
        le=86400,
        description="Seconds for preparing programs before the server is ready: those of warm_up_file, and those "
        "that were called most before the start; 0 for none.",
    )
    strategy: Literal["measured", "fixed"] = Field(
        "measured",
        description="Selection of a strategy for auto: measured times the strategies that support a call, once, when "
        "the mesh is idle; fixed uses the kernel's rule.",
    )
    known_answers: Literal["beside", "strict"] = Field(
        "beside",
        description="Tests of the compiler by known answers: beside runs those of a kernel beside its first calls; "
        "strict lets the calls wait for them.",
    )
    max_timing_s: float = Field(
        0.5, gt=0, le=600, description="Maximum seconds on the mesh for timing the strategies of one call."
    )


class ObservabilitySettings(BaseModel):
    """Metrics, traces, profiles and the log."""

    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the metrics for Prometheus, the probes and the live page, such as 9470; 0 selects a free "
        "one; unset disables them.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address of the metrics and the probes, which need no token.")
    live_page: bool = Field(
        False,
        description="Serve a page for browsers at metrics_port that shows what all clients do; see docs/live_page.md.",
    )
    max_page_viewers: int = Field(
        8, ge=1, le=64, description="Maximum number of browsers that watch the live page at a time."
    )
    otel_endpoint: str = Field(
        "",
        description="OTLP/HTTP collector of spans, such as http://localhost:4318; empty uses "
        "OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    max_profile_bytes: int = Field(1 << 30, ge=_MIB, description="Maximum bytes of one profile.")
    log_level: LogLevel = Field("info", description="Lowest level that is logged.")


GROUPS: tuple[type[BaseModel], ...] = (
    NetworkSettings,
    AccessSettings,
    MeshSettings,
    CallSettings,
    MemorySettings,
    ArrayFileSettings,
    ProgramSettings,
    ObservabilitySettings,
)
