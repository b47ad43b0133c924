"""Unusual losses, and whole training steps with their optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.models.building import (
    GROUPED,
    TWO_LAYERS,
    VOCABULARY,
    Builder,
    Kind,
    Parts,
    text_model,
)


def _perceptron(inside: int = 8, outside: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, 16), nn.Tanh(), nn.Linear(16, outside))


# Physics and second derivatives.


class _Heat(nn.Module):
    """A network that learns to solve the heat equation. Its loss has first and second derivatives by the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _perceptron(2, 1)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        places = places.detach().requires_grad_()
        u = self.net(places)
        (first,) = torch.autograd.grad(u.sum(), places, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), places, create_graph=True)
        return (first[:, 1] - 0.1 * second[:, 0]).square().mean() + u.square().mean()


class _HeatByTransforms(_Heat):
    """The heat equation's residual as in `_Heat`, with derivatives by the transforms of `torch.func`."""

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        def u(place: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.net(place)[0]
            return result

        first = torch.func.vmap(torch.func.grad(u))(places)
        second = torch.func.vmap(torch.func.hessian(u))(places)
        return (first[:, 1] - 0.1 * second[:, 0, 0]).square().mean()


class _Mechanics(nn.Module):
    """The loss of a Hamiltonian network, which predicts motion by the gradient of an energy."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _perceptron(4, 1)

    def forward(self, state: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(self.net(state).sum(), state, create_graph=True)
        position, momentum = gradient.chunk(2, -1)
        return functional.mse_loss(torch.cat([momentum, -position], -1), speed)


class _Ordinary(nn.Module):
    """A neural differential equation, solved by four Runge-Kutta steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _perceptron()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = 0.25
        for _ in range(4):
            a = self.net(x)
            b = self.net(x + h / 2 * a)
            c = self.net(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + self.net(x + h * c))
        return x


PHYSICS: Kind = {
    "pinn": lambda: (_Heat(), (torch.rand(8, 2),), {}),
    "pinn_by_transforms": lambda: (_HeatByTransforms(), (torch.rand(8, 2),), {}),
    "hamiltonian": lambda: (_Mechanics(), (torch.randn(6, 4, requires_grad=True), torch.randn(6, 4)), {}),
    "neural_ode": lambda: (_Ordinary(), (torch.randn(4, 8),), {}),
}


# Contrastive losses.


class _Pairs(nn.Module):
    """The loss of SimCLR on two views of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(392, 16)
        )

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        z = functional.normalize(self.encoder(torch.cat([first, second])), dim=-1)
        scores = z @ z.T / 0.1
        scores.fill_diagonal_(-1e9)
        rows = len(first)
        return functional.cross_entropy(scores, torch.cat([torch.arange(rows, 2 * rows), torch.arange(rows)]))


class _PairsWithoutOwn(_Pairs):
    """The loss of SimCLR with two masks: one drops each image's score with itself, the other selects positive pairs."""

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        z = functional.normalize(self.encoder(torch.cat([first, second])), dim=-1)
        labels = torch.arange(len(first)).repeat(2)
        same, own = labels[:, None] == labels[None], torch.eye(len(z), dtype=torch.bool)
        scores = (z @ z.T)[~own].view(len(z), -1)
        same = same[~own].view(len(z), -1)
        ordered = torch.cat([scores[same].view(len(z), -1), scores[~same].view(len(z), -1)], 1) / 0.1
        return functional.cross_entropy(ordered, torch.zeros(len(z), dtype=torch.long))


class _Towers(nn.Module):
    """The loss of CLIP, with a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.image, self.scale = _perceptron(6), _perceptron(12), nn.Parameter(torch.tensor(2.6))

    def forward(self, text: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        a, b = functional.normalize(self.text(text), dim=-1), functional.normalize(self.image(image), dim=-1)
        scores = self.scale.exp().clamp(max=100) * a @ b.T
        labels = torch.arange(len(a), device=a.device)
        return (functional.cross_entropy(scores, labels) + functional.cross_entropy(scores.T, labels)) / 2


class _Follower(nn.Module):
    """A student and a teacher (BYOL). Each forward moves the teacher's weights slightly toward the student's."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.head = _perceptron(), _perceptron()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)
            expected = functional.normalize(self.teacher(second), dim=-1)
        return 2 - 2 * (functional.normalize(self.head(self.student(first)), dim=-1) * expected).sum(-1).mean()


class _Mined(nn.Module):
    """A triplet loss: the mean over the triplets whose loss is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _perceptron()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        z = self.net(x)
        apart = torch.cdist(z, z)
        same = labels[:, None] == labels[None]
        farthest = (apart * same).amax(1)
        nearest = apart.masked_fill(same, 1e6).amin(1)
        losses = functional.relu(farthest - nearest + 1.0)
        hard = losses[losses > 0]
        return hard.mean() if hard.numel() > 0 else losses.sum()


def _views() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3, 16, 16), torch.randn(4, 3, 16, 16)


CONTRASTIVE: Kind = {
    "simclr": lambda: (_Pairs(), _views(), {}),
    "simclr_with_masks": lambda: (_PairsWithoutOwn(), _views(), {}),
    "clip_loss": lambda: (_Towers(), (torch.randn(4, 6), torch.randn(4, 12)), {}),
    "byol": lambda: (_Follower(), (torch.randn(4, 8), torch.randn(4, 8)), {}),
    "triplets": lambda: (_Mined(), (torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2])), {}),
}


# Whole training steps. A step has a model and an optimizer, and is called with a batch.


class Step:
    """A training step of a model, including the update by an optimizer."""

    def __init__(self, model: nn.Module, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> None:
        self.model = model
        make = optimizer or (lambda given: torch.optim.SGD(given, lr=1e-2, momentum=0.9))
        self.optimizer = make(model.parameters())

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.model(x), y)

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randn(4, 8)


def _adamw(**config: Any) -> Builder:
    return lambda: (Step(_perceptron(), lambda given: torch.optim.AdamW(given, lr=1e-3, **config)), _batch(), {})


class _Accumulating(Step):
    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        self.optimizer.zero_grad()
        for part, expected in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = self.loss(part, expected) / 2
            loss.backward()
            total += loss.detach()
        self.optimizer.step()
        return total


class _Clipping(Step):
    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)
        self.optimizer.step()
        return loss.detach()


class _Averaging(Step):
    """A training step that also updates a moving average of the weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.average = copy.deepcopy(model).requires_grad_(False)

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = super().__call__(x, y)
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss


class _Autocast(Step):
    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().loss(x, y)


class _Skipping(Step):
    """A training step that does not update the weights if the loss is not finite."""

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        if torch.isfinite(loss):
            loss.backward()
            self.optimizer.step()
        return loss.detach()


class _Scheduled(Step):
    """A training step whose learning rate follows a schedule."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = super().__call__(x, y)
        self.scheduler.step()
        return loss


class _Tied(nn.Module):
    """A hand-written language model whose head shares the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(functional.gelu(self.layer(self.embed(tokens))))
        return result


class _NextToken(Step):
    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())


