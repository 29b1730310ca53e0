"""All experiments, by the name that is typed after `--experiment`, in the order in which they run."""

from s2s.experiments import (
    bottleneck,
    classification,
    decoding,
    gradients,
    long_range,
    memory,
    parallelism,
    positions,
    quality,
    scaling,
    text_length,
    transfer,
)
from s2s.experiments.contest import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        parallelism.EXPERIMENT,
        memory.EXPERIMENT,
        long_range.EXPERIMENT,
        gradients.EXPERIMENT,
        # the two after it look at the models that this one trains
        quality.EXPERIMENT,
        bottleneck.EXPERIMENT,
        positions.EXPERIMENT,
        decoding.EXPERIMENT,
        scaling.EXPERIMENT,
        transfer.EXPERIMENT,
        # of classification; the second looks at the models that the first one trains
        classification.EXPERIMENT,
        text_length.EXPERIMENT,
    )
}
