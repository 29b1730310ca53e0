"""Decoding on a device: same translations, one synchronization a token."""

import numpy as np
import pytest
import torch

from s2s.decoding import generate
from s2s.decoding.beam_search import Beam, search
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of

SIZE = 11


def _model(kind: str) -> Seq2Seq:
    torch.manual_seed(2)
    settings = {"kind": kind, "width": 8, "encoder_layers": 1, "decoder_layers": 1}
    if kind == "transformer":
        settings |= {"heads": 2, "feedforward": 16}
    module = module_of(kind)
    model = module.build(module.Settings.model_validate(settings), SIZE, SIZE).eval()
    with torch.no_grad():
        model.projection.weight.mul_(3)
    return model


@pytest.mark.parametrize(
    ("kind", "size"), [("transformer", 1), ("transformer", 4), pytest.param("mingru", 4, marks=pytest.mark.slow)]
)
def test_decoding_token_costs_one_question_and_the_hypotheses_are_those_of_a_processor(kind, size, pretend, counts):
    valid = torch.ones(5, 6, dtype=torch.bool)
    valid[1, 2:] = valid[3, 1:] = False
    source, limits = torch.randint(4, SIZE, (5, 6)), np.array([9, 4, 7, 3, 12])
    beam, model = Beam(size, nbest=size), _model(kind)
    steps = []
    model.decoder.register_forward_hook(lambda *_: steps.append(1))
    here = search(model, source, valid, limits, beam)
    model.to(pretend.device)
    source, valid = source.to(pretend.device), valid.to(pretend.device)
    counts.clear()
    steps.clear()
    there = generate.search(model, source, valid, limits, beam)
    assert len(steps) > 4
    assert counts["asked"] == len(steps)
    # the ways to go on; and, where sentences reach their limits, which rows must end
    assert len(steps) <= counts["sent"] <= len(steps) + len(set(limits))
    for ours, theirs in zip(here, there, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-5)