def _tied() -> Parts:
    return _NextToken(_Tied()), (torch.randint(0, 20, (2, 6)), torch.randint(0, 20, (2, 6))), {}


class _OfTokens(Step):
    """A training step of a Hugging Face model. The model computes its own loss."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(input_ids=x, labels=y).loss
        return result


def _tokens_step(build: Builder, *, checkpoints: bool = False) -> Builder:
    def whole() -> Parts:
        module: Any = build()[0]
        if checkpoints:
            module.gradient_checkpointing_enable()
        tokens = torch.randint(3, VOCABULARY, (2, 8))
        return _OfTokens(module.train()), (tokens, tokens), {}

    return whole


class _Inner(nn.Module):
    """The loss of meta-learning (MAML), computed after an inner step of gradient descent."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _perceptron()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        given = dict(self.net.named_parameters())
        loss = functional.mse_loss(torch.func.functional_call(self.net, given, (x,)), y)
        gradients = torch.autograd.grad(loss, list(given.values()), create_graph=True)
        moved = {
            name: tensor - 0.1 * gradient for (name, tensor), gradient in zip(given.items(), gradients, strict=True)
        }
        return functional.mse_loss(torch.func.functional_call(self.net, moved, (x,)), y)


def _checkpointed_model() -> Parts:
    module, args, kwargs = text_model("Llama", **TWO_LAYERS)()
    model: Any = module
    model.gradient_checkpointing_enable()
    return model.train(), args, kwargs


STEPS: Kind = {
    "step_sgd": lambda: (Step(_perceptron()), _batch(), {}),
    "step_adamw": _adamw(foreach=False),
    "step_adamw_foreach": _adamw(foreach=True),
    "step_accumulating": lambda: (_Accumulating(_perceptron()), _batch(), {}),
    "step_clipping": lambda: (_Clipping(_perceptron()), _batch(), {}),
    "step_averaging": lambda: (_Averaging(_perceptron()), _batch(), {}),
    "step_autocast": lambda: (_Autocast(_perceptron()), _batch(), {}),
    "step_skipping": lambda: (_Skipping(_perceptron()), _batch(), {}),
    "step_scheduled": lambda: (_Scheduled(_perceptron()), _batch(), {}),
    "step_tied": _tied,
    "step_llama": _tokens_step(text_model("Llama", **GROUPED)),
    "step_checkpoints": _tokens_step(text_model("Llama", **TWO_LAYERS), checkpoints=True),
    "checkpoints": _checkpointed_model,
    "meta_learning": lambda: (_Inner(), _batch(), {}),
}


# Adversarial training.


