"""The kernels, one a file: pure JAX, knowing nothing of gRPC or protobuf."""
