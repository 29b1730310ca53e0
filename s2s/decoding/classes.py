"""Examples in, probabilities of classes out, in the order of the examples."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.ahead import batches_on
from s2s.data.encoding import Lists
from s2s.data.examples import Examples, LabelledBatch
from s2s.data.labelled_batches import LabelledTexts
from s2s.data.tokenizers import Tokenizer
from s2s.models.contract import Classifier
from s2s.recipe.classification import TextBatchSettings


def class_probabilities(
    model: Classifier, examples: Examples[LabelledBatch], advance: Callable[[int], object] = lambda count: None
) -> Float[np.ndarray, "examples classes"]:
    """The probability of each class, for each example; in fp32, dropout off.

    Args:
        model: stays in evaluation mode.
        examples: none of which is left out.
        advance: told how many examples were classified, batch by batch.
    """
    model.eval()
    device = model.head.weight.device
    found = np.zeros((len(examples), model.head.out_features))
    with torch.inference_mode():
        for rows, batch in batches_on(examples, device):
            scores = model(batch.source, batch.source_valid)
            # to the processor first: Apple's GPUs know no float64
            found[rows] = scores.cpu().double().softmax(dim=1).numpy()
            advance(len(rows))
    return found


class TextClassifier:
    """Text in, probabilities of the classes out.

    Args:
        model: on its device.
        tokenizer: cuts the texts.
        batches: how much of a text is read, and how many pieces at once.
        begin: whether texts begin with `BOS`.
    """

    def __init__(self, model: Classifier, tokenizer: Tokenizer, batches: TextBatchSettings, begin: bool) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batches = batches
        self.begin = begin

    def probabilities(self, texts: Sequence[str]) -> Float[np.ndarray, "texts classes"]:
        """The probability of each class, for each text; what stands beside a text changes nothing."""
        nothing = np.zeros(len(texts), dtype=np.int64)
        examples = LabelledTexts(self._pieces(texts), nothing, self.batches, self.begin)
        return class_probabilities(self.model, examples)

    def _pieces(self, texts: Sequence[str]) -> Lists:
        import pyarrow

        rows = self.tokenizer.encode_batch(texts) if texts else []
        return Lists(pyarrow.chunked_array([rows], type=pyarrow.list_(pyarrow.int32())))
