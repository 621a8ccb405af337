"""Runs functions of padded tensors: the facts about padded dims, and a rule for each function of PyTorch."""
