"""The page of errors: a section for each reason of the contract, with a message that the code raises."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain

import numpy as np
import pytest
from end_to_end.messages import token_of
from project.blocks import ROOT, matches
from rows import rows

import shardcall as sc
from shardcall import P
from shardcall._src.rpc.status import ERRORS_BY_REASON
from shardcall.v1 import error_pb2
from shardcall_core.call_error import Reason
from shardcall_core.types.errors import ShardcallError
from shardcall_server.frontend.rpc.status import STATUS_CODES

PAGE = (ROOT / "docs/errors.md").read_text()
SECTIONS = {
    name: (heading, message)
    for name, heading, message in re.findall(
        r"^### (\w+)\n\n([^\n]+)\n\n```text\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL
    )
}
REFUSED, WITHOUT_A_REASON = (
    re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", section, re.MULTILINE)
    for section in PAGE.partition("## Arguments that the client refuses")[2].split("## Errors without a reason")
)
X = np.arange(32.0).reshape(8, 4)
LINE = sc.Mesh(x=8)


def name_twice(client: sc.Client) -> None:
    array = client.put(X, name="u")
    try:
        client.put(X, name="u")
    finally:
        array.delete()  # which stays without its client


PROVOKED: dict[str, Callable[[sc.Client], object]] = {
    "KERNEL_NOT_FOUND": lambda c: c.call("dif", X),
    "UNKNOWN_PARAMETER": lambda c: c.call("diff", X, axes=0),
    "PARAMETER_TYPE": lambda c: c.diff(X, axis="rows"),  # type: ignore[arg-type]
    "INVALID_PARAMETER": lambda c: c.diff(X, n=-1),
    "AXIS_OUT_OF_RANGE": lambda c: c.diff(X, axis=2),
    "OPERAND_COUNT": lambda c: c.call("sin", X, X),
    "INVALID_OPERAND": lambda c: c.matmul(X, X),
    "INVALID_SHAPE": lambda c: c.convolve(np.ones(0), np.ones(3)),
    "UNSUPPORTED_ELEMENT_TYPE": lambda c: c.gradient(np.ones(4, bool)),
    "INVALID_VALUE": lambda c: c.power(np.array([1, 2, 3]), -1),
    "INDEX_OUT_OF_RANGE": lambda c: c.put(X)[c.put(np.array([99]))].get(),
    "INVALID_MATRIX": lambda c: np.linalg.inv(c.put(np.zeros((2, 2)))).get(),  # type: ignore[attr-defined]
    "NOT_ENOUGH_DEVICES": lambda c: c.diff(X, mesh=sc.Mesh(x=16), spec=P("x")),
    "UNKNOWN_MESH_AXIS": lambda c: c.diff(X, mesh=LINE, spec=P("y")),
    "SPEC_TOO_LONG": lambda c: c.diff(X, mesh=LINE, spec=P("x", None, None)),
    "UNKNOWN_STRATEGY": lambda c: c.diff(X, mesh=LINE, spec=P("x"), strategy="halos"),
    "STRATEGY_UNSUPPORTED": lambda c: c.plan(
        "sort", sc.Array((8,), "float64"), mesh=LINE, spec="x", strategy="all_to_all"
    ),
    "TOKEN_REQUIRED": lambda c: sc.connect(c.address, token="x" * 43).server_info(),
    "SCOPE_MISSING": lambda c: sc.connect(c.address, token=token_of("runner")).profile("traces").start(),
    "NAME_TAKEN": name_twice,
    "FILE_NOT_FOUND": lambda c: c.load("runs/missing.npy"),
    "PROFILE_STATE": lambda c: c.profile("traces").stop(),
}

CLIENT_ERRORS: dict[str, Callable[[sc.Client], object]] = {
    "ServerUnavailableError": lambda c: sc.connect("localhost:1"),
    "ClientClosedError": lambda c: closed(c.address).diff(X),
    "TypeError": lambda c: c.diff(X, axes=0),  # type: ignore[call-arg]
}

REFUSED_BY_THE_CLIENT: dict[str, Callable[[sc.Client], object]] = {
    "UNSUPPORTED_ELEMENT_TYPE": lambda c: c.diff(np.array(["a"])),
    "INVALID_VALUE": lambda c: c.put(np.arange(3, dtype=np.int8)) + 300,
    "INVALID_MESH": lambda c: c.diff(X, mesh={"x": 0}),
    "MESH_AXIS_REUSED": lambda c: c.diff(X, spec=P("x", "x")),
    "ARRAY_LOST": lambda c: deleted(c).get(),
}


def closed(address: str) -> sc.Client:
    with sc.connect(address) as client:
        return client


def deleted(client: sc.Client) -> sc.RemoteArray:
    array = client.put(X)
    array.delete()
    return array


@cache
def templates() -> dict[str, list[re.Pattern[str]]]:
    """Returns patterns of the messages in the server's code by their reason."""
    patterns: dict[str, list[re.Pattern[str]]] = {}
    folders = ("server/shardcall_server", "client/shardcall_core")
    for file in chain.from_iterable((ROOT / folder).rglob("*.py") for folder in folders):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call):
                for reason, message in zip(call.args, call.args[1:], strict=False):
                    if ast.unparse(reason).startswith("Reason."):
                        patterns.setdefault(ast.unparse(reason)[7:], []).append(
                            re.compile(template(message), re.DOTALL)
                        )
    return patterns


