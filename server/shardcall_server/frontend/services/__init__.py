"""The gRPC services of the contract."""
