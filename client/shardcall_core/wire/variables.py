"""The environment variables that begin with SHARDCALL_, and warnings about those that nothing reads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

PREFIX = "SHARDCALL_"

_COMMANDS = frozenset(
    {"address", "ca_certificate", "config", "debug_locks", "name", "token", "token_file", "tracebacks"}
)
SETTINGS = frozenset(
    [
        "array_dir",
        "auth",
        "cache_dir",
        "deadline_grace_s",
        "devices",
        "drain_s",
        "handshake_timeout_s",
        "host",
        "straggler_timeout_s",
        "host_silence_s",
        "hosts",
        "hosts_port",
        "insecure_allow_remote",
        "lease_s",
        "live_page",
        "known_answers",
        "log_level",
        "max_bytes_in_flight",
        "max_bytes_per_client",
        "max_cached_bytes",
        "max_cached_programs",
        "max_call_bytes",
        "max_call_s",
        "max_call_streams",
        "max_chunk_bytes",
        "max_compile_s",
        "max_compiler_bytes",
        "max_concurrent_calls",
        "max_concurrent_calls_per_client",
        "max_connection_idle_s",
        "max_connections",
        "max_device_bytes",
        "max_execute_s",
        "max_file_bytes",
        "max_files",
        "max_inline_bytes",
        "max_launched_calls",
        "max_lease_s",
        "max_message_bytes",
        "max_page_viewers",
        "max_profile_bytes",
        "max_program_dir_bytes",
        "max_queued_calls",
        "max_queued_calls_per_client",
        "max_resident_bytes",
        "max_resident_bytes_per_client",
        "max_resident_arrays",
        "max_resident_bytes_per_lease",
        "max_segment_bytes",
        "max_streamed_bytes",
        "max_streamed_calls",
        "max_streams_per_connection",
        "max_timing_s",
        "mesh",
        "metrics_host",
        "metrics_port",
        "otel_endpoint",
        "platform",
        "port",
        "reflection",
        "segments",
        "shared_memory_regions",
        "slice_s",
        "spare_worker",
        "start_timeout_s",
        "strategy",
        "stream_idle_s",
        "tls_cert",
        "tls_client_ca",
        "tls_key",
        "token",
        "token_file",
        "trim_after_s",
        "tune_allocator",
        "unix_socket",
        "warm_up_file",
        "warm_up_s",
        "worker_silence_s",
    ]
)
"""The settings of a server, each of which is a variable too."""

# Kubernetes sets these in every pod beside a service whose name begins with shardcall.
_SERVICE_LINK = re.compile(r"(^|_)service_(host|port)(_|$)|(^|_)port_\d+_(tcp|udp|sctp)(_|$)")
_LINKS_URL = re.compile(r"(tcp|udp|sctp)://")

_reported = False


def report_unknown(report: Callable[[str], None]) -> None:
    """Reports the unknown variables, once in a process.

    Args:
        report: called with a sentence for each.
    """
    global _reported  # noqa: PLW0603  # once in a process
    if not _reported:
        _reported = True
        for sentence in unknown(os.environ):
            report(sentence)


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each unknown variable, except those that Kubernetes sets for a service."""
    names = _COMMANDS | SETTINGS
    sentences = []
    for key in sorted(environment):
        name = key.removeprefix(PREFIX).lower()
        if not key.startswith(PREFIX) or name in names or is_service_link(name, environment[key]):
            continue
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {PREFIX}{near[0].upper()}?" if near else "shardcall serve --help lists those of a server"
        sentences.append(f"nothing reads the environment variable {key}; {hint}")
    return sentences


def shadowed(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each variable that has the name of a setting and that Kubernetes has set for a service."""
    return [
        f"the environment variable {key} is {environment[key]!r}, as Kubernetes sets it beside a service of that name, "
        f"and is not taken for the setting {name}; give the setting by --{name.replace('_', '-')}, or have the pod's "
        "spec say enableServiceLinks: false"
        for key in sorted(environment)
        if key.startswith(PREFIX)
        and (name := key.removeprefix(PREFIX).lower()) in SETTINGS
        and is_service_link(name, environment[key])
    ]


def is_service_link(name: str, value: str) -> bool:
    """Returns True for a variable that Kubernetes sets for a service.

    Args:
        name: the name without the prefix, in lower case.
        value: the value of the variable.
    """
    if name.endswith("port") and _LINKS_URL.match(value):
        return True
    return name not in SETTINGS and _SERVICE_LINK.search(name) is not None
