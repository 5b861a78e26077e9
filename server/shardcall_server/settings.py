"""The server's settings: flag > environment `SHARDCALL_*` > TOML file > default."""

from __future__ import annotations

import math
import os
import re
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from shardcall._src.wire.token_file import is_token, usual_path
from shardcall._src.wire.variables import is_service_link
from shardcall_server.host_memory import memory_bytes

ENVIRONMENT_PREFIX = "SHARDCALL_"
ENVIRONMENT_ONLY = frozenset({"token"})
"""Settings that are no flags: others see the words of a command."""
LogLevel = Literal["debug", "info", "warning", "error"]
_MIB = 1 << 20
_AXIS = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*([1-9][0-9]*)\s*")


class SettingsError(ValueError):
    """A setting that cannot be: which, what was given and what is allowed."""


def usual_cache_dir() -> str:
    """Where this user's programs keep what can be had again; empty where that is not known."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification: a relative one is to be ignored
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "shardcall") if os.path.isabs(base) else ""


class Settings(BaseSettings):
    """Everything about a server that its keeper may choose."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True)

    host: str = Field("localhost", description="Address to listen on; localhost is 127.0.0.1 and ::1.")
    port: int = Field(8470, ge=0, le=65535, description="Port to listen on; 0 lets the system choose.")
    unix_socket: str = Field("", description="Path of a Unix socket to listen on too, for this user alone.")
    tls_cert: str = Field("", description="PEM file of the server's certificate and its chain; turns TLS on.")
    tls_key: str = Field("", description="PEM file of its key, which only this user may read.")
    tls_client_ca: str = Field(
        "", description="PEM file of the authority whose certificates clients must have; empty asks them for none."
    )
    auth: bool = Field(True, description="Ask who calls: every call but a health check must bring a known token.")
    token_file: str = Field(
        default_factory=usual_path,
        description="File of the tokens: NAME SCOPES TOKEN, a principal a line; made at the first start, with the file "
        "admin-token beside it. "
        "SHARDCALL_TOKEN gives the only token instead.",
    )
    token: SecretStr = Field(
        SecretStr(""), description="The one token that the server knows, instead of those of a file."
    )
    insecure_allow_remote: bool = Field(
        False, description="Allow an address that other machines can reach, without TLS and authentication."
    )
    reflection: bool = Field(
        False, description="Let gRPC's tools ask for the contract from other machines too; on loopback they may."
    )
    max_connections: int = Field(512, ge=1, le=65536, description="Most connections; those above are closed at once.")
    max_streams_per_connection: int = Field(
        8192, ge=1, le=65536, description="Most calls at once of one connection; gRPC itself refuses those above."
    )
    handshake_timeout_s: float = Field(
        10.0, gt=0, le=600, description="Longest beginning of a connection, TLS included, in seconds."
    )
    max_connection_idle_s: float = Field(
        1800.0, ge=1, le=604800, description="How long a connection without calls is kept, in seconds."
    )
    devices: int = Field(0, ge=0, le=512, description="Virtual CPU devices; 0 takes the platform's own.")
    platform: Literal["", "cpu", "gpu", "tpu"] = Field(
        "", description="Platform of the devices; empty takes what JAX finds."
    )
    hosts: int = Field(
        0,
        ge=0,
        le=4096,
        description="Hosts that the mesh is made of, each with an agent (shardcall worker); 0 is this one, without.",
    )
    hosts_port: int = Field(8471, ge=0, le=65535, description="Port at which agents join; 0 lets the system choose.")
    host_silence_s: float = Field(
        8.0, ge=2, le=86400, description="How long the agent of a host may give no sign of life, in seconds."
    )
    host_lag_s: float = Field(
        5.0,
        ge=0.5,
        le=86400,
        description="How long a host may be behind the others, in seconds, or get almost no processor.",
    )
    mesh: str = Field("", description="Default mesh, such as x=4,y=2; empty is one axis x over all devices.")
    max_call_bytes: int = Field(
        default_factory=lambda: memory_bytes() // 4, ge=_MIB, description="Most bytes of arrays in one call."
    )
    max_bytes_in_flight: int = Field(
        default_factory=lambda: memory_bytes() // 2, ge=_MIB, description="Most bytes of arrays in all calls."
    )
    max_bytes_per_client: int = Field(
        default_factory=lambda: memory_bytes() * 3 // 8,
        ge=_MIB,
        description="Most bytes of arrays in all calls and segments of one client, by its token.",
    )
    max_call_s: float = Field(3600.0, gt=0, le=604800, description="Longest call, in seconds.")
    stream_idle_s: float = Field(
        30.0,
        ge=0.1,
        le=604800,
        description="Longest wait for a call's next message to come or to be taken, in seconds; then the call ends.",
    )
    max_concurrent_calls: int = Field(
        64,
        ge=1,
        le=4096,
        description="Most calls worked on at once, those included that wait for the mesh; as many more may arrive.",
    )
    max_concurrent_calls_per_client: int = Field(
        0, ge=0, le=4096, description="Most of them of one client; 0 is three quarters of all."
    )
    max_launched_calls: int = Field(
        8, ge=1, le=256, description="Most calls that the mesh has at once; others wait in turns between clients."
    )
    max_queued_calls: int = Field(
        0, ge=0, le=4096, description="Most calls that wait for the mesh; 0 is max_concurrent_calls."
    )
    max_queued_calls_per_client: int = Field(
        0, ge=0, le=4096, description="Most of them of one client; 0 is three quarters of all."
    )
    max_device_bytes: int = Field(
        0,
        ge=0,
        description="Most bytes on the devices together, of arrays that stay and programs that run; 0 is what the "
        "platform tells, or else the host's memory.",
    )
    max_cached_programs: int = Field(256, ge=1, description="Most compiled programs kept.")
    max_cached_bytes: int = Field(1 << 30, ge=_MIB, description="Most bytes of compiled programs kept.")
    strategy: Literal["measured", "fixed"] = Field(
        "measured",
        description="What auto stands for: measured times the strategies that can serve a call, once; "
        "fixed goes by each kernel's rule.",
    )
    max_timing_s: float = Field(
        0.5, gt=0, le=600, description="Longest use of the mesh to time the strategies of one call, in seconds."
    )
    cache_dir: str = Field(
        default_factory=usual_cache_dir,
        description="Folder for what outlasts the server, such as compiled programs and the strategies that were "
        "timed; empty for none.",
    )
    max_program_dir_bytes: int = Field(
        4 << 30,
        ge=64 << 10,
        description="Most bytes of compiled programs kept in cache_dir; the least recently used go first.",
    )
    warm: str = Field(
        "", description="TOML file of calls whose programs are made before the server is ready; see the README."
    )
    warm_s: float = Field(
        10.0,
        ge=0,
        le=86400,
        description="Longest making of programs before the server is ready: those of warm, and those that were called "
        "most before it was started; 0 for none.",
    )
    max_message_bytes: int = Field(4 * _MIB, ge=2 * _MIB, le=64 * _MIB, description="Largest gRPC message.")
    max_inline_bytes: int = Field(_MIB, ge=0, le=_MIB, description="Most bytes of arrays in a unary call.")
    max_chunk_bytes: int = Field(_MIB, ge=4096, le=_MIB, description="Most bytes in a chunk of a stream.")
    segments: bool = Field(True, description="Share memory with clients of this user on this host.")
    max_segment_bytes: int = Field(
        default_factory=lambda: memory_bytes() // 4,
        ge=2 * _MIB,
        description="Most bytes that the segments of one client may have together.",
    )
    max_resident_bytes: int = Field(
        0,
        ge=0,
        description="Most bytes on the devices of arrays that stay, in all; 0 is seven eighths of what the platform "
        "tells that they have, or else half of the host's memory, and no more than max_device_bytes.",
    )
    max_resident_bytes_per_lease: int = Field(
        0,
        ge=0,
        description="Most bytes on the devices of arrays that stay under one lease; 0 is what its client may have.",
    )
    max_resident_bytes_per_client: int = Field(
        0,
        ge=0,
        description="Most bytes on the devices of arrays that stay under all leases of one client; 0 is three quarters "
        "of what others leave of max_resident_bytes.",
    )
    lease_s: float = Field(
        60.0, ge=1, le=86400, description="How long arrays stay after their client was last heard of, in seconds."
    )
    trim_after_s: float = Field(
        10.0, ge=0.1, le=86400, description="How long memory is kept warm for the next call, in seconds."
    )
    max_execute_s: float = Field(
        60.0, gt=0, le=604800, description="Longest run of one program, in seconds; then the mesh is restarted."
    )
    max_compile_s: float = Field(
        300.0,
        gt=0,
        le=604800,
        description="Longest compilation of one program, in seconds; then the mesh is restarted.",
    )
    deadline_grace_s: float = Field(
        5.0,
        ge=0,
        le=604800,
        description="How long a program may go on running that nobody waits for any more, in seconds; then the mesh is "
        "restarted.",
    )
    worker_silence_s: float = Field(
        3.0, ge=2, le=86400, description="How long the mesh may give no sign of life, one of which is due every second."
    )
    spare_worker: bool = Field(
        True, description="Keep a second worker process standing by, which takes over when the first ends."
    )
    start_timeout_s: float = Field(120.0, gt=0, le=86400, description="Longest start of the mesh, in seconds.")
    drain_s: float = Field(30.0, ge=0, le=86400, description="Longest wait for calls at work when the server ends.")
    tune_allocator: bool = Field(True, description="Start with glibc's allocator set to keep large blocks.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the metrics for Prometheus, such as 9470; 0 lets the system choose; without it there are "
        "none.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address of the metrics, which ask nobody who they are.")
    otel_endpoint: str = Field(
        "",
        description="OTLP/HTTP collector of spans, such as http://localhost:4318; empty for that of "
        "OTEL_EXPORTER_OTLP_ENDPOINT, if there is one.",
    )
    max_profile_bytes: int = Field(1 << 30, ge=_MIB, description="Most bytes of one profile.")
    log_level: LogLevel = Field("info", description="Least level logged.")

    @field_validator("mesh")
    @classmethod
    def _check_mesh(cls, value: str) -> str:
        if value and not all(_AXIS.fullmatch(axis) for axis in value.split(",")):
            raise ValueError("write axes as name=size with commas between, such as x=4,y=2")
        names = [axis.partition("=")[0].strip() for axis in value.split(",")]
        if len(set(names)) < len(names):
            raise ValueError("name every axis once")
        return value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() and not is_token(value.get_secret_value()):
            raise ValueError("a token has 16 to 512 letters, digits and ._~+/=-; make one: openssl rand -hex 32")
        return value

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if self.devices and self.platform not in {"", "cpu"}:
            raise ValueError(f"virtual devices are of the platform cpu; leave devices out for {self.platform}")
        if self.devices and self.hosts:
            raise ValueError("devices are made by the agents where there are hosts; give shardcall worker --devices")
        if self.hosts and self.port and self.port == self.hosts_port:
            raise ValueError(f"port and hosts_port are both {self.port}; agents join at a port of their own")
        self.check_mesh(self.devices)
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ValueError(f"setting {given} is given without {missing}; give both, or neither for no TLS")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("setting tls_client_ca needs TLS; give tls_cert and tls_key too")
        return self

    @model_validator(mode="after")
    def _check_bytes(self) -> Self:
        if self.max_call_bytes > self.max_bytes_in_flight:
            raise ValueError(
                f"max_call_bytes is {self.max_call_bytes}, more than the {self.max_bytes_in_flight} of "
                "max_bytes_in_flight; lower the one or raise the other"
            )
        return self

    def check_mesh(self, devices: int) -> None:
        """Raises ValueError if the default mesh asks for more devices than there are; 0 if that is not known."""
        asked = math.prod(size for _, size in self.mesh_axes)
        if devices and asked > devices:
            raise ValueError(f"setting mesh is {self.mesh!r}, of {asked} devices, and there are {devices}")

    @property
    def calls_per_client(self) -> int:
        """The most calls of one client at once."""
        return self.max_concurrent_calls_per_client or client_share(self.max_concurrent_calls)

    @property
    def calls_per_connection(self) -> int:
        """The most calls of one connection at once."""
        return client_share(self.calls_per_client)

    @property
    def queued_calls(self) -> int:
        """The most calls that wait for the mesh."""
        return self.max_queued_calls or self.max_concurrent_calls

    @property
    def queued_calls_per_client(self) -> int:
        """The most of them of one client."""
        return self.max_queued_calls_per_client or client_share(self.queued_calls)

    @property
    def device_platform(self) -> str:
        """The devices' platform; empty for what JAX finds."""
        return self.platform or ("cpu" if self.devices else "")

    @property
    def mesh_axes(self) -> tuple[tuple[str, int], ...]:
        """The default mesh's axes; empty where none is set."""
        found = [_AXIS.fullmatch(axis) for axis in self.mesh.split(",") if axis]
        return tuple((match[1], int(match[2])) for match in found if match)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file that `SHARDCALL_CONFIG` or ``--config`` names."""
        if isinstance(env_settings, EnvSettingsSource):
            env_settings.env_vars = {
                key: value
                for key, value in env_settings.env_vars.items()
                if not is_service_link(key.removeprefix(ENVIRONMENT_PREFIX.lower()), value or "")
            }
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def client_share(limit: int) -> int:
    """What one client may have of something that all share: three quarters, so that it cannot take it all."""
    return max(1, limit * 3 // 4)
