"""A small denoiser, trained by a few steps, and a pipeline around it."""

import torch
import torch.nn.functional as F
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel


def make_model() -> UNet2DModel:
    """Random weights."""
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )


def train(model: UNet2DModel, device: str) -> list[float]:
    """The losses of 4 steps on the same batch, noise and times."""
    generator = torch.Generator().manual_seed(4)
    clean, noise = torch.randn(2, 4, 1, 8, 8, generator=generator).unbind()
    times = torch.tensor([3, 100, 500, 900])
    scheduler = DDIMScheduler()
    clean, noise, times = (t.to(device) for t in (clean, noise, times))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        prediction = model(scheduler.add_noise(clean, noise, times), times).sample
        loss = F.mse_loss(prediction, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def draw(model: UNet2DModel) -> torch.Tensor:
    """Images of the pipeline, of a fixed seed on the CPU."""
    pipeline = DDIMPipeline(model, DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(6)
    images = pipeline(batch_size=2, generator=generator, num_inference_steps=3, output_type="np").images
    return torch.from_numpy(images)
