"""gRPC's reflection, by both of its names.

The locked package has v1alpha alone. The messages of v1 differ by the package's name alone, which is not on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

V1 = "grpc.reflection.v1.ServerReflection"


def serve(server: grpc.Server, services: Sequence[str]) -> None:
    """Serves reflection, of these services and of its own two.

    Args:
        server: not started yet.
        services: their full names.
    """
    servicer = reflection.ReflectionServicer((*services, reflection.SERVICE_NAME, V1))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": method}),))


def _describe_v1() -> None:
    """Adds the file of v1 to those that reflection knows: that of v1alpha with the other name in it."""
    alpha = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    text = text_format.MessageToString(alpha).replace("v1alpha", "v1")
    described = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    descriptor_pool.Default().AddSerializedFile(described.SerializeToString())


_describe_v1()
