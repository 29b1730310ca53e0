"""Name of a candidate: the kind of an installed model, and its settings if it has any.

`transformer:encoder_positions=rope,norm=post` is a Transformer with two settings. Tables and legends show the name as
the user wrote it; file names have a shorter form.
"""

import hashlib
import re

# File names are limited to 255 bytes, and a candidate's name is only a part of them.
_LONGEST = 60


def kind_of(name: str) -> str:
    """Return the kind of a candidate's model."""
    return name.partition(":")[0]


def settings_in(name: str) -> list[str]:
    """Return the settings in a candidate's name, each as `key=value`."""
    return [text for text in name.partition(":")[2].split(",") if text]


def file_name(name: str) -> str:
    """Return a candidate's name for use in file names; different names stay different."""
    if ":" not in name:
        return name
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", name)[:_LONGEST].strip("-")
    return f"{readable}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
