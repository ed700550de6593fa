#!/usr/bin/env python3
"""Set up, try, test and measure pulse with nothing but Python 3.11 and pip.

usage: python3 dev.py COMMAND

  demo [--seconds N]    watch jobs run, fail, retry and survive a killed worker; with a dashboard
  test                  run what a change has to pass: ruff, mypy, import-linter, the stubs, pytest; 5 minutes
  test --all            run the long tier as well: faults, processes that misbehave, browsers; 12 minutes more
  test --quick [ARGS]   run pytest for the pure suites: no database, RPCs, processes or pages; half a minute
  test ARGUMENTS        run only pytest, e.g.  python3 dev.py test tests/sdk -k retry
  test --oldest [ARGS]  run pytest with the oldest versions that pyproject.toml allows, in .venv/oldest
  lint [--fix]          run every check but pytest; --fix first repairs what ruff can
  bench [ARGUMENTS]     run the benchmarks; bench --help names the scenarios and options
  chaos [ARGUMENTS]     kill, freeze and cut off everything that runs, and look for a lost job; chaos --help
  proto [--check]       regenerate src/pulse/v1 from proto/; --check only compares
  docs [--check]        build the site in build/: docs/ and the references, which are made from the code;
                        write the table of roles into its page; --check compares it, and makes the references
  screenshots           take the pictures of docs/images from the demo; needs Chromium
  build [--release TAG] make the sdist and the wheel in dist/, check them, install each extra; five minutes
  version NUMBER        declare another version, in pyproject.toml and wherever it is repeated
  lock [--upgrade]      bring requirements/ in step with pyproject.toml; --upgrade takes the newest versions
  setup                 make .venv, with everything that the commands above need

Every command sets up what it needs in .venv, once. No Postgres, uv or make has to be there.
"""

# This file must parse on Python 3.6 already, so that an old Python ends in a sentence and not in a
# SyntaxError. What needs a newer one is in tools/, imported after the check.
import os
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - the sentence is for exactly those Pythons
    sys.exit(
        "dev.py: pulse needs Python 3.11 or newer, and {} is {}.{}. Run it with a newer one, for example:\n"
        "  python3.13 dev.py demo".format(sys.executable, *sys.version_info[:2])
    )
if os.name != "posix":
    sys.exit("dev.py: pulse's tooling runs on Linux and macOS. On Windows, use it inside WSL.")

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools import building, checks, locking, stubs, tiers, versions
from tools.declared import Profile
from tools.environment import OLDEST_PYTHON, PYTHON, Problem, become, call, say
from tools.setup import ensure_setup


def main() -> int:
    """Run the command that was named. Returns the exit code."""
    command, *arguments = sys.argv[1:] or ["help"]
    if command in ("help", "-h", "--help"):
        print((__doc__ or "").strip())
        return 0
    commands = {
        "setup": setup,
        "demo": demo,
        "test": test,
        "lint": lint,
        "bench": bench,
        "chaos": chaos,
        "proto": proto,
        "docs": docs,
        "screenshots": screenshots,
        "build": build,
        "version": version,
        "lock": lock,
    }
    try:
        if command not in commands:
            raise Problem(f"there is no command {command!r}. Known are: {', '.join(commands)}.")
        return commands[command](arguments)
    except Problem as problem:
        print(f"dev.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndev.py: interrupted. The next run repeats what was left unfinished.", file=sys.stderr)
        return 130


def setup(arguments: list[str]) -> int:
    """Make .venv ready for every command."""
    only_flag("setup", None, arguments)
    if not ensure_setup(Profile.DEVELOP):
        say(".venv is ready already")
    return 0


def demo(arguments: list[str]) -> int:
    """Run the demo. Does not return: the demo takes this process over, and with it every signal."""
    ensure_setup(Profile.RUN)
    become("-m", "examples.demo", *arguments)


def bench(arguments: list[str]) -> int:
    """Run the benchmarks. Does not return, like the demo."""
    ensure_setup(Profile.DEVELOP)
    become("-m", "benchmarks", *arguments)


def chaos(arguments: list[str]) -> int:
    """Run the fault suite at the length that was asked for. Does not return, like the demo."""
    ensure_setup(Profile.DEVELOP)
    become("-m", "faults", *arguments)


