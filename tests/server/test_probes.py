"""Answers to probes, and the requests that are none."""

from __future__ import annotations

from types import SimpleNamespace

from rows import rows

from shardcall_server.frontend.web.probes import Probes

KUBELET = b"GET /readyz HTTP/1.1\r\nHost: 10.1.2.3:9090\r\nUser-Agent: kube-probe/1.30\r\nAccept: */*\r\n\r\n"


def probes(reason=""):
    return Probes(SimpleNamespace(not_ready_reason=lambda: reason))


def test_a_probe_is_answered_by_its_first_bytes():
    head, _, body = probes().answer_bytes(KUBELET).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert head.endswith(b"content-type: text/plain; charset=utf-8\r\ncontent-length: 6\r\nconnection: close")
    assert body == b"ready\n"
    head, _, body = probes("it starts").answer_bytes(KUBELET).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert body == b"not ready: it starts\n"
    assert probes("it starts").answer_bytes(KUBELET.replace(b"readyz", b"healthz")).endswith(b"\r\n\r\nok\n")


@rows("host", [b"localhost", b"LOCALHOST", b"localhost:80", b"[::1]:9090", b"127.0.0.1"])
def test_a_host_is_an_address_or_localhost(host):
    is_common = host.startswith((b"localhost", b"[", b"1"))
    assert (probes().answer_bytes(KUBELET.replace(b"10.1.2.3:9090", host)) is not None) is is_common


@rows(
    "data",
    [
        b"",
        KUBELET[:-2],
        KUBELET + b"GET",
        KUBELET.replace(b"GET", b"POST"),
        KUBELET.replace(b"/readyz", b"/READYZ"),
        KUBELET.replace(b"/readyz", b"/readyz?x=1"),
        KUBELET.replace(b"/readyz", b"/metrics"),
        KUBELET.replace(b"10.1.2.3:9090", b"evil.example"),
        KUBELET.replace(b"Host: 10.1.2.3:9090\r\n", b""),
        KUBELET.replace(b"Accept: */*", b"Host: evil.example"),
        KUBELET.replace(b"Accept: */*", b"Content-Length: 3"),
        KUBELET.replace(b"Accept: */*", b"transfer-encoding: chunked"),
        KUBELET.replace(b"Accept: */*", b" folded"),
        KUBELET.replace(b"*/*", b"*" * 1024),
    ],
)
def test_other_requests_are_not_answered_here(data):
    assert probes().answer_bytes(data) is None
