"""Runs over several devices and processes. One process with one device is the whole world here."""