def test(arguments: list[str]) -> int:
    """Run the checks of a tier; with other arguments only pytest, which takes this process over."""
    if arguments[:1] == ["--oldest"]:
        ensure_setup(Profile.OLDEST)
        become("-m", "pytest", *(arguments[1:] or tiers.EVERY_TIER), python=OLDEST_PYTHON)
    ensure_setup(Profile.DEVELOP)
    if arguments[:1] == ["--quick"]:
        become("-m", "pytest", *tiers.QUICK_TIER, *arguments[1:])
    if arguments not in ([], ["--all"]):
        become("-m", "pytest", *arguments)
    outcomes = [*checks.run_static_checks(), checks.run_pytest("first tier", tiers.FIRST_TIER)]
    if arguments:
        outcomes.append(checks.run_pytest("long tier", tiers.LONG_TIER))
    return checks.verdict(outcomes)


def lint(arguments: list[str]) -> int:
    """Run the static checks, with --fix after the repairs that ruff can make."""
    fix = only_flag("lint", "--fix", arguments)
    ensure_setup(Profile.DEVELOP)
    if fix:
        checks.repair()
    return checks.verdict(checks.run_static_checks())


def proto(arguments: list[str]) -> int:
    """Regenerate the stubs, or with --check fail when the committed ones differ."""
    check = only_flag("proto", "--check", arguments)
    ensure_setup(Profile.DEVELOP)
    fresh = stubs.generate(PYTHON)
    stale = stubs.stale_names(fresh)
    if check and stale:
        raise Problem(f"{', '.join(stale)} in src/pulse/v1 differ from proto/. Run: python3 dev.py proto")
    stubs.write(fresh)
    say(f"regenerated {', '.join(stale)}" if stale else "src/pulse/v1 matches proto/")
    return 0


def docs(arguments: list[str]) -> int:
    """Build the site, with the references made from code. With --check only see that they can be made."""
    check = only_flag("docs", "--check", arguments)
    ensure_setup(Profile.DEVELOP)
    if check:
        become("-m", "tools.generated_pages", "--check")
    code, output = call([PYTHON, "-m", "tools.generated_pages"])
    if code:
        raise Problem(output.rstrip())
    say(output.rstrip())
    become("-m", "tools.site")


def screenshots(arguments: list[str]) -> int:
    """Take the pictures of the dashboard. Does not return."""
    ensure_setup(Profile.DEVELOP)
    become("-m", "tools.screenshots", *arguments)


def build(arguments: list[str]) -> int:
    """Build and check the files of a release. With --release TAG the changelog must have its date."""
    if arguments and (arguments[0] != "--release" or len(arguments) != 2):
        raise Problem(f"build does not know {' '.join(arguments)!r}. See: python3 dev.py help")
    ensure_setup(Profile.DEVELOP)
    building.build(tag=arguments[1] if arguments else None)
    return 0


def version(arguments: list[str]) -> int:
    """Declare another version."""
    if len(arguments) != 1:
        raise Problem(f"the version is {versions.declared()}. Another one: python3 dev.py version 1.2.3")
    changed = versions.change(arguments[0])
    say("\n  ".join(["changed:", *changed]) if changed else f"the version is {arguments[0]} everywhere")
    return 0


def lock(arguments: list[str]) -> int:
    """Regenerate the locks of requirements/, then update .venv."""
    upgrade = only_flag("lock", "--upgrade", arguments)
    if not PYTHON.exists():  # however old its packages are, it has pip
        ensure_setup(Profile.RUN)
    changed = locking.make_locks(upgrade=upgrade)
    say("\n  ".join(["newly locked:", *changed]) if changed else "every locked version stays")
    ensure_setup(Profile.DEVELOP)
    return 0


def only_flag(command: str, flag: str | None, arguments: list[str]) -> bool:
    """Return whether the command's one flag was given. Anything else is a Problem."""
    unknown = [argument for argument in arguments if argument != flag]
    if unknown:
        raise Problem(f"{command} does not know {' '.join(unknown)!r}. See: python3 dev.py help")
    return bool(arguments)


if __name__ == "__main__":
    sys.exit(main())
