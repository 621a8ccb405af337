"""`python -m torch_xla.distributed.fsdp.consolidate_sharded_ckpts` joins the files of an FSDP model's replicas."""

import argparse

from .state_dict_utils import consolidate_sharded_model_checkpoints


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ckpt_prefix", required=True, help="what the paths of all replicas' files begin with")
    parser.add_argument("--ckpt_suffix", default="*.pth", help="the rest of the paths, a pattern (%(default)s)")
    parser.add_argument("--save_path", default="", help="of the joined file (the prefix and _consolidated.pth)")
    args = parser.parse_args()
    _, path = consolidate_sharded_model_checkpoints(args.ckpt_prefix, args.ckpt_suffix, args.save_path)
    print(f"saved {path}")


if __name__ == "__main__":
    main()
