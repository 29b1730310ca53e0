"""All experiments, by the name that is typed after `--experiment`, in the order in which they run.

`s2s.results.TABLES` names them; each is the `EXPERIMENT` of the folder of its name.
"""

from importlib import import_module

from s2s.experiments.contest import Experiment
from s2s.results import TABLES


def all_experiments() -> dict[str, Experiment]:
    """As the tables have them, but each after the experiment whose trained models it looks at."""
    names = dict.fromkeys(name for table in TABLES.values() for _, name in table.values())
    known = {name: import_module(f"s2s.experiments.{name.replace('-', '_')}").EXPERIMENT for name in names}
    return {each: known[each] for name in names for each in (known[name].reads, name) if each}


EXPERIMENTS = all_experiments()
