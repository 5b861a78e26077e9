import pytest
from rows import rows

import shardcall
from shardcall_core.access.addresses import default_address, parse_address


@rows(
    ("address", "is_local"),
    [
        ("localhost:8470", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9:65535", True),
        ("[::1]:8470", True),
        ("[::ffff:127.0.0.1]:8470", True),
        ("LOCALHOST:8470", True),
        ("[::ffff:10.0.0.1]:8470", False),
        ("unix:/run/shardcall.sock", True),
        ("unix:///run/shardcall.sock", True),
        ("unix:relative.sock", True),
        ("10.0.0.1:8470", False),
        ("[2001:db8::1]:8470", False),
        ("gpu-host.example.org:8470", False),
        ("gpu_host:8470", False),
    ],
)
def test_addresses_are_parsed_and_classified_as_local_or_remote(address, is_local):
    parsed = parse_address(address)
    assert parsed.target == address
    assert parsed.is_local == is_local


@rows(
    ("address", "says"),
    [
        ("", "host:port"),
        ("localhost", "host:port"),
        ("localhost:", "host:port"),
        (":8470", "host:port"),
        ("localhost:port", "host:port"),
        ("local host:8470", "host:port"),
        ("::1:8470", "host:port"),
        ("localhost:8470/path", "host:port"),
        ("localhost:0", "1 to 65535"),
        ("localhost:65536", "1 to 65535"),
        ("http://localhost:8470", "leave out the scheme"),
        ("unix:", "unix:/path"),
        ("unix://", "unix:/path"),
        (8470, "8470 is no address"),
        (b"localhost:8470", "no address"),
        (("localhost", 8470), "no address"),
    ],
)
def test_what_is_no_address_is_refused_with_the_forms_there_are(address, says):
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
