"""Eole, which OpenNMT-py became, by its own training loop, from a configuration of the kind that it reads.

OpenNMT-py itself (3.5.1, its last) asks for torch below 2.3. Eole sorts a bucket by length, here all pairs, and leaves
out of a batch what has the same source as a pair before it; its sources have no end.
"""

from pathlib import Path
from typing import Any

from benchmarks.peers.task import (
    CLIP,
    DROPOUT,
    HEADS,
    INNER,
    LAYERS,
    RATE,
    SIDES,
    SMOOTHING,
    SPECIALS,
    WIDTH,
    Task,
)
from benchmarks.peers.turns import Given, Turns, named_pairs

_MOST = 1_000_000_000


def config(task: Task, scratch: Path, precision: str) -> dict[str, Any]:
    """What stands in its YAML."""
    sides = dict(zip(("path_src", "path_tgt"), (str(task.side("train", side)) for side in SIDES), strict=True))
    tokens = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIALS, strict=True))
    return {
        "seed": 1,
        "src_vocab": str(task.vocabulary),
        "tgt_vocab": str(task.vocabulary),
        "share_vocab": True,
        "vocab_size_multiple": 1,
        "data": {"pairs": sides | {"transforms": []}},
        "transforms": [],
        "report_every": _MOST,
        **tokens,
        "decoder_start_token": SPECIALS[1],
        "model": {
            "architecture": "transformer",
            "hidden_size": WIDTH,
            "layers": LAYERS,
            "heads": HEADS,
            "transformer_ff": INNER,
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": WIDTH,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        "training": {
            "model_path": str(scratch),
            "world_size": 1,
            "gpu_ranks": [],
            "num_workers": 0,
            "compute_dtype": precision,
            "batch_type": "tokens",
            "batch_size": task.tokens,
            "bucket_size": len(task.pairs),
            "normalization": "tokens",
            "optim": "adam",
            "adam_beta2": 0.98,
            "learning_rate": RATE,
            "max_grad_norm": CLIP,
            "label_smoothing": SMOOTHING,
            "dropout": [DROPOUT],
            "attention_dropout": [0.0],
            "dropout_steps": [0],
            "param_init_method": "xavier_uniform",
            "log_attention_entropy": False,
            "train_steps": _MOST,
            "valid_steps": _MOST,
            "save_checkpoint_steps": _MOST,
        },
    }


def main() -> None:
    """Its training loop, which waits where an update begins."""
    from eole import trainer
    from eole.config.run import TrainConfig
    from eole.train_single import main as train

    given = Given.read()
    turns, own = Turns(given.answers), trainer.Trainer._train_step

    def step(loop: Any, batches: Any, normalization: int, total: Any, report: Any, step: int = 0) -> None:
        turns.begin()
        before = total.n_tokens, total.loss
        own(loop, batches, normalization, total, report, step)
        tokens, loss = total.n_tokens - before[0], total.loss - before[1]
        (batch,) = batches
        names = loop.scoring_preparator.vocabs["tgt"].ids_to_tokens
        target = batch["tgt"][:, 1:]
        turns.learned(tokens, target.numel(), loss / tokens, named_pairs(batch["src"], target, names))

    trainer.Trainer._train_step = step
    train(TrainConfig(**config(given.task, given.scratch, given.form)), device_id=-1)


if __name__ == "__main__":
    main()
