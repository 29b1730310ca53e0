"""Saving of probe results in the folder of a run."""

from collections.abc import Callable

from s2s.files import explain_os_error
from s2s.tasks.base import AnyRun


def why_not_kept(run: AnyRun, write: Callable[[], object]) -> str:
    """Save the result of a probe, if the run's folder is writable.

    Runs that are read-only or fetched from the hub can be probed, too.

    Returns:
        The reason why the result was not saved; empty if it was saved.
    """
    if run.fetched:
        return f"{run.path} is the copy in the cache, which all who name this model share"
    try:
        write()
    except OSError as error:
        return str(explain_os_error(error))
    return ""
