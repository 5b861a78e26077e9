"""The line that ``shardcall --version`` prints."""

from shardcall.v1 import server_info_service_pb2
from shardcall_core.versions import build_version


def version_text() -> str:
    """Returns the version of this build and that of the contract, which is the name of its package."""
    return f"shardcall {build_version()} (contract {server_info_service_pb2.DESCRIPTOR.package})"
