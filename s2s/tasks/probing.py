"""What a probe of a trained model has found: kept in the run's folder, where that may be."""

from collections.abc import Callable
from typing import Any

from s2s.files import explain_os_error
from s2s.tasks.base import LoadedModel


def why_not_kept(run: LoadedModel[Any, Any], write: Callable[[], object]) -> str:
    """Writes what was found, and says why that could not be; empty where it could.

    A run that others may only read can be asked, too, and so can one that was fetched.
    """
    if run.fetched:
        return f"{run.path} is the copy in the cache, which all who name this model share"
    try:
        write()
    except OSError as error:
        return str(explain_os_error(error))
    return ""
