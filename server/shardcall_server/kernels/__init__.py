"""The kernels, one in each file: pure JAX, without gRPC or protobuf."""
