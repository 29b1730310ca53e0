"""A candidate's name in a comparison: the kind of an installed model, and the settings that are its own.

`transformer:encoder_positions=rope,norm=post` is a Transformer with these two settings. The name stands as it was typed
in tables and legends, and shorter where it becomes a part of a file's name.
"""

import hashlib
import re

# a file's name takes 255 bytes, and a candidate's is a part of it
_LONGEST = 60


def kind_of(name: str) -> str:
    """The kind of a candidate's model."""
    return name.partition(":")[0]


def settings_in(name: str) -> list[str]:
    """The settings that a candidate's name holds, each as `key=value`, as far as they are well written."""
    return [text for text in name.partition(":")[2].split(",") if text]


def file_name(name: str) -> str:
    """Return a candidate's name for use in file names; different names stay different."""
    if ":" not in name:
        return name
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", name)[:_LONGEST].strip("-")
    return f"{readable}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
