"""Flags, platforms, environment and signals of the server's processes; the tests need no GPU."""

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from rows import rows

from shardcall_server import launcher
from shardcall_server.launcher import ensure_environment_early, quiet_environment, tuned_environment, worker_environment
from shardcall_server.mesh.worker import jax_platforms
from shardcall_server.standard_streams import stop_signals


def install(monkeypatch: pytest.MonkeyPatch, *plugins: str) -> None:
    """Has these plugins of JAX installed alone."""
    entries = [EntryPoint(name, f"jax_plugins.{name}", "jax_plugins") for name in plugins]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries if group == "jax_plugins" else [])


def test_settings_of_the_administrator_stay():
    tuned = tuned_environment({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"})["GLIBC_TUNABLES"].split(":")
    assert [t for t in tuned if "arena_max" in t] == ["glibc.malloc.arena_max=4"]
    assert quiet_environment({})["GRPC_VERBOSITY"] == "NONE"
    assert quiet_environment({"GRPC_VERBOSITY": "INFO"})["GRPC_VERBOSITY"] == "INFO"
    flags = worker_environment({"XLA_FLAGS": "--xla_cpu_prefer_vector_width=256"})["XLA_FLAGS"].split()
    assert flags[-1] == "--xla_cpu_prefer_vector_width=256", "the last one wins"
    assert any("terminate_timeout" in flag for flag in flags)


@rows(
    ("features", "flags"),
    [
        ("fpu avx2", []),
        ("fpu avx512f avx512_vnni", ["prefer_vector_width"]),
        ("fpu avx512f avx512_bf16", ["prefer_vector_width", "max_isa"]),
    ],
)
def test_flags_are_those_of_the_processor(monkeypatch, features, flags):
    cpu_info = f"processor : 0\nflags\t\t: {features}\nbugs : avx512_bf16\n"
    monkeypatch.setattr(launcher.Path, "read_text", lambda _: cpu_info)
    xla_flags = worker_environment({}, "cpu")["XLA_FLAGS"]
    assert [name for name in ("prefer_vector_width", "max_isa") if f"--xla_cpu_{name}=" in xla_flags] == flags


@rows(
    ("platform", "environment", "on_gpu"),
    [
        ("gpu", {}, True),
        ("gpu", {"JAX_PLATFORMS": "cpu"}, True),
        ("cpu", {}, False),
        ("cpu", {"JAX_PLATFORMS": "cuda"}, False),
        ("tpu", {}, False),
        ("", {"JAX_PLATFORMS": "cuda,cpu"}, True),
        ("", {"JAX_PLATFORMS": "cpu"}, False),
    ],
)
def test_flags_for_gpus_are_set_for_gpus_alone(platform, environment, on_gpu):
    flags = worker_environment(environment, platform)["XLA_FLAGS"]
    assert ("--xla_gpu_enable_latency_hiding_scheduler=true" in flags.split()) == on_gpu
    assert ("xla_gpu" in flags) == on_gpu


@rows(
    ("plugins", "nodes", "on_gpu"),
    [
        (["xla_cuda12"], ["/dev/null"], True),
        (["xla_rocm7"], ["/dev/null"], True),
        (["xla_cuda12"], ["/dev/none"], False),
        (["libtpu"], ["/dev/null"], False),
        ([], ["/dev/null"], False),
    ],
)
def test_without_a_platform_there_is_a_gpu_where_jax_finds_one(monkeypatch, plugins, nodes, on_gpu):
    install(monkeypatch, *plugins)
    monkeypatch.setattr(launcher, "_GPU_NODES", nodes)
    assert ("xla_gpu" in worker_environment({})["XLA_FLAGS"]) == on_gpu


@rows(
    ("plugins", "platforms"),
    [(["xla_cuda13"], "cuda"), (["xla_rocm7"], "rocm"), (["other", "xla_rocm7", "xla_cuda12"], "cuda,rocm")],
)
def test_a_platform_is_asked_for_only_where_its_plugin_is_installed(monkeypatch, plugins, platforms):
    """JAX fails for one that it does not know, though the other is there."""
    install(monkeypatch, *plugins)
    assert jax_platforms("gpu") == platforms
    assert [jax_platforms(name) for name in ("cpu", "tpu")] == ["cpu", "tpu"]


def test_without_a_plugin_the_error_says_which_to_install(monkeypatch):
    install(monkeypatch)
    with pytest.raises(RuntimeError, match=r"without GPU support; pip install .shardcall\[cuda13\]"):
        jax_platforms("gpu")


def test_the_installed_xla_knows_every_flag():
    """XLA exits on an unknown flag; the flags of all platforms are accepted on each."""
    environment = worker_environment({**os.environ, "JAX_PLATFORMS": "cpu"}, "gpu")
    subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment, check=True)


@rows(
    ("argv", "environment", "at_once"),
    [
        (["serve", "--devices", "8"], {}, True),
        (["worker", "--join", "a:8471"], {"SHARDCALL_DEVICES": "2"}, True),
        (["serve", "--no-tune-allocator"], {}, False),
        (["serve", "--config=server.toml"], {}, False),
        (["serve"], {"shardcall_tune_allocator": "no"}, False),
        (["serve"], {"SHARDCALL_CONFIG": "server.toml"}, False),
        (["serve"], tuned_environment(quiet_environment({})), False),
    ],
)
def test_a_command_starts_again_before_its_imports_unless_a_setting_forbids_it(monkeypatch, argv, environment, at_once):
    started = []
    monkeypatch.setattr(launcher, "use_log_output", lambda: None)  # it is for a process of the server's own
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(os, "execve", lambda program, arguments, variables: started.append((program, variables)))
    ensure_environment_early(argv)
    assert started == ([(sys.executable, tuned_environment(quiet_environment(environment)))] if at_once else [])


def test_too_little_virtual_memory_is_reported_in_one_line():
    limit = "resource.setrlimit(resource.RLIMIT_AS, (500_000 << 10,) * 2)"
    command = [sys.executable, "-c", f"import resource; from shardcall.cli import main; {limit}; main()", "serve"]
    ended = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert ended.returncode == 2
    line = r"shardcall: the server needs more .* which is 500000 KiB \(ulimit -v unlimited\)\n"
    assert re.fullmatch(line, ended.stderr)


@rows(
    ("has_terminal", "before", "stops"),
    [
        (True, signal.SIG_DFL, True),
        (True, signal.SIG_IGN, False),  # nohup
        (False, signal.SIG_DFL, False),
    ],
)
def test_the_end_of_its_terminal_stops_a_process_that_has_one(monkeypatch, has_terminal, before, stops):
    handled: dict[int, object] = {}
    monkeypatch.setattr(os, "isatty", lambda fd: has_terminal and fd == 2)
    monkeypatch.setattr(signal, "getsignal", lambda number: before)
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    expected = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} if stops else {signal.SIGTERM, signal.SIGINT}
    assert set(stop_signals()) == expected
    ignored = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP} - expected
    assert handled == dict.fromkeys(ignored, signal.SIG_IGN)