def template(message: ast.expr) -> str:
    """Returns a regular expression for the values of an expression that makes a message."""
    if isinstance(message, ast.Constant):
        return re.escape(str(message.value))
    if isinstance(message, ast.JoinedStr):
        return "".join(template(part) for part in message.values)
    if isinstance(message, ast.BinOp):
        return template(message.left) + template(message.right)
    return ".*"


def messages(error: BaseException) -> Iterator[str]:
    """Yields the message of an error, without the call that it names if the call was submitted."""
    yield str(error)
    yield str(error).partition(" failed: ")[2]


def test_every_reason_has_a_section_and_every_section_a_reason() -> None:
    assert sorted(SECTIONS) == sorted(Reason.__members__)
    assert sorted(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == sorted(SECTIONS)


@rows("reason", Reason.__members__)
def test_a_section_names_the_class_and_the_status(reason: str) -> None:
    error_class = ERRORS_BY_REASON[error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")]
    assert SECTIONS[reason][0] == f"`{error_class.__name__}`, {STATUS_CODES[Reason[reason]].name}"


@pytest.mark.parametrize("reason", PROVOKED)
def test_the_client_raises_the_message_that_the_page_shows(reason: str, client: sc.Client) -> None:
    with pytest.raises(ShardcallError) as caught:
        PROVOKED[reason](client)
    assert caught.value.reason == reason
    assert any(matches(message, SECTIONS[reason][1]) for message in messages(caught.value)), str(caught.value)


@rows("reason", sorted(set(Reason.__members__) - set(PROVOKED)))
def test_the_server_has_the_message_that_the_page_shows(reason: str) -> None:
    message = re.sub(r" \(request …\)$", "", SECTIONS[reason][1])
    assert any(len(one.pattern) > len(".*.*") and one.fullmatch(message) for one in templates()[reason])


@pytest.mark.parametrize(("class_name", "message"), WITHOUT_A_REASON)
def test_an_error_without_a_reason_has_the_message_that_the_page_shows(
    class_name: str, message: str, client: sc.Client
) -> None:
    with pytest.raises((ShardcallError, TypeError)) as caught:
        CLIENT_ERRORS[class_name](client)
    assert type(caught.value).__name__ == class_name
    assert matches(str(caught.value), message), str(caught.value)


@rows(("reason", "message"), REFUSED)
def test_an_argument_that_the_client_refuses_has_the_class_and_the_reason_of_the_server(
    reason: str, message: str, client: sc.Client
) -> None:
    with pytest.raises(ERRORS_BY_REASON[error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")]) as caught:
        REFUSED_BY_THE_CLIENT[reason](client)
    assert (caught.value.reason, caught.value.status) == (reason, None)
    assert matches(str(caught.value), message), str(caught.value)


def test_an_error_names_its_section() -> None:
    error = sc.AxisError("axis=2", reason="AXIS_OUT_OF_RANGE")
    assert error.help == "docs/errors.md#axis_out_of_range"
    assert sc.ClientClosedError("this client is closed").help == "docs/errors.md#errors-without-a-reason"
