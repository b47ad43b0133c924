"""Diffusion models, autoencoders and flows, most of them hand-written, and video models of libraries."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.models.building import BLOCKS, NO_DROPOUT, WIDTH, Builder, Kind, Parts, hugging_face


def _of_time(steps: torch.Tensor, width: int) -> torch.Tensor:
    """Return the sinusoidal embedding of diffusion steps."""
    rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2, dtype=torch.float32) / (width // 2))
    angles = steps[:, None].float() * rates[None]
    return torch.cat([angles.sin(), angles.cos()], -1)


class _Block(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, inside), nn.GroupNorm(4, outside)])
        self.time = nn.Linear(16, outside)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.first(functional.silu(self.norms[0](x))) + self.time(functional.silu(time))[:, :, None, None]
        result: torch.Tensor = self.second(functional.silu(self.norms[1](hidden))) + self.skip(x)
        return result


class _UNet(nn.Module):
    """The UNet of a diffusion model, with attention in the middle. It returns the error of predicted noise."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.outlet = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.down = nn.ModuleList([_Block(8, 8), _Block(8, 16)])
        self.middle, self.attention = _Block(16, 16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.ModuleList([_Block(32, 8), _Block(16, 8)])
        self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0))

    def forward(self, clean: torch.Tensor, noise: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        kept = self.kept[steps][:, None, None, None]
        x = self.inlet(kept.sqrt() * clean + (1 - kept).sqrt() * noise)
        time, skips = _of_time(steps, 16), []
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.middle(x, time)
        rows = x.flatten(2).transpose(1, 2)
        x = x + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block in self.up:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2.0), skips.pop()], 1), time)
        return functional.mse_loss(self.outlet(x), noise)


def _unet() -> Parts:
    return _UNet(), (torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16), torch.tensor([3, 70])), {}


class _DiTBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2))
        self.to_qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU("tanh"), nn.Linear(64, WIDTH))
        self.modulate = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulate(given)[:, None].chunk(6, -1)
        q, k, v = self.to_qkv(self.norms[0](x) * (1 + scale) + shift).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(attended)
        result: torch.Tensor = x + gate_2 * self.mlp(self.norms[1](x) * (1 + scale_2) + shift_2)
        return result