class _Adversaries:
    """A training step of a GAN, which updates first the critic and then the generator.

    If `shared`, both updates use the same generated samples. If `penalty`, the critic's loss has a gradient penalty.
    """

    def __init__(self, *, penalty: bool = False, shared: bool = True) -> None:
        self.generator, self.critic = _perceptron(4, 8), _perceptron(8, 1)
        self.of_generator = torch.optim.SGD(self.generator.parameters(), lr=1e-2, momentum=0.9)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=1e-2, momentum=0.9)
        self.penalty, self.shared = penalty, shared

    def __call__(self, real: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fake = self.generator(noise)
        loss_critic = self.critic(fake.detach()).mean() - self.critic(real).mean()
        if self.penalty:
            between = (0.4 * real + 0.6 * fake.detach()).requires_grad_()
            (gradient,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
            loss_critic = loss_critic + 10 * (gradient.norm(dim=1) - 1).square().mean()
        self.of_critic.zero_grad()
        loss_critic.backward()
        self.of_critic.step()
        loss_generator = -self.critic(fake if self.shared else self.generator(noise)).mean()
        self.of_generator.zero_grad()
        loss_generator.backward()
        self.of_generator.step()
        return loss_critic.detach(), loss_generator.detach()


class _CriticLoss(nn.Module):
    """A module that returns the sum of the generator's and the critic's hinge losses, without optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = _perceptron(4, 8), nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1))

    def forward(self, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        fake = self.generator(noise)
        critic = functional.relu(1 - self.critic(real)).mean() + functional.relu(1 + self.critic(fake.detach())).mean()
        return critic - self.critic(fake).mean()


def _noise() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randn(4, 4)


ADVERSARIES: Kind = {
    "gan": lambda: (_Adversaries(), _noise(), {}),
    "gan_without_shared_fakes": lambda: (_Adversaries(shared=False), _noise(), {}),
    "gan_with_penalty": lambda: (_Adversaries(penalty=True), _noise(), {}),
    "hinge_losses": lambda: (_CriticLoss(), _noise(), {}),
}


# Reinforcement learning.


class _Clipped(nn.Module):
    """The loss of PPO for a categorical policy and a value function."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.policy, self.value = _perceptron(4, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(
        self, seen: torch.Tensor, actions: torch.Tensor, before: torch.Tensor, gains: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.body(seen)
        chance = torch.distributions.Categorical(logits=self.policy(hidden))
        ratio = (chance.log_prob(actions) - before).exp()
        gain = (gains - gains.mean()) / (gains.std() + 1e-8)
        policy = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return 0.5 * functional.mse_loss(self.value(hidden)[:, 0], gains) - policy - 0.01 * chance.entropy().mean()


class _Policy(nn.Module):
    """The loss of an actor and a critic for an episode. A Python loop computes discounted returns from the rewards."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = _perceptron(4, 3), _perceptron(4, 1)

    def forward(self, seen: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
        total, returns = torch.zeros(()), []
        for reward in rewards.flip(0):
            total = reward + 0.99 * total
            returns.insert(0, total)
        expected = torch.stack(returns)
        values = self.critic(seen)[:, 0]
        chance = self.actor(seen).log_softmax(-1).gather(1, actions[:, None])[:, 0]
        return -(chance * (expected - values).detach()).mean() + functional.smooth_l1_loss(values, expected)


class _Update(Step):
    """A whole update of PPO: two optimizer steps with clipped gradients, each on half of the rollout."""

    def __call__(self, *rollout: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # a rollout is more than a pair
        losses = []
        for first in (0, 1):
            rows = torch.arange(first, len(rollout[0]), 2)
            loss = self.model(*(tensor[rows] for tensor in rollout))
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)


class _Deep(nn.Module):
    """The loss of deep Q-learning, with a frozen target network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _perceptron(4, 3)
        self.target = copy.deepcopy(self.net).requires_grad_(False)

    def forward(
        self, seen: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, after: torch.Tensor, done: torch.Tensor
    ) -> torch.Tensor:
        value = self.net(seen).gather(1, actions[:, None])[:, 0]
        with torch.no_grad():
            best = torch.zeros(len(seen))
            best[~done] = self.target(after[~done]).amax(1)
        return functional.smooth_l1_loss(value, rewards + 0.99 * best)


def _rollout() -> tuple[torch.Tensor, ...]:
    return torch.randn(6, 4), torch.randint(0, 3, (6,)), -torch.rand(6), torch.randn(6)


def _transitions() -> tuple[torch.Tensor, ...]:
    return (
        torch.randn(6, 4),
        torch.randint(0, 3, (6,)),
        torch.randn(6),
        torch.randn(6, 4),
        torch.tensor([False, True] * 3),
    )


REINFORCEMENT: Kind = {
    "ppo_loss": lambda: (_Clipped(), _rollout(), {}),
    "ppo_update": lambda: (_Update(_Clipped()), _rollout(), {}),
    "actor_critic": lambda: (_Policy(), (torch.randn(5, 4), torch.randint(0, 3, (5,)), torch.rand(5)), {}),
    "deep_q": lambda: (_Deep(), _transitions(), {}),
}
