"""Random programs of many kinds against PyTorch eager."""
