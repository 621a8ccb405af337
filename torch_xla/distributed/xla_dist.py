"""The original's launcher for pods of Cloud TPUs, which the original has dropped too: it reads options and starts
nothing.

torchrun and torch_xla.distributed.xla_multiprocessing start the processes of a run: docs/replicas.md.
"""

import argparse
from collections.abc import Sequence


def get_args_parser() -> argparse.ArgumentParser:
    """The options, which other launchers add to theirs."""
    parser = argparse.ArgumentParser(
        prog="torch_xla.distributed.xla_dist", description="Starts nothing here: use torchrun."
    )
    cluster = parser.add_argument_group("the pod")
    cluster.add_argument("--tpu", required=True, help="its name")
    cluster.add_argument("--vm", action="append", help="a machine of it; may be given several times")
    containers = parser.add_argument_group("containers")
    containers.add_argument("--docker-container", default="", help="the container's name")
    containers.add_argument("--docker-image", default="", help="the image's name")
    containers.add_argument("--docker-run-flag", action="append", help="an option of docker run")
    parser.add_argument_group("conda").add_argument("--conda-env", default="", help="the environment's name")
    parser.add_argument("--env", action="append", help="NAME=VALUE for the processes")
    parser.add_argument("--restart-tpuvm-pod-server", action="store_true", help="restart the server of each machine")
    parser.add_argument("--tpuvm-server-port", type=int, default=51011, help="its port")
    parser.add_argument("positional", nargs="+", help="the command of each machine")
    return parser


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command line, by default this process's."""
    return get_args_parser().parse_args(args)


def resolve_and_execute(flags: argparse.Namespace) -> None:
    """Raises RuntimeError: there are no pods here."""
    command = " ".join(flags.positional)
    raise RuntimeError(
        f"xla_dist starts nothing here, as there are no pods of TPUs (got --tpu={flags.tpu}): "
        f"run the command on each machine by torchrun instead of {command!r}"
    )


def main(args: Sequence[str] | None = None) -> None:
    """Reads the command line. Raises RuntimeError, as resolve_and_execute()."""
    resolve_and_execute(parse_args(args))


if __name__ == "__main__":
    main()
