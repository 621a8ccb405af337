"""The order of all tests: pytest loads options from here alone, the folder that pyproject.toml names."""

import random


def pytest_addoption(parser):
    """--shuffle."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


def pytest_report_header(config):
    """The seed of the order."""
    return f"shuffled with seed {config.option.shuffle}" if config.option.shuffle is not None else None


def pytest_collection_modifyitems(config, items):
    """Shuffles the tests if asked to."""
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
