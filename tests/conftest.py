"""The order of all tests: pytest loads options from here alone, the folder that pyproject.toml names."""

import random


def pytest_addoption(parser):
    """--shuffle, --whole, --shard, --thread-seconds."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    parser.addoption("--whole", action="store_true", help="all types and samples of PyTorch's databases of operators")
    parser.addoption("--shard", metavar="I/N", help="of N parts of the tests the I-th alone, from 1")
    parser.addoption("--thread-seconds", type=float, default=2, help="how long the test of threads in scripts goes on")


def pytest_report_header(config):
    """The seed of the order."""
    return f"shuffled with seed {config.option.shuffle}" if config.option.shuffle is not None else None


def pytest_collection_modifyitems(config, items):
    """Shuffles the tests or leaves other shards out, if asked to."""
    if config.option.shard is not None:
        part, parts = map(int, config.option.shard.split("/"))
        items[:] = items[part - 1 :: parts]
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
