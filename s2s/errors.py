"""The one exception for mistakes that a user can mend."""


class UserError(Exception):
    """A mistake in what the user gave: what went wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2.

    Args:
        what: what went wrong, with the offending value.
        where: file, line or key, e.g. ``recipes/a.yaml:12``; empty when there is none.
        remedy: what the user can do about it.
    """

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        lines = [f"{where}: {what}" if where else what]
        if remedy:
            lines.append(f"  → {remedy}")
        super().__init__("\n".join(lines))
