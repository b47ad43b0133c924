"""Fine-tune a small Llama in Hugging Face's `Trainer`, without and with an exported config. The losses are the same.

``python examples/train_in_trainer.py [--config FILE] [--steps N]``
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import workbench as wb

HERE = Path(__file__).parent
VOCABULARY, TOKENS, BATCH = 64, 8, 2


def llama() -> LlamaForCausalLM:
    """Return a small Llama with the same parameters at each call."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, use_cache=False, **shape))


def rows(count: int) -> list[dict[str, torch.Tensor]]:
    """Return sequences that count up from a random token."""
    first = torch.randint(VOCABULARY, (count, 1), generator=torch.Generator().manual_seed(0))
    tokens = (first + torch.arange(TOKENS)) % VOCABULARY
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(model: nn.Module, steps: int) -> list[float]:
    """Train the model, and return the logged losses."""
    # If this were True, the Trainer would request a summed loss, and the statements would not fit the config.
    model.accepts_loss_kwargs = False
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            logging_steps=1,
            learning_rate=1e-2,
            save_strategy="no",
            report_to=[],
            remove_unused_columns=False,
            disable_tqdm=True,
            seed=0,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows(BATCH * steps))
        trainer.train()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def main() -> None:
    """Train twice from the same start, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=HERE / "choices_in_trainer.py", type=Path)
    parser.add_argument("--steps", default=5, type=int)
    given = parser.parse_args()

    config = wb.load(given.config)
    results = {"as it is": train(llama(), given.steps), "with the config": train(config.jit(llama()), given.steps)}
    for name, losses in results.items():
        print(f"{name:<16} {' '.join(f'{loss:.4f}' for loss in losses)}")


if __name__ == "__main__":
    main()
