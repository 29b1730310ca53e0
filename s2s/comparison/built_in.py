"""Small trainings of a translator on the built-in corpus."""

from collections.abc import Mapping
from typing import cast

from s2s.recipe.reading import shipped
from s2s.recipe.schema import DecodingSettings, DeviceSettings, Section, TokenizerSettings
from s2s.run.tasks import read
from s2s.tasks.translation.recipe import BatchSettings, Recipe


def built_in(
    model: Section | Mapping[str, object],
    data: Mapping[str, object],
    training: Mapping[str, object],
    batches: BatchSettings,
) -> Recipe[Section]:
    """The recipe `compare`, English to German in 1,000 pieces, on one processor, greedy; with other settings.

    Args:
        model: its settings, or those that are changed.
        data: what is changed.
        training: likewise.
        batches: in the place of its own.
    """
    base = cast(Recipe[Section], read(shipped()["compare"]))
    return base.model_copy(
        update={
            "data": base.data.model_copy(update=data),
            "tokenizer": TokenizerSettings(kind="unigram", size=1_000),
            "batches": batches,
            "model": model if isinstance(model, Section) else base.model.model_copy(update=model),
            "training": base.training.model_copy(update=training),
            "decoding": DecodingSettings(beam=1),
            "device": DeviceSettings(kind="cpu", precision="fp32"),
        }
    )
