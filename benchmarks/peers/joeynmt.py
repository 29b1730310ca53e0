"""JoeyNMT by its own training loop and its own prediction, from a configuration of the kind that it reads.

On a processor it computes in fp32 alone, whatever its configuration says. It shuffles sentences without regard to
length, and feeds the whole prefix again at each step of decoding. For decoding it has the weights of s2s: both are the
same network, so both write for the same model.
"""

import re
from pathlib import Path
from typing import Any

from benchmarks.peers.task import (
    BATCH,
    BEAM,
    CLIP,
    DROPOUT,
    HEADS,
    INNER,
    LAYERS,
    PENALTY,
    RATE,
    SIDES,
    SMOOTHING,
    WIDTH,
    Task,
)
from benchmarks.peers.turns import Given, Turns, decode, named_pairs

# it wants its special pieces first, in this order
SPECIALS = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
_MOST = 1_000_000_000
_RENAMED = (
    (r"^(encoder|decoder)\.embedding\.tokens\.weight$", r"\1 embedding"),
    (r"\.self_attention\.", ".trg_trg_att."),
    (r"\.cross_attention\.", ".src_trg_att."),
    (r"\.attention\.", ".src_src_att."),
    (r"_att\.(k|v|q)(ey|alue|uery)\.", r"_att.\1_layer."),
    (r"_att\.output\.", "_att.output_layer."),
    (r"\.attention_block\.norm\.", ".layer_norm."),
    (r"\.self_block\.norm\.", ".x_layer_norm."),
    (r"\.cross_block\.norm\.", ".dec_layer_norm."),
    (r"\.feedforward_block\.norm\.", ".feed_forward.layer_norm."),
    (r"\.feedforward\.expand\.", ".feed_forward.pwff_layer.0."),
    (r"\.feedforward\.contract\.", ".feed_forward.pwff_layer.3."),
    (r"^(encoder|decoder)\.norm\.", r"\1.layer_norm."),
    (r"^projection\.weight$", "decoder.output_layer.weight"),
    (r"^encoder embedding$", "src_embed.lut.weight"),
    (r"^decoder embedding$", "trg_embed.lut.weight"),
)


def config(task: Task, scratch: Path) -> dict[str, Any]:
    """What stands in its YAML."""
    side = {
        "type": "transformer",
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": DROPOUT},
        "hidden_size": WIDTH,
        "ff_size": INNER,
        "dropout": DROPOUT,
        "layer_norm": "pre",
    }
    language = {"level": "word", "lowercase": False, "normalize": False, "voc_file": str(task.vocabulary)}
    named = {f"{name}_token": piece for name, piece in SPECIALS.items()}
    numbered = {f"{name}_id": number for number, name in enumerate(SPECIALS)}
    return {
        "name": "peer",
        "joeynmt_version": "2.3.0",
        "model_dir": str(scratch),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": str(task.side("train", "")).rstrip("."),
            "dev": str(task.side("test", "")).rstrip("."),
            "test": str(task.side("test", "")).rstrip("."),
            "dataset_type": "plain",
            "src": {"lang": SIDES[0]} | language,
            "trg": {"lang": SIDES[1]} | language,
            "special_symbols": named | numbered,
        },
        "testing": {"beam_size": BEAM, "beam_alpha": PENALTY, "batch_size": BATCH, "batch_type": "sentence"},
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "learning_rate": RATE,
            "learning_rate_min": 0.0,
            # it knows no constant rate, and for plateaus it asks torch for what is gone: this one begins with RATE
            "scheduling": "noam",
            "learning_rate_factor": RATE * WIDTH**0.5,
            "learning_rate_warmup": 1,
            "clip_grad_norm": CLIP,
            "label_smoothing": SMOOTHING,
            "normalization": "tokens",
            "batch_size": task.tokens,
            "batch_type": "token",
            "epochs": _MOST,
            "validation_freq": _MOST,
            "logging_freq": 100,
            "shuffle": True,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": side,
            "decoder": side,
        },
    }


def renamed(name: str) -> str:
    """Its name of a tensor that s2s has."""
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def training(given: Given) -> None:
    """Its training loop, which waits where an update begins."""
    from joeynmt import training as joey

    turns, pieces = Turns(given.answers), _pieces(given.task)
    one_step = joey.TrainManager._train_step

    def step(manager: Any, batch: Any) -> tuple[float, int]:
        turns.begin()
        loss, correct = one_step(manager, batch)
        named = named_pairs(batch.src, batch.trg, pieces)
        turns.learned(batch.ntokens, batch.trg.numel(), loss, named)
        return loss, correct

    joey.TrainManager._train_step = step
    joey.train(0, 1, config(given.task, given.scratch), skip_test=True)


def decoding(given: Given) -> None:
    """Its prediction."""
    import numpy as np
    import torch
    from joeynmt.config import parse_global_args
    from joeynmt.prediction import predict, prepare

    args = parse_global_args(config(given.task, given.scratch), rank=0, mode="train")
    model, _, _, test = prepare(args, rank=0, mode="train")
    weights = {renamed(name): torch.from_numpy(value) for name, value in np.load(given.task.weights).items()}
    for name in ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"):
        # the first four pieces stand in another order
        weights[name] = weights[name][[3, 0, 1, 2, *range(4, len(weights[name]))]]
    kept = {name: value for name, value in model.state_dict().items() if name.endswith(".pe")}
    model.load_state_dict(weights | kept)

    def translate() -> list[str]:
        found = predict(model, test, args.device, args.n_gpu, args=args.test, autocast=args.autocast)
        return [" ".join(row).removesuffix(SPECIALS["eos"]).rstrip(" ") for row in found[3]]

    decode(given, translate)


def _pieces(task: Task) -> list[str]:
    return [*SPECIALS.values(), *task.pieces[len(SPECIALS) :]]


def main() -> None:
    given = Given.read()
    {"training": training, "decoding": decoding}[given.part](given)


if __name__ == "__main__":
    main()
