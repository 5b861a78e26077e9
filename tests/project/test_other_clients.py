"""docs/other_clients.md: its request is one that a server answers as the page says."""

from pathlib import Path
from typing import Any

import grpc
from end_to_end.messages import token_of
from google.protobuf import json_format
from project.blocks import blocks_of

from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc


def test_a_server_answers_the_request_of_the_page(root: Path, server: Any) -> None:
    (block,) = [block for block in blocks_of(root / "docs/other_clients.md") if block.language == "json"]
    request = json_format.Parse(block.text, kernel_service_pb2.ExecuteRequest())
    with grpc.insecure_channel(server.address) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        answer = stub.Execute(request, metadata=[("authorization", f"Bearer {token_of('runner')}")], timeout=60)
    assert json_format.MessageToDict(answer)["results"][0]["inline"]["data"] == "AwUH"


def test_the_lines_of_the_page_are_those_of_the_examples(root: Path) -> None:
    for language, example in (("go", "go/client.go"), ("javascript", "node/client.js")):
        (block,) = [block for block in blocks_of(root / "docs/other_clients.md") if block.language == language]
        lines = {line.strip() for line in (root / "examples" / example).read_text().splitlines()}
        assert {line.strip() for line in block.text.splitlines()} <= lines
