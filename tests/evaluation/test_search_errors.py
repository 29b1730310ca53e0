"""A search that tries all outputs misses none, whatever the decoding settings."""

import itertools
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from s2s.comparison.matching import settings_of
from s2s.data.batches import collate_sources
from s2s.decoding.beam_search import Hypothesis, search
from s2s.decoding.generate import Candidate, Translation, beam_from_settings
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DecodingSettings
from s2s.tasks.symptoms import search_errors

KINDS, LENGTH = 3, 3


@pytest.mark.parametrize(
    "settings",
    [{}, {"copy_penalty": 3.0}, {"min_length": 3, "length_penalty": 0.0}, {"no_repeat_ngram": 1}, {"sample": True}],
)
def test_exhaustive_search_has_no_search_errors(settings):
    torch.manual_seed(1)
    size = 4 + KINDS
    options = {"width": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = module_of("transformer").build(settings_of("transformer", options), size, size).eval()
    decoding = DecodingSettings(beam=KINDS**LENGTH, **settings)
    beam = beam_from_settings(decoding, 1)
    texts = [row for n in range(1, LENGTH + 1) for row in itertools.product(range(4, size), repeat=n)]
    # each text is the reference of every source once
    pairs = list(itertools.product([(4, 5), (6,), (5, 5, 4)], texts))
    sources, wanted = ([list(pair[side]) for pair in pairs] for side in (0, 1))
    source, valid = collate_sources(sources)
    with torch.inference_mode():
        if decoding.sample:
            # unlikely samples
            found = [[Hypothesis((*row, 4), -100.0, -100.0, False)] for row in wanted]
        else:
            found = search(model, source, valid, np.full(len(pairs), LENGTH), beam, size)
    written = [Translation((Candidate("", best.score, best),)) for best, *_ in found]
    run = SimpleNamespace(
        model=model,
        recipe=SimpleNamespace(decoding=decoding),
        device_context=SimpleNamespace(device=torch.device("cpu")),
    )
    sign = search_errors(
        cast(Any, run), beam, written, wanted, lambda rows: collate_sources([sources[i] for i in rows])
    )
    assert sign.value == 0, sign.measured
