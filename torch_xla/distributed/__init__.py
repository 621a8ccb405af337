"""Runs over several devices and processes. One process, which is one replica, is the whole world here."""
