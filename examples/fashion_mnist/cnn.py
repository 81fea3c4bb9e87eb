"""A small convolutional network for images of 28 x 28 pixels, as cnn.toml names it: model = "cnn.py:build"."""

from __future__ import annotations

import torch
from torch import nn

SIDE = 28


class Images(nn.Module):
    """Rows of pixels from 0 to 255 as images of one channel, from -0.5 to 0.5."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.reshape(-1, 1, SIDE, SIDE) / 255 - 0.5


def build(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions that halve the image, and one linear layer."""
    assert inputs == SIDE**2
    return nn.Sequential(
        Images(),
        nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (SIDE // 4) ** 2, outputs),
    )
