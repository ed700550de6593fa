"""The generated half of the wire contract: src/pulse/v1, made from proto/ and committed."""

import tempfile
from pathlib import Path

from tools.environment import ROOT, Problem, call

STUBS = ROOT / "src" / "pulse" / "v1"
# The last class of the stubs has a static method for each RPC, 27 lines each. No code uses it.
_EXPERIMENTAL = b"\n\n # This class is part of an EXPERIMENTAL API.\n"


def generate(python: Path) -> dict[str, bytes]:
    """Generate the stubs with the tools installed beside the given Python. Returns them by file name."""
    with tempfile.TemporaryDirectory() as directory:
        outputs = [f"--{kind}_out={directory}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        plugins = [
            f"--plugin={name}={python.parent / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
        ]
        code, output = call(
            [python, "-m", "grpc_tools.protoc", "-Iproto", *plugins, *outputs, "pulse/v1/pulse.proto"]
        )
        if code:
            raise Problem(f"protoc could not generate the stubs:\n{output.rstrip()}")
        generated = Path(directory, "pulse", "v1").iterdir()
        return {path.name: path.read_bytes().partition(_EXPERIMENTAL)[0] for path in generated}


def stale_names(fresh: dict[str, bytes]) -> list[str]:
    """Return the names of the stubs that differ from the fresh ones, are missing, or should not be there."""
    committed = {path.name: path.read_bytes() for path in STUBS.glob("*_pb2*.py*")}
    return sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))


def write(fresh: dict[str, bytes]) -> None:
    """Make the committed stubs equal to the fresh ones."""
    for name in stale_names(fresh):
        if name in fresh:
            (STUBS / name).write_bytes(fresh[name])
        else:
            (STUBS / name).unlink()
