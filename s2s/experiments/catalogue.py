"""All experiments, by the name that is typed after `--experiment`, in the order in which they run.

`s2s.results.TABLES` names them; each is the `EXPERIMENT` of `measure.py` in the folder of its name.
"""

from importlib import import_module

from s2s.experiments.contest import Experiment
from s2s.results import TABLES


def _in_order(named: dict[str, Experiment]) -> dict[str, Experiment]:
    """As the tables have them, but each after the experiment whose trained models it looks at."""
    placed: dict[str, Experiment] = {}
    for name, experiment in named.items():
        for each in (experiment.reads, name):
            if each:
                placed.setdefault(each, named[each])
    return placed


EXPERIMENTS: dict[str, Experiment] = _in_order(
    {
        name: import_module(f"s2s.experiments.{name.replace('-', '_')}.measure").EXPERIMENT
        for table in TABLES.values()
        for _, name in table.values()
    }
)
