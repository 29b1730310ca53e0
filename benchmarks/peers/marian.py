"""transformers' Marian model in a plain loop, on the batches of similar length that s2s has.

Marian normalises after each block, where the others do before: as many operations.
"""

import itertools
from typing import Any

from benchmarks.peers.task import CLIP, DROPOUT, HEADS, INNER, LAYERS, RATE, SMOOTHING, WIDTH
from benchmarks.peers.turns import Given, Turns, named_pairs, train

_PAD, _BEGIN, _END = range(3)


def config(pieces: int) -> dict[str, Any]:
    """The arguments of `transformers.MarianConfig`."""
    return {
        "vocab_size": pieces,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": INNER,
        "decoder_ffn_dim": INNER,
        "dropout": DROPOUT,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
        "pad_token_id": _PAD,
        "bos_token_id": _BEGIN,
        "eos_token_id": _END,
        "forced_eos_token_id": None,
        "decoder_start_token_id": _BEGIN,
    }


def main() -> None:
    import torch
    from torch.nn import functional
    from transformers import MarianConfig, MarianMTModel

    given = Given.read()
    torch.manual_seed(1)
    pieces = given.task.pieces
    numbers = {name: number for number, name in enumerate(pieces)}
    model = MarianMTModel(MarianConfig(**config(len(pieces)))).train()
    adam = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    rows = [[[numbers[name] for name in text.split(" ")] for text in pair] for pair in given.task.pairs]
    batches = itertools.cycle(given.task.batches)

    def padded(texts: list[list[int]]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence([torch.tensor([*t, _END]) for t in texts], True, _PAD)

    def update(turns: Turns) -> None:
        chosen = [rows[number] for number in next(batches)]
        source, target = (padded([pair[side] for pair in chosen]) for side in (0, 1))
        begun = torch.cat((torch.full((len(target), 1), _BEGIN), target[:, :-1]), dim=1)
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=given.form == "bf16"):
            logits = model(input_ids=source, attention_mask=source != _PAD, decoder_input_ids=begun).logits
        loss = functional.cross_entropy(
            logits.float().flatten(0, 1), target.flatten(), ignore_index=_PAD, label_smoothing=SMOOTHING
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        tokens = int((target != _PAD).sum())
        turns.learned(tokens, target.numel(), loss.item(), named_pairs(source, target, pieces))

    train(given, update)


if __name__ == "__main__":
    main()
