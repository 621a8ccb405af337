"""What docs/lazy.md says that the device checks at the call, by the run, and not at all."""

import pytest
import torch

import torch_xla


def bad_index(device):
    return torch.ones(3, device=device)[torch.tensor([3], device=device)]


def test_shapes_and_dtypes_are_checked_at_the_call(device):
    with pytest.raises(RuntimeError):
        torch.ones(3, device=device) + torch.ones(4, device=device)
    with pytest.raises(IndexError):
        torch.ones(3, device=device).sum(5)
    with pytest.raises(RuntimeError):
        torch.ones(3, device=device, dtype=torch.uint8).fill_(300)


@pytest.mark.checks_values
def test_elements_are_checked_by_the_run(device):
    kept = bad_index(device)
    with pytest.raises(IndexError):
        kept.cpu()


@pytest.mark.checks_values
@pytest.mark.parametrize("value", [1.5, -0.5, float("nan")])
def test_probabilities_are_checked_by_the_run(device, value):
    for draw in (torch.bernoulli, lambda p: torch.empty(2, device=device).bernoulli_(p)):
        for p in (torch.tensor([0.5, value]), torch.tensor([0.5, value]).double()):
            drawn = draw(p.to(device))
            with pytest.raises(RuntimeError, match="p_in"):
                drawn.cpu()
    drawn = torch.empty(2, device=device).bernoulli_(torch.tensor([0.5, value]))
    with pytest.raises(RuntimeError, match="p_in"):
        drawn.cpu()


@pytest.mark.checks_values
def test_embedding_checks_in_a_training_step(device):
    weight = torch.ones(3, 2, device=device, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor([0, 9], device=device), weight).sum().backward()
    with pytest.raises(IndexError):
        weight.grad.cpu()


def test_a_result_that_nothing_needs_is_not_checked(device):
    bad_index(device)
    torch_xla.sync(wait=True)
    assert torch.ones(2, device=device).tolist() == [1, 1]
