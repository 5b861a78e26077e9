"""The files of TLS: refusals at startup, and the files that `shardcall certificates` makes."""

import errno
import stat

import pytest
import structlog
from cryptography import x509
from rows import rows
from typer.testing import CliRunner

from shardcall.cli.app import make_app
from shardcall_core.wire.private_files import read_file
from shardcall_server.certificate_authority import CertificatesError, host_of, make_authority, renew
from shardcall_server.frontend.access import certificates
from shardcall_server.frontend.access.certificates import Certificates, connect_arguments
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings


@pytest.fixture
def folder(tmp_path):
    make_authority(tmp_path / "trust", ["gpu.example.test", "192.0.2.7"], 30)
    return tmp_path / "trust"


def run_command(*arguments):
    return CliRunner().invoke(make_app(), ["certificates", *map(str, arguments)])


def settings(folder, **others):
    return load_settings({"tls_cert": f"{folder}/server.pem", "tls_key": f"{folder}/server.key", **others})


def test_complete_files_are_taken_and_a_client_certificate_beside_the_servers_is_named(folder):
    assert connect_arguments(settings(folder)) == f', ca_certificate="{folder}/ca.pem"'
    mutual = settings(folder, tls_client_ca=f"{folder}/ca.pem")
    assert Certificates(mutual).server_credentials() is not None
    client_arguments = f'client_certificate="{folder}/client.pem", client_key="{folder}/client.key"'
    assert connect_arguments(mutual) == f', ca_certificate="{folder}/ca.pem", {client_arguments}'
    (folder / "client.key").unlink()
    assert connect_arguments(mutual).endswith("client_certificate=…, client_key=…")


def test_a_new_certificate_is_taken_although_it_could_not_be_read_at_first(folder, monkeypatch):
    files = Certificates(settings(folder))
    renew(folder, (), 30)
    reads = [OSError(errno.EMFILE, "Too many open files")] * 2 + [read_file] * 2  # of two files

    def read(path: str, *limits: int, **options: bool) -> bytes:
        if isinstance(following := reads.pop(0), OSError):
            raise following
        return following(path, *limits, **options)

    with structlog.testing.capture_logs() as lines, monkeypatch.context() as few_files:
        few_files.setattr(certificates, "read_file", read)
        while reads:
            files._reload_changed()
    assert [line["event"].partition(";")[0] for line in lines] == [
        "invalid new certificate ignored",
        "certificate reloaded",
    ]


def test_a_key_that_others_may_read_is_refused_and_signs_nothing(folder):
    for key in ("server.key", "ca.key"):
        (folder / key).chmod(0o640)
    with pytest.raises(SettingsError, match=r"mode 0640 .*chmod 600 .*server\.key"):
        Certificates(settings(folder))
    with pytest.raises(CertificatesError, match=r"ca\.key has mode 0640 .*chmod 600"):
        renew(folder, [], 30)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
@pytest.mark.parametrize("exposed", ["file", "folder"])
def test_a_file_that_others_may_change_or_replace_is_refused(folder, name, exposed):
    (folder / name if exposed == "file" else folder).chmod(0o722)
    says = rf"{name}', which cannot be read: .* mode 0722" if exposed == "file" else "0722"
    with pytest.raises(SettingsError, match=says):
        Certificates(settings(folder, tls_client_ca=f"{folder}/ca.pem"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("server.pem", b"", "has no complete certificate"),
        ("server.key", b"nothing", "has no complete key"),
        ("server.pem", None, "server.pem.*cannot be read"),
        ("server.key", "client.key", "does not belong to the certificate"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(folder, name, content, says):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else (folder / content).read_bytes())
    with pytest.raises(SettingsError, match=says):
        Certificates(settings(folder))


@rows("flags", [{"tls_cert": "a"}, {"tls_key": "a"}, {"tls_client_ca": "a"}])
def test_half_of_what_tls_needs_is_refused(flags):
    with pytest.raises(SettingsError, match=r"without|requires TLS"):
        load_settings(flags)


def test_keys_are_this_user_s_alone_and_names_are_in(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(key.stat().st_mode) for key in folder.glob("*.key")} == {0o600}
    certificate = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "127.0.0.1", "::1", "gpu.example.test", "192.0.2.7"]


def test_an_authority_is_not_lost_by_accident_and_renewal_keeps_it_and_the_names(folder):
    authority, before = (folder / "ca.pem").read_bytes(), (folder / "server.pem").read_bytes()
    with pytest.raises(CertificatesError, match=r"contains ca\.key, .*--renew.*--force"):
        make_authority(folder, [], 30)
    renew(folder, [], 30)
    assert (folder / "ca.pem").read_bytes() == authority
    renewed = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    first = x509.load_pem_x509_certificate(before)
    extension = x509.SubjectAlternativeName
    assert renewed.serial_number != first.serial_number
    assert renewed.extensions.get_extension_for_class(extension) == first.extensions.get_extension_for_class(extension)
    make_authority(folder, [], 30, replace=True)
    assert (folder / "ca.pem").read_bytes() != authority


def test_the_command_makes_and_renews_files_and_says_how_to_use_them(tmp_path):
    folder = tmp_path / "trust"
    for option in ((), ("--renew",), ("--force",)):
        ended = run_command(folder, "--host", "gpu.example.test", "--days", 9, *option)
        assert ended.exit_code == 0
        assert f'shardcall.connect("gpu.example.test:8470", ca_certificate="{folder}/ca.pem")' in ended.output
    for options, problem in (((), "contains ca.key"), (("--renew", "--force"), "give one of them")):
        ended = run_command(folder, *options)
        assert (ended.exit_code, ended.output[:10], problem in ended.output) == (1, "shardcall:", True)


@pytest.mark.parametrize(
    ("hosts", "host"), [(["gpu.example.test", "192.0.2.7"], "gpu.example.test"), (["*.example.test"], None), ([], None)]
)
def test_the_server_is_reached_by_a_name_that_its_certificate_has(tmp_path, hosts, host):
    assert host_of(tmp_path / "trust" / "server.pem") is None
    make_authority(tmp_path / "trust", hosts, 30)
    assert host_of(tmp_path / "trust" / "server.pem") == host


@rows("host", ["a b", "host:8470", ""])
def test_what_is_no_host_is_refused(tmp_path, host):
    with pytest.raises(CertificatesError, match="is neither a name nor an address"):
        make_authority(tmp_path / "trust", [host], 30)


def test_a_folder_that_is_open_to_others_or_behind_a_link_is_refused_and_one_without_an_authority_renews_none(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(CertificatesError, match="chmod 700"):
        make_authority(tmp_path / "open", [], 30)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(CertificatesError, match="link is a symbolic link or a file, and must be a folder"):
        make_authority(tmp_path / "link", [], 30, replace=True)
    with pytest.raises(CertificatesError, match="leave out --renew"):
        renew(tmp_path / "none", [], 30)
    assert not (tmp_path / "none").exists()
