"""Models of Hugging Face and torchvision with random weights. The checks open them by name, as a user opens a file."""

from __future__ import annotations

from typing import Any


def gpt2() -> Any:
    """Return Hugging Face's GPT-2 with two layers of its published width, and its inputs."""
    import torch
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2)).train()
    ids = torch.randint(0, 50257, (4, 512))
    return model, (), {"input_ids": ids, "labels": ids}


def resnet18() -> Any:
    """Return torchvision's ResNet-18 with random weights, and its input."""
    import torch
    import torchvision

    model = torch.nn.Sequential(torchvision.models.resnet18(), torch.nn.LogSoftmax(-1))
    return model.train(), (torch.randn(16, 3, 224, 224),)


def named(factory: str) -> str:
    """Return the name with which `workbench.open` opens a model of this file."""
    return f"{__file__}:{factory}"


def is_named(program: str) -> bool:
    """Return whether a program's name is one of `named`."""
    return program.startswith(f"{__file__}:")
