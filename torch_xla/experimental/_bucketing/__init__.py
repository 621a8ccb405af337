"""How functions of padded tensors are run: what is known of padded dims, and a rule for each function of PyTorch."""
