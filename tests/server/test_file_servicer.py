"""Servers that keep no files of arrays say so, and what to do."""

from unittest.mock import MagicMock

import pytest
from server.refusals import refused

from shardcall.v1 import file_service_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.services.file_servicer import FileServicer
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings


def test_without_files_every_method_says_why():
    servicer = FileServicer(None, *(MagicMock() for _ in range(5)), load_settings({}))
    for method in file_service_pb2.DESCRIPTOR.services_by_name["FileService"].methods:
        request = getattr(file_service_pb2, method.input_type.name)()
        with refused(Reason.FILES_UNAVAILABLE, r"start it with --array-dir"):
            getattr(servicer, method.name)(request, MagicMock())


def test_a_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"array_dir.*cannot be used: Not a directory"):
        ArrayFolder(str(tmp_path / "file/arrays"), 1, 1)
