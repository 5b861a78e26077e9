"""The version that client and server exchange."""

import re
from types import SimpleNamespace

import shardcall
from shardcall_core import versions


def test_versions_of_builds_have_a_digest_of_the_sources_as_their_local_part(tmp_path, monkeypatch):
    package = tmp_path / "shardcall"
    package.mkdir()
    spec = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(versions, "find_spec", lambda name: spec if name == "shardcall" else None)
    seen = []
    for source in ("a = 1", "a = 2", "a = 1"):
        (package / "a.py").write_text(source)
        seen.append(versions.build_version.__wrapped__())
    assert seen[0] == seen[2] != seen[1]
    assert re.fullmatch(rf"{re.escape(shardcall.__version__)}\+[0-9a-f]{{10}}", seen[0])
    assert versions.number_of("0.10.2+1f") == (0, 10, 2) > versions.number_of("0.9.0")
