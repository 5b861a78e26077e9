"""Settings: flag > environment > file > default, and unknown ones are refused."""

import inspect
import os
import platform
from unittest.mock import MagicMock

import pytest
import typer
from rows import rows

from shardcall_core.wire import variables
from shardcall_server.commands import serve as command
from shardcall_server.frontend import serving
from shardcall_server.host_memory import memory_bytes
from shardcall_server.setting_groups import GROUPS
from shardcall_server.settings import Settings, SettingsError
from shardcall_server.settings_sources import load_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in os.environ:
        if name.startswith("SHARDCALL_"):
            monkeypatch.delenv(name)


def test_flags_override_the_environment_which_overrides_the_file_which_overrides_defaults(monkeypatch, tmp_path):
    config = tmp_path / "server.toml"
    config.write_text("port = 1\ndevices = 2\nmax_call_s = 3.5\n")
    monkeypatch.setenv("SHARDCALL_PORT", "10")
    monkeypatch.setenv("SHARDCALL_DEVICES", "20")
    settings = load_settings({"port": "100"}, config)
    assert (settings.port, settings.devices, settings.max_call_s, settings.drain_s) == (100, 20, 3.5, 30.0)


@rows(
    ("flags", "says"),
    [
        ({"port": "70000"}, "port.*70000"),
        ({"port": "http"}, "port.*http"),
        ({"devices": "-1"}, "devices.*-1"),
        ({"mesh": "x:8"}, "mesh.*x=4,y=2"),
        ({"devices": "8", "platform": "gpu"}, "omit devices for gpu"),
        ({"log_level": "loud"}, "log_level.*loud"),
        ({"max_chunk_bytes": "1"}, "max_chunk_bytes"),
    ],
)
def test_a_value_that_cannot_be_is_named(flags, says):
    with pytest.raises(SettingsError, match=says):
        load_settings(flags)


def test_the_variables_that_are_accepted_are_those_of_the_settings():
    assert set(Settings.model_fields) == variables.SETTINGS


def test_an_unknown_variable_is_reported_with_the_nearest_and_does_no_harm(monkeypatch):
    monkeypatch.setenv("SHARDCALL_DEVCIES", "8")
    assert load_settings({}).devices == 0
    (said,) = variables.unknown(os.environ)
    assert said == "nothing reads the environment variable SHARDCALL_DEVCIES; did you mean SHARDCALL_DEVICES?"
    assert variables.unknown({"SHARDCALL_XYZ": ""})[0].endswith("shardcall serve --help lists those of a server")


def test_an_invalid_value_is_named_with_its_source(monkeypatch):
    monkeypatch.setenv("SHARDCALL_DEVICES", "-2")
    with pytest.raises(SettingsError, match=r"setting devices \(environment variable SHARDCALL_DEVICES\) is '-2': "):
        load_settings({"port": "1"})
    with pytest.raises(SettingsError, match=r"setting devices is '-3': "):
        load_settings({"devices": "-3"})


KUBERNETES = {
    "SHARDCALL_PORT": "tcp://10.0.0.1:8470",
    "SHARDCALL_METRICS_PORT": "tcp://10.0.0.1:9464",
    "SHARDCALL_SERVICE_HOST": "10.0.0.1",
    "SHARDCALL_SERVICE_PORT_GRPC": "8470",
    "SHARDCALL_PORT_8470_TCP_ADDR": "10.0.0.1",
    "SHARDCALL_METRICS_SERVICE_HOST": "10.0.0.1",
    "SHARDCALL_METRICS_PORT_9464_TCP": "tcp://10.0.0.1:9464",
}


def test_what_kubernetes_sets_for_a_service_does_no_harm(monkeypatch):
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    settings = load_settings({})
    assert (settings.port, settings.metrics_port) == (8470, None)
    assert variables.unknown(os.environ) == []
    shadowed = list(variables.shadowed(os.environ))
    for name, said in zip(("SHARDCALL_PORT", "SHARDCALL_METRICS_PORT"), sorted(shadowed, key=len), strict=True):
        assert f"{name} is '{KUBERNETES[name]}', as Kubernetes sets it" in said
        assert "enableServiceLinks: false" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"port = = 1", "not TOML"),
        (b'host = "\xff"', "not UTF-8: byte 8 is 0xff"),
        (b"devcies = 8", "'devcies' is not a setting; did you mean 'devices'"),
        (b"devices = -1", r"^setting devices \(file .*server.toml\) is -1: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, says):
    config = tmp_path / "server.toml"
    if content is not None:
        config.write_bytes(content)
    with pytest.raises(SettingsError, match=says) as caught:
        load_settings({"port": "1"}, config)
    assert "server.toml" in str(caught.value)


def test_a_mesh_is_read(monkeypatch):
    assert load_settings({"mesh": "x=4, y=2"}).mesh_axes == (("x", 4), ("y", 2))
    assert load_settings({}).mesh_axes == ()


def test_every_setting_is_an_option_of_serve_and_belongs_to_one_group():
    options = {*inspect.signature(command.serve).parameters, "token"}  # others see the arguments of a command
    assert options == {*Settings.model_fields, "config", "exit_with_stdin"}
    grouped = [name for group in GROUPS for name in group.model_fields]
    assert sorted(grouped) == sorted(Settings.model_fields)
    assert list(Settings.model_fields) == grouped  # the order of the documentation
    assert all(field.description for field in Settings.model_fields.values())


def test_another_system_than_linux_is_named(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(SettingsError, match=r"needs Linux.*this is Darwin.*the client runs on this one"):
        serving.serve(Settings())


def test_a_first_worker_that_cannot_be_started_is_left_to_the_front_end(monkeypatch):
    monkeypatch.setattr(command, "WorkerProcess", MagicMock(side_effect=BlockingIOError(11, "no process")))
    monkeypatch.setattr(serving, "serve", lambda _, worker, **options: 7 if worker is None else 0)
    with pytest.raises(typer.Exit, check=lambda error: error.exit_code == 7):
        command.serve(tune_allocator=False)


def test_limits_of_memory_that_are_not_set_are_parts_of_the_hosts():
    settings, total = load_settings({}), memory_bytes()
    assert (settings.max_call_bytes, settings.max_bytes_in_flight) == (total // 4, total // 2)
    assert settings.max_bytes_per_client == total * 3 // 8


@rows(("flags", "limits"), [({}, (48, 36, 64, 48)), ({"max_concurrent_calls": "8"}, (6, 4, 8, 6))])
def test_limits_of_calls_that_are_not_set_are_three_quarters_of_what_is_above_them(flags, limits):
    settings = load_settings(flags)
    per_client = settings.calls_per_client, settings.calls_per_connection
    assert (*per_client, settings.queued_calls, settings.queued_calls_per_client) == limits
