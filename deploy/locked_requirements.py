"""Print the entries of a lock, with their hashes, that a requirement needs. For deploy/Dockerfile.

python locked_requirements.py LOCK hatchling
python locked_requirements.py LOCK 'pulse_jobs-0.1.0-py3-none-any.whl[server,ui]'
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(?:.*\\\n)*.*\n", re.MULTILINE)


def entries(lock: str) -> dict[str, str]:
    """Each package of the lock with its whole entry."""
    return {_normal(found[1]): found[0] for found in _ENTRY.finditer(lock)}


def needed(requirement: str, locked: dict[str, str]) -> list[str]:
    """The names of what would be installed for the requirement. A wheel that was named is not among them."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("".join(entry.partition(" \\")[0] + "\n" for entry in locked.values()))
        constraints.flush()
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", "-", "--constraint", constraints.name, requirement]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    names = [_normal(item["metadata"]["name"]) for item in report["install"] if not item["is_direct"]]
    if missing := [name for name in names if name not in locked]:
        raise SystemExit(f"The lock lacks {', '.join(missing)}: run `python3 dev.py lock`.")
    return names


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    lock, requirement = sys.argv[1:]
    known = entries(Path(lock).read_text(encoding="utf-8"))
    print("".join(known[name] for name in needed(requirement, known)), end="")
