"""gRPC reflection, under both of its names.

The locked package has v1alpha only. The messages of v1 differ in the package's name only, which is not on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

V1 = "grpc.reflection.v1.ServerReflection"


def serve(server: grpc.Server, services: Sequence[str]) -> None:
    """Serves reflection for the named services and for the two reflection services.

    Args:
        server: a server that has not been started.
        services: full names of services.
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
    """Adds the file of v1 to the descriptor pool: the file of v1alpha with the name replaced."""
    alpha = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    text = text_format.MessageToString(alpha).replace("v1alpha", "v1")
    described = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    descriptor_pool.Default().AddSerializedFile(described.SerializeToString())


_describe_v1()
