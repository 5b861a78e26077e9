"""The line that ``shardcall --version`` prints."""

from shardcall._version import __version__
from shardcall.v1 import server_info_service_pb2


def version_text() -> str:
    """Returns the version of the distribution and that of the contract, which is the name of its package."""
    return f"shardcall {__version__} (contract {server_info_service_pb2.DESCRIPTOR.package})"
