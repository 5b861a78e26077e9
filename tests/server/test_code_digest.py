"""The digest of code and settings that are not in the keys of programs on disk."""

from __future__ import annotations

import sys
from types import ModuleType

from shardcall_server.compilation.keys import code_digest


def test_a_digest_depends_on_settings_and_on_what_installed_kernels_import(tmp_path, monkeypatch):
    helper = tmp_path / "helper_of_a_kernel.py"
    helper.write_text("FACTOR = 2\n")
    module = ModuleType("helper_of_a_kernel")
    module.__file__ = str(helper)
    installed = type("Installed", (), {"__module__": "kernel_of_tests"})()
    kernel = ModuleType("kernel_of_tests")
    kernel.__file__ = str(helper.with_name("kernel_of_tests.py"))
    (tmp_path / "kernel_of_tests.py").write_text("import helper_of_a_kernel\n")
    monkeypatch.setitem(sys.modules, "helper_of_a_kernel", module)
    monkeypatch.setitem(sys.modules, "kernel_of_tests", kernel)

    def digests() -> list[str]:
        return [code_digest(kernels, settings) for kernels in ((), [installed]) for settings in ({}, {"a": 1})]

    before = digests()
    assert len(set(before)) == len(before)
    assert digests() == before
    helper.write_text("FACTOR = 3\n")
    after = digests()
    assert after[:2] == before[:2]
    assert not set(after[2:]) & set(before)
