"""The order and the times of all tests: pytest loads options from here alone, the folder that pyproject.toml names."""

import collections
import random
from pathlib import Path


def pytest_addoption(parser):
    """--shuffle, --whole, --shard, --thread-seconds, --times."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    parser.addoption("--whole", action="store_true", help="all types and samples of PyTorch's databases of operators")
    parser.addoption("--shard", metavar="I/N", help="of N parts of the tests the I-th alone, from 1")
    parser.addoption("--thread-seconds", type=float, default=2, help="how long the test of threads in scripts goes on")
    parser.addoption("--times", type=Path, metavar="FILE", help="write the time of each test file there, slowest first")


def pytest_configure(config):
    """Keeps the times, if asked to; of the workers of pytest-xdist their parent keeps them."""
    if config.option.times is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FileTimes(config.option.times))


class FileTimes:
    """The seconds that the tests and fixtures of each file took, written to a file at the end."""

    def __init__(self, path: Path):
        self.path = path
        self.seconds: collections.Counter[str] = collections.Counter()
        self.tests: collections.Counter[str] = collections.Counter()

    def pytest_runtest_logreport(self, report):
        """Adds the time of a test, or of the fixtures before or after it."""
        file = report.nodeid.split("::")[0]
        self.seconds[file] += report.duration
        self.tests[file] += report.when == "call"

    def pytest_sessionfinish(self):
        """Writes a line for all and one for each file; they name the run by the name of FILE."""
        rows = [(self.seconds.total(), self.tests.total(), "all"), *self.rows()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(f"{s:8.1f} s {n:6} tests  {self.path.stem}: {file}\n" for s, n, file in rows))

    def rows(self) -> list[tuple[float, int, str]]:
        """Seconds, count of tests and name of each file, slowest first."""
        return [(seconds, self.tests[file], file) for file, seconds in self.seconds.most_common()]


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
