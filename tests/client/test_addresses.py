import pytest
from rows import rows

import shardcall
from shardcall_core.access.addresses import default_address, parse_address

LOCAL = [
    *("localhost:8470", "LOCALHOST:8470", "127.0.0.1:1", "127.9.9.9:65535", "[::1]:8470", "[::ffff:127.0.0.1]:8470"),
    *("unix:/run/shardcall.sock", "unix:///run/shardcall.sock", "unix:relative.sock"),
]
REMOTE = [
    *("[::ffff:10.0.0.1]:8470", "10.0.0.1:8470", "[2001:db8::1]:8470", "gpu-host.example.org:8470", "gpu_host:8470")
]


@rows("address", LOCAL + REMOTE)
def test_addresses_are_parsed_and_classified_as_local_or_remote(address):
    parsed = parse_address(address)
    assert (parsed.target, parsed.is_local) == (address, address in LOCAL)


@rows(
    ("says", "addresses"),
    [
        ("host:port", ["", "localhost", "localhost:", ":8470", "localhost:port", "local host:8470", "::1:8470"]),
        ("host:port", ["localhost:8470/path"]),
        ("1 to 65535", ["localhost:0", "localhost:65536"]),
        ("leave out the scheme", ["http://localhost:8470"]),
        ("unix:/path", ["unix:", "unix://"]),
        ("no address", [8470, b"localhost:8470", ("localhost", 8470)]),
    ],
)
def test_what_is_no_address_is_refused_with_the_forms_there_are(says, addresses):
    for address in addresses:
        with pytest.raises(shardcall.InvalidRequestError, match=says):
            shardcall.connect(address)


def test_the_default_address_is_the_environments_else_the_usual_one(monkeypatch):
    monkeypatch.delenv("SHARDCALL_ADDRESS", raising=False)
    assert default_address() == "localhost:8470"
    monkeypatch.setenv("SHARDCALL_ADDRESS", "gpu-host.example.org:9000")
    assert default_address() == "gpu-host.example.org:9000"
    monkeypatch.setenv("SHARDCALL_ADDRESS", "http://localhost")
    with pytest.raises(shardcall.InvalidRequestError, match=r"the environment variable SHARDCALL_ADDRESS: .*scheme"):
        shardcall.connect()
