from pathlib import Path

import pytest
from mutants.changed import long_tests
from mutants.mirror import Mirror, sources

TREE = {
    "client/shardcall/__init__.py": "from shardcall._src.deep import deep\n",
    "client/shardcall/_src/deep.py": "from shardcall._src import deeper\n",
    "client/shardcall/_src/deeper.py": "def named(): pass\n",
    "client/shardcall/v1/call_pb2.py": "",
    "server/shardcall_server/kernels/stencils/roll.py": "",
    "server/shardcall_server/frontend/deep.py": "",
    "tests/client/test_deep.py": "import shardcall\n",
    "tests/client/test_imports.py": "from shardcall._src import deeper\n",
    "tests/client/test_words.py": "client.named()\n",
    "tests/client/test_other.py": "import shardcall\n",
    "tests/client/test_deep_long.py": "import shardcall\npytestmark = pytest.mark.long\n",
    "tests/server/test_deep.py": "",
    "tests/kernels/test_roll_layouts.py": "",
    "tests/kernels/test_rolled.py": "",
    "tests/end_to_end/test_calls.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_generated_files_are_no_sources(tree: Path):
    assert "client/shardcall/_src/deep.py" in sources(tree)
    assert not [file for file in sources(tree) if "_pb2" in file]


@pytest.mark.parametrize(
    ("file", "scope", "expected"),
    [
        ("client/shardcall/_src/deep.py", (), ["client/test_deep.py"]),
        ("server/shardcall_server/frontend/deep.py", (), ["server/test_deep.py"]),
        ("server/shardcall_server/kernels/stencils/roll.py", (), ["kernels/test_roll_layouts.py"]),
        ("client/shardcall/_src/deeper.py", (), ["client/test_imports.py"]),
        ("client/shardcall/_src/deeper.py", ("named",), ["client/test_imports.py", "client/test_words.py"]),
    ],
)
def test_tests_mirror_by_name_by_import_and_by_word(tree: Path, file: str, scope: tuple[str, ...], expected: list[str]):
    everything = "tests/end_to_end/test_calls.py"
    assert Mirror(tree).tests(file, scope, 5) == [*(f"tests/{test}" for test in expected), everything]
    assert Mirror(tree).tests(file, scope, 1) == [f"tests/{expected[0]}", everything]


def test_long_files_mirror_apart(tree: Path):
    assert Mirror(tree, long=True).tests("client/shardcall/_src/deep.py", (), 5) == ["tests/client/test_deep_long.py"]


def test_the_long_files_of_changes_are_those_that_mirror_them_and_those_that_changed(tree: Path):
    tests = [f"tests/client/test_deep{end}.py" for end in ("", "_long")]
    assert long_tests(["client/shardcall/_src/deep.py", *tests, "README.md"], tree) == tests[1:]
    assert long_tests(["README.md"], tree) == []