class _DiT(nn.Module):
    """A diffusion transformer on patches of an image, conditioned on a class, with a flow-matching loss."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.labels, self.time = nn.Conv2d(4, WIDTH, 2, 2), nn.Embedding(11, WIDTH), nn.Linear(16, WIDTH)
        self.blocks = nn.ModuleList(_DiTBlock() for _ in range(2))
        self.head = nn.Linear(WIDTH, 16)
        self.places = nn.Parameter(torch.randn(1, 16, WIDTH) * 0.02)

    def forward(
        self, clean: torch.Tensor, noise: torch.Tensor, time: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        mixed = torch.lerp(noise, clean, time[:, None, None, None])
        x = self.patches(mixed).flatten(2).transpose(1, 2) + self.places
        given = self.labels(labels) + self.time(_of_time(time * 1000, 16))
        for block in self.blocks:
            x = block(x, given)
        speed = self.head(x).reshape(-1, 4, 4, 2, 2, 4).permute(0, 5, 1, 3, 2, 4).reshape(clean.shape)
        return functional.mse_loss(speed, clean - noise)


def _dit() -> Parts:
    return (
        _DiT(),
        (torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8), torch.tensor([0.3, 0.8]), torch.tensor([1, 10])),
        {},
    )


class _Flux(nn.Module):
    """A block of Flux: text and image attend jointly. Complex numbers rotate queries and keys by their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.ModuleDict({name: nn.Linear(WIDTH, 3 * WIDTH) for name in ("text", "image")})
        self.out = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in ("text", "image")})
        self.norm = nn.RMSNorm(8)

    @staticmethod
    def turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)

    def forward(self, text: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        both = []
        for name, x in (("text", text), ("image", image)):
            q, k, v = self.qkv[name](x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            both.append((self.norm(q), self.norm(k), v))
        q, k, v = (torch.cat(parts, 2) for parts in zip(*both, strict=True))
        angles = torch.outer(torch.arange(q.shape[2]).float(), 10000.0 ** (-torch.arange(4) / 4))
        turns = torch.polar(torch.ones_like(angles), angles)
        attended = functional.scaled_dot_product_attention(self.turned(q, turns), self.turned(k, turns), v)
        rows = attended.transpose(1, 2).flatten(2)
        length = text.shape[1]
        return self.out["text"](rows[:, :length]).square().mean() + self.out["image"](rows[:, length:]).square().mean()


def _flux() -> Parts:
    return _Flux(), (torch.randn(2, 4, WIDTH), torch.randn(2, 9, WIDTH)), {}


class _VAE(nn.Module):
    """A variational autoencoder. If the caller gives no noise, the module draws noise."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.SiLU(), nn.Conv2d(8, 8, 4, 2, 1))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        noise = torch.randn_like(mean) if noise is None else noise
        drawn = mean + (0.5 * log_variance).exp() * noise
        kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum((1, 2, 3)).mean()
        return functional.mse_loss(self.decoder(drawn), x) + 1e-3 * kl


def _vae() -> Parts:
    return _VAE(), (torch.randn(2, 3, 16, 16), torch.randn(2, 4, 4, 4)), {}


def _vae_that_draws() -> Parts:
    return _VAE(), (torch.randn(2, 3, 16, 16),), {}


def _vae_of_distributions() -> Parts:
    class Distributed(_VAE):
        def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
            mean, log_variance = self.encoder(x).chunk(2, 1)
            posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
            prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
            kl = torch.distributions.kl_divergence(posterior, prior).mean()
            likelihood = torch.distributions.Normal(self.decoder(posterior.mean), 1.0).log_prob(x).mean()
            return kl - likelihood

    return Distributed(), (torch.randn(2, 3, 16, 16),), {}


class _Coupling(nn.Module):
    """A normalizing flow of affine couplings (RealNVP), which returns the mean negative log-likelihood."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        log_determinant = torch.zeros(x.shape[0])
        for net in self.nets:
            first, second = x.chunk(2, -1)
            scale, shift = net(first).chunk(2, -1)
            x = torch.cat([second * scale.tanh().exp() + shift, first], -1)
            log_determinant = log_determinant + scale.tanh().sum(-1)
        return (0.5 * x.square().sum(-1) + 4 * math.log(2 * math.pi) - log_determinant).mean()


def _coupling() -> Parts:
    return _Coupling(), (torch.randn(6, 8),), {}


class _Field(nn.Module):
    """The loss of a neural radiance field, which encodes positions and sums colors along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, origins: torch.Tensor, directions: torch.Tensor, colors: torch.Tensor) -> torch.Tensor:
        depths = torch.linspace(0.5, 2.0, 8)
        points = origins[:, None] + directions[:, None] * depths[None, :, None]
        waves = points[..., None] * (2.0 ** torch.arange(4)) * math.pi
        raw = self.net(torch.cat([waves.sin(), waves.cos()], -1).flatten(-2))
        opacity = 1 - torch.exp(-functional.softplus(raw[..., 3]) * (depths[1] - depths[0]))
        passing = torch.cumprod(torch.cat([torch.ones(len(origins), 1), 1 - opacity + 1e-10], -1), -1)[:, :-1]
        seen = ((opacity * passing)[..., None] * raw[..., :3].sigmoid()).sum(1)
        return functional.mse_loss(seen, colors)


def _field() -> Parts:
    return _Field(), (torch.randn(6, 3), functional.normalize(torch.randn(6, 3), dim=-1), torch.rand(6, 3)), {}


def _clip_of(kind: str, task: str, labels: Any, **config: Any) -> Builder:
    """Return a builder of a video model. The model gets two videos of four frames each."""

    def build() -> Parts:
        module = hugging_face(
            kind,
            task,
            {**BLOCKS, **NO_DROPOUT, "image_size": 16, "patch_size": 8, "num_frames": 4, "num_labels": 3, **config},
        )
        return module, (torch.randn(2, 4, 3, 16, 16),), labels()

    return build


def _classes() -> dict[str, Any]:
    return {"labels": torch.tensor([0, 2])}


def _hidden_patches() -> dict[str, Any]:
    return {"bool_masked_pos": torch.tensor([[True, False, True, True, False, True, False, True]] * 2)}


def _tiny_r3d() -> Parts:
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet

    return VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, 5), (torch.randn(2, 3, 4, 32, 32),), {}


def _masked_images() -> Parts:
    config = {
        **BLOCKS,
        **NO_DROPOUT,
        "image_size": 16,
        "patch_size": 4,
        "decoder_hidden_size": 16,
        "decoder_intermediate_size": 32,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 4,
    }
    return hugging_face("ViTMAE", "ForPreTraining", config), (torch.randn(2, 3, 16, 16),), {"noise": torch.rand(2, 16)}


def _swin_3d() -> Parts:
    from torchvision.models.video.swin_transformer import PatchEmbed3d, SwinTransformer3d

    module = SwinTransformer3d(
        [2, 4, 4], 16, [1, 1], [2, 2], [2, 4, 4], num_classes=5, stochastic_depth_prob=0.0, patch_embed=PatchEmbed3d
    )
    return module, (torch.randn(2, 3, 4, 16, 16),), {}


DIFFUSION: Kind = {
    "unet": _unet,
    "dit": _dit,
    "flux": _flux,
    "vae": _vae,
    "vae_that_draws": _vae_that_draws,
    "vae_of_distributions": _vae_of_distributions,
    "coupling_flow": _coupling,
    "radiance_field": _field,
    "masked_autoencoder": _masked_images,
}

VIDEO: Kind = {
    "videomae": _clip_of("VideoMAE", "ForVideoClassification", _classes),
    "videomae_pretraining": _clip_of(
        "VideoMAE",
        "ForPreTraining",
        _hidden_patches,
        decoder_hidden_size=16,
        decoder_intermediate_size=32,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=4,
    ),
    "timesformer": _clip_of("Timesformer", "ForVideoClassification", _classes, drop_path_rate=0),
    "vivit": _clip_of("Vivit", "ForVideoClassification", _classes, tubelet_size=[2, 8, 8]),
    "vjepa2": _clip_of(
        "VJEPA2",
        "Model",
        dict,
        crop_size=16,
        frames_per_clip=4,
        tubelet_size=2,
        mlp_ratio=2.0,
        pred_hidden_size=16,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=1,
        pred_num_mask_tokens=2,
    ),
    "r3d": _tiny_r3d,
    "swin3d": _swin_3d,
}
