"""Models of the Open Inference Protocol: published programs, tensors, registered shared memory."""
