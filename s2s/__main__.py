"""What `s2s` and `python -m s2s` begin with: from here on, Ctrl-C is one line, also while much is being loaded."""

import os
import signal
from types import FrameType


def main() -> None:
    """Runs the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    from s2s.cli.main import main as command_line

    command_line()


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Ends the process within an import, where nothing is to be lost, and where libraries that are interrupted show
    other errors than the interruption; elsewhere it is Python's own.
    """
    within = frame
    while within is not None:
        if within.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"stopped\n")
            os._exit(128 + number)
        within = within.f_back
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    main()
