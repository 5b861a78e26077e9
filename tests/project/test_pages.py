"""The code blocks of the documentation: each is run, parsed, sent or compared, or says why not."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import grpc
import pytest
from end_to_end.messages import token_of
from google.protobuf import json_format
from project.blocks import (
    LANGUAGES,
    PAGES,
    ROOT,
    Block,
    blocks_of,
    check_command,
    clients_of,
    commands_of,
    output_of,
    run_python_of,
)
from rows import rows
from servers import ServerProcess

from shardcall.v1 import array_pb2, kernel_pb2, kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_server.settings import Settings

SMALLER = ("(4096, 4096)", "(1024, 96)")
"""The shape of the largest arrays, and the one that the short form has instead."""
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LONGEST_README = 500


def of_language(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and not block.excuse]


def test_every_block_names_its_language() -> None:
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


def test_every_block_of_text_is_the_output_of_the_block_above_it_or_says_why_not() -> None:
    compared = set()
    for page in PAGES:
        blocks = blocks_of(page)
        outputs = (output_of(blocks, i) for i, block in enumerate(blocks) if block.language == "python")
        compared |= {str(block) for block in outputs if block}
    allowed = {str(block) for block in BLOCKS if block.excuse or block.page.name == "errors.md"}
    assert {str(block) for block in BLOCKS if block.language == "text"} - compared - allowed == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/quickstart.md"], ids=lambda page: page.stem)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clients_of(server.address, tmp_path, monkeypatch):
        run_python_of(page, SMALLER)


@rows("block", of_language("sh"))
def test_the_commands_of_a_page_exist_and_accept_their_arguments(block: Block) -> None:
    for command in commands_of(block.text):
        check_command(command)


@rows("block", of_language("json"))
def test_the_calls_of_a_warm_up_file_can_be_parsed(block: Block) -> None:
    for call in json.loads(block.text)["calls"]:
        json_format.ParseDict(call["call"], kernel_pb2.KernelCall())
        for operand in call["operands"]:
            json_format.ParseDict(operand, array_pb2.ArrayType())


@rows("block", of_language("toml"))
def test_the_keys_of_a_settings_file_are_settings(block: Block) -> None:
    assert set(tomllib.loads(block.text)) <= set(Settings.model_fields)


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@rows("page", [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"))])
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text())
    targets = [((page.parent / file) if file else page, anchor) for file, anchor in links]
    gone = [file for file, _ in targets if not file.exists()]
    assert gone == []
    assert [f"{file.name}#{anchor}" for file, anchor in targets if anchor and anchor not in anchors(file)] == []


PROMISING = [ROOT / "SECURITY.md", ROOT / "docs/limits.md"]
_TESTS = r"`(\w+/test_\w+)(?:::(\w+))?`"


@rows("page", PROMISING)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(_TESTS, page.read_text())
    files = {name: ROOT / "tests" / f"{name}.py" for name, _ in named}
    assert len(files) > 10
    assert [name for name, file in files.items() if not file.is_file()] == []
    gone = [f"{name}::{test}" for name, test in named if test and f"def {test}(" not in files[name].read_text()]
    assert gone == []


@rows("page", PROMISING)
def test_every_row_of_a_page_of_promises_names_its_tests(page: Path) -> None:
    tables = re.findall(r"((?:^\|.*\n)+)", page.read_text(), re.MULTILINE)
    assert tables
    for header, _, *promises in (table.splitlines() for table in tables):
        assert header.endswith("| tests |")
        cells = {row: row.removesuffix("|").rpartition("|")[2] for row in promises}
        assert [row for row, cell in cells.items() if not re.search(_TESTS, cell) and "not tested" not in cell] == []


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"^\| \[[\w.]+\]\(([\w.]+)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= LONGEST_README


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
