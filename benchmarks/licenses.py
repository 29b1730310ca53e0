"""List the licences of all packages that s2s installs: python -m benchmarks.licenses.

Writes the table of THIRD_PARTY_LICENSES.md from the metadata of the installed packages; rows of packages that are not
installed stay as they are.
"""

import re
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata

from benchmarks.keeping import BEGIN, ROOT, write_tables

PAGE = "THIRD_PARTY_LICENSES.md"
LOCKS = {"requirements.lock": "use, tests", "requirements-dev.lock": "development"}

# metadata that say less than the package's licence file does, or all of its text
_READ_BY_HAND = {"docutils": "Public Domain AND BSD-2-Clause AND GPL-3.0-or-later (one file of its Emacs mode)"}
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF",
}


def pins(lock: str) -> dict[str, str]:
    """Read the versions of a file of pins, by normalized package name."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([\w.-]+)==([^ ;\\]+)", line) for line in lines)
    return {normalized(pin[1]): pin[2] for pin in found if pin}


def normalized(name: str) -> str:
    """Return the one spelling of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def license_of(package: str) -> str | None:
    """Return the licence that an installed package states, in SPDX's words where it uses them; None where absent."""
    try:
        stated = metadata(package)
    except PackageNotFoundError:
        return None
    return _READ_BY_HAND.get(package) or _stated(stated)


def _stated(package: PackageMetadata) -> str:
    fields = package.json
    if expression := fields.get("license_expression"):
        return str(expression)
    text = str(fields.get("license", ""))
    if text and "\n" not in text and len(text) < 60:
        return _SPDX.get(text, text)
    classifiers = [each.split(" :: ")[-1] for each in fields.get("classifier", []) if each.startswith("License ::")]
    return " AND ".join(_SPDX.get(each, each) for each in classifiers) or "not stated"


def rows() -> dict[str, tuple[str, str]]:
    """Read the table as it is written: licence and purpose by package."""
    _, _, page = (ROOT / PAGE).read_text(encoding="utf-8").partition(BEGIN.format(writer="licenses"))
    found = re.findall(r"^\| ([\w.-]+) \| (.+) \| (.+) \|$", page, flags=re.MULTILINE)
    return {name: (license, use) for name, license, use in found if name != "package"}


def table() -> str:
    """Build the table: every package of the lock files, with what is installed read anew."""
    before, lines = rows(), ["| package | licence | for |", "|---|---|---|"]
    for lock, use in LOCKS.items():
        for package in pins(lock):
            license = license_of(package) or before.get(package, ("not installed here",))[0]
            lines.append(f"| {package} | {license} | {use} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_tables({PAGE: table()}, "licenses")
