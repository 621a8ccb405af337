"""What example programs share: lines about training, and scalars for TensorBoard."""
