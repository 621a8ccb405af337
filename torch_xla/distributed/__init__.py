"""Runs over several devices and processes. Without them this process is the only replica."""
