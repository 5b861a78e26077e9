"""The settings of a server and their checks. A flag overrides the environment, which overrides the TOML file."""

from __future__ import annotations

import math
import re
from typing import Self

from pydantic import SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from shardcall_core.access.addresses import is_loopback
from shardcall_core.types.sizes import exact
from shardcall_core.wire.token_file import is_token
from shardcall_core.wire.variables import is_service_link
from shardcall_server.setting_groups import (
    AccessSettings,
    ArrayFileSettings,
    CallSettings,
    MemorySettings,
    MeshSettings,
    NetworkSettings,
    ObservabilitySettings,
    ProgramSettings,
)

ENVIRONMENT_PREFIX = "SHARDCALL_"
ENVIRONMENT_ONLY = frozenset({"token"})
"""Settings without a flag: other users can read the arguments of a process."""
_AXIS = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*([1-9][0-9]*)\s*")


class SettingsError(ValueError):
    """An invalid setting. The message names the setting, its value and what is allowed."""


class Settings(
    BaseSettings,
    ObservabilitySettings,
    ProgramSettings,
    ArrayFileSettings,
    MemorySettings,
    CallSettings,
    MeshSettings,
    AccessSettings,
    NetworkSettings,
):
    """All settings of a server."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True)

    @field_validator("mesh")
    @classmethod
    def _check_mesh(cls, value: str) -> str:
        if value and not all(_AXIS.fullmatch(axis) for axis in value.split(",")):
            raise ValueError("write comma-separated axes of the form name=size, such as x=4,y=2")
        names = [axis.partition("=")[0].strip() for axis in value.split(",")]
        if len(set(names)) < len(names):
            raise ValueError("give every axis a different name")
        return value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() and not is_token(value.get_secret_value()):
            raise ValueError(
                "a token has 16 to 512 letters, digits and ._~+/=-; generate one with: openssl rand -hex 32"
            )
        return value

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if self.devices and self.platform not in {"", "cpu"}:
            raise ValueError(f"virtual devices belong to the platform cpu; omit devices for {self.platform}")
        if self.devices and self.hosts:
            raise ValueError("with hosts, the agents create the devices; use shardcall worker --devices instead")
        if self.hosts and self.port and self.port == self.hosts_port:
            raise ValueError(f"port and hosts_port are both {self.port}; choose different ports")
        self.check_mesh(self.devices)
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            present, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ValueError(f"setting {present} is set without {missing}; set both, or neither to disable TLS")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("setting tls_client_ca requires TLS; set tls_cert and tls_key too")
        return self

    @model_validator(mode="after")
    def _check_live_page(self) -> Self:
        if self.live_page and self.metrics_port is None:
            raise ValueError("setting live_page needs a port; set metrics_port too, such as to 9470")
        if self.live_page and not (is_loopback(self.metrics_host) or self.insecure_allow_remote):
            raise ValueError(
                f"setting live_page sends what all clients do by plain HTTP, and metrics_host is {self.metrics_host!r},"
                " which other machines may reach; use localhost with ssh -L, or add insecure_allow_remote on a network "
                "that you trust"
            )
        return self

    @model_validator(mode="after")
    def _check_bytes(self) -> Self:
        if self.max_call_bytes > self.max_bytes_in_flight:
            raise ValueError(
                f"max_call_bytes is {exact(self.max_call_bytes)}, more than max_bytes_in_flight, which is "
                f"{exact(self.max_bytes_in_flight)}; decrease the first or increase the second"
            )
        return self

    def check_mesh(self, devices: int) -> None:
        """Raises ValueError if the default mesh has more devices than exist; 0 if their number is not known."""
        requested = math.prod(size for _, size in self.mesh_axes)
        if devices and requested > devices:
            raise ValueError(f"setting mesh is {self.mesh!r}, which needs {requested} devices, and there are {devices}")

    @property
    def calls_per_client(self) -> int:
        """The limit of concurrent calls of one client."""
        return self.max_concurrent_calls_per_client or client_share(self.max_concurrent_calls)

    @property
    def calls_per_connection(self) -> int:
        """The limit of concurrent calls of one connection."""
        return client_share(self.calls_per_client)

    @property
    def queued_calls(self) -> int:
        """The limit of calls that wait for the mesh."""
        return self.max_queued_calls or self.max_concurrent_calls

    @property
    def queued_calls_per_client(self) -> int:
        """The limit of waiting calls of one client."""
        return self.max_queued_calls_per_client or client_share(self.queued_calls)

    @property
    def device_platform(self) -> str:
        """The platform of the devices; empty if JAX selects it."""
        return self.platform or ("cpu" if self.devices else "")

    @property
    def mesh_axes(self) -> tuple[tuple[str, int], ...]:
        """The axes of the default mesh; empty if it is not set."""
        matches = [_AXIS.fullmatch(axis) for axis in self.mesh.split(",") if axis]
        return tuple((match[1], int(match[2])) for match in matches if match)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the sources by precedence: flags, the environment, the file of `SHARDCALL_CONFIG` or ``--config``."""
        if isinstance(env_settings, EnvSettingsSource):
            env_settings.env_vars = {
                key: value
                for key, value in env_settings.env_vars.items()
                if not is_service_link(key.removeprefix(ENVIRONMENT_PREFIX.lower()), value or "")
            }
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def client_share(limit: int) -> int:
    """Returns the part of a shared limit that one client may use: three quarters."""
    return max(1, limit * 3 // 4)
