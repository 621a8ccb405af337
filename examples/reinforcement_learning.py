"""Trains a policy that balances poles on carts, by REINFORCE with a baseline: many carts at once, all on the device.

The physics are tensor operations, so a turn of all carts reads nothing, and a whole episode with its update is recorded
without a wait. Reading each action instead would cut each turn in two.

    python examples/reinforcement_learning.py [--device xla|cpu] [--updates 60] [--carts 64] [--turns 60]
"""

import argparse
import time

import torch
from torch import nn
from tqdm import trange

GRAVITY, LENGTH, MASS, TOTAL, FORCE, SECONDS = 9.8, 0.5, 0.1, 1.1, 10.0, 0.02


def move(state: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The states float32[carts, 4] (place, speed, angle, turning) a moment after a push to the right or the left."""
    place, speed, angle, turning = state.unbind(1)
    force = torch.where(right, FORCE, -FORCE)
    sine, cosine = angle.sin(), angle.cos()
    push = (force + MASS * LENGTH * turning.square() * sine) / TOTAL
    bend = (GRAVITY * sine - cosine * push) / (LENGTH * (4 / 3 - MASS * cosine.square() / TOTAL))
    slide = push - MASS * LENGTH * bend * cosine / TOTAL
    moved = (place + SECONDS * speed, speed + SECONDS * slide, angle + SECONDS * turning, turning + SECONDS * bend)
    return torch.stack(moved, 1)


def play(policy: nn.Module, carts: int, turns: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the actions and rewards, float32[turns, carts] each. A cart that fell gets no reward."""
    state = 0.05 * torch.randn(carts, 4).to(device)
    stands = torch.ones(carts, device=device)
    chances, rewards = [], []
    for _ in range(turns):
        logit = policy(state).squeeze(1)
        right = torch.rand_like(logit) < logit.sigmoid()
        chances.append(-nn.functional.softplus(torch.where(right, -logit, logit)) * stands)
        state = move(state, right)
        stands = stands * (state[:, 0].abs() < 2.4) * (state[:, 2].abs() < 0.21)
        rewards.append(stands)
    return torch.stack(chances), torch.stack(rewards)


def update(policy: nn.Module, optimizer: torch.optim.Optimizer, args: argparse.Namespace) -> torch.Tensor:
    """One episode and one step of the optimizer. Returns the mean number of turns that the poles stood."""
    chances, rewards = play(policy, args.carts, args.turns, args.device)
    later = rewards.flip(0).cumsum(0).flip(0)
    advantage = (later - later.mean(1, keepdim=True)) / args.turns
    optimizer.zero_grad()
    (-(chances * advantage).sum(0).mean()).backward()
    optimizer.step()
    return rewards.sum(0).mean()


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla", help="cpu: eager PyTorch")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--carts", type=int, default=64)
    parser.add_argument("--turns", type=int, default=60, help="of an episode")
    args = parser.parse_args()

    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)).to(args.device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)
    stood, start = [], time.perf_counter()
    for _ in trange(args.updates, unit="episode", leave=False):
        stood.append(update(policy, optimizer, args))
    values = torch.stack(stood).tolist()
    seconds = time.perf_counter() - start
    print(
        f"poles stood {values[0]:.1f} of {args.turns} turns at first, {values[-1]:.1f} at the end; "
        f"{1e3 * seconds / args.updates:.1f} ms an episode of {args.carts} carts"
    )


if __name__ == "__main__":
    main()
