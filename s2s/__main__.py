"""Entry point of `s2s` and `python -m s2s`.

Handles Ctrl-C during imports, which take seconds, with a one-line message.
"""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    from s2s.cli.main import main as command_line

    command_line()


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Exit without a traceback if Ctrl-C interrupts an import; else raise as usual.

    Nothing can be lost during an import, and an interrupted library may raise misleading errors.
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
