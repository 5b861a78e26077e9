"""The pages of the contract: services, messages and values, with the comments of their protos."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from site_pages.markup import comment, table

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("shardcall/v1", "shardcall_inference/v1")  # of clients

# The numbers of fields in descriptor.proto, which make the paths of comments.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED_MESSAGES, _NESTED_ENUMS = 2, 3, 4
_PACKAGE_STATEMENT, _METHODS, _VALUES = 2, 2, 2


def pages() -> dict[str, str]:
    """Returns the text of a page for each proto of the contract."""
    return {_path(file): _Comments(file).page() for file in _files()}


def navigation() -> list[Any]:
    """Returns the pages of the protos, those of services first."""
    return [{Path(file.name).name: _path(file)} for file in sorted(_files(), key=lambda file: not file.service)]


@cache
def _files() -> tuple[FileDescriptorProto, ...]:
    """Returns the descriptors of the contract with their comments."""
    protos = [path for package in _PACKAGES for path in sorted((ROOT / "protos" / package).glob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "contract.binpb"
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "protos"), "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={target}", *map(str, protos)], check=True)
        return tuple(FileDescriptorSet.FromString(target.read_bytes()).file)


def _path(file: FileDescriptorProto) -> str:
    return f"reference/protos/{Path(file.name).stem}.md"


class _Comments:
    """The comments of a proto, and the page that they make."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(location.path): location.leading_comments or location.trailing_comments
            for location in file.source_code_info.location
        }

    def page(self) -> str:
        parts = [f"# {Path(self._file.name).name}", f"`protos/{self._file.name}`", self._of(_PACKAGE_STATEMENT)]
        for number, service in enumerate(self._file.service):
            parts += self._service(service, (_SERVICES, number))
        for number, message in enumerate(self._file.message_type):
            parts += self._message(message, (_MESSAGES, number), message.name)
        for number, enum in enumerate(self._file.enum_type):
            parts += self._enum(enum, (_ENUMS, number), enum.name)
        return "\n\n".join(filter(None, parts)) + "\n"

    def _of(self, *path: int) -> str:
        lines = self._comments.get(path, "").splitlines()
        return comment("\n".join(line.removeprefix(" ") for line in lines))

    def _service(self, service: ServiceDescriptorProto, path: Sequence[int]) -> Iterator[str]:
        yield f"## {service.name}"
        yield self._of(*path)
        for number, method in enumerate(service.method):
            yield f"### {method.name}"
            takes = "stream " * method.client_streaming + _short(method.input_type)
            returns = "stream " * method.server_streaming + _short(method.output_type)
            yield f"```proto\nrpc {method.name}({takes}) returns ({returns})\n```"
            yield self._of(*path, _METHODS, number)

    def _message(self, message: DescriptorProto, path: tuple[int, ...], name: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        yield f"## {name}"
        yield self._of(*path)
        rows = [
            (str(field.number), f"`{field.name}`", f"`{_type(field, message)}`", self._of(*path, _FIELDS, number))
            for number, field in enumerate(message.field)
        ]
        if rows:
            yield table(("number", "field", "type", ""), rows)
        for number, nested in enumerate(message.nested_type):
            yield from self._message(nested, (*path, _NESTED_MESSAGES, number), f"{name}.{nested.name}")
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*path, _NESTED_ENUMS, number), f"{name}.{enum.name}")

    def _enum(self, enum: EnumDescriptorProto, path: tuple[int, ...], name: str) -> Iterator[str]:
        yield f"## {name}"
        yield self._of(*path)
        rows = [
            (str(value.number), f"`{value.name}`", self._of(*path, _VALUES, number))
            for number, value in enumerate(enum.value)
        ]
        yield table(("number", "value", ""), rows)


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    entry = next(
        (n for n in message.nested_type if n.options.map_entry and field.type_name.endswith(f".{n.name}")), None
    )
    if entry is not None:
        key, value = entry.field
        return f"map<{_type(key, entry)}, {_type(value, entry)}>"
    scalar = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = _short(field.type_name) if field.type_name else scalar
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def _short(name: str) -> str:
    return name.removeprefix(".").removeprefix("shardcall.v1.").removeprefix("shardcall_inference.v1.")
