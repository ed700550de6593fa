"""Becomes initdb or postgres, under an identity that Postgres accepts, and bound to its parent's life.

Run as a script by processes.py: `python -I -S launch.py name=value... -- command...`, with the standard
library only, because every start pays for its imports. The arguments:

    parent=PID            the process whose death ends the command
    watch=signal          the kernel sends SIGINT when the parent dies (Linux), and this process becomes
                          the command; the signal follows the parent's *thread* that spawned it
    watch=pipe            this process stays as a guard, and interrupts the command once the lifeline closes
    lifeline=FD           a pipe from the parent
    identity=self         run as we are
    identity=namespace:UID:GID   in a user namespace in which we are UID:GID; outside nothing changes
    identity=account:UID:GID     as that account, given up for good
"""

import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

CANNOT_TAKE_IDENTITY = 97
PARENT_IS_GONE = 98
CANNOT_EXECUTE = 99

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def main(arguments: list[str]) -> NoReturn:
    """Take the identity, bind to the parent, run the command. Never returns."""
    split = arguments.index("--")
    options = dict(argument.split("=", 1) for argument in arguments[:split])
    command = arguments[split + 1 :]
    os.umask(0o077)
    try:
        _take_identity(options["identity"])
    except OSError as error:
        _fail(CANNOT_TAKE_IDENTITY, f"cannot run as {options['identity']}: {error}")
    _reset_signals()
    if options["watch"] == "pipe":
        _guard(int(options["lifeline"]), command)
    if "lifeline" in options:
        os.close(int(options["lifeline"]))
    _die_with(int(options["parent"]))
    _execute(command)


def _take_identity(identity: str) -> None:
    kind, *ids = identity.split(":")
    if kind == "namespace":
        _enter_user_namespace(int(ids[0]), int(ids[1]))
    elif kind == "account":
        os.setgroups([])
        os.setgid(int(ids[1]))
        os.setuid(int(ids[0]))


def _enter_user_namespace(uid: int, gid: int) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _call_libc("unshare", _CLONE_NEWUSER)
    # The kernel takes a gid_map from an unprivileged writer only once setgroups is denied.
    for file, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        try:
            os.write(descriptor, content.encode())
        finally:
            os.close(descriptor)


def _die_with(parent: int) -> None:
    # After the change of identity, which clears the setting; then look whether the parent died before.
    _call_libc("prctl", _PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        _fail(PARENT_IS_GONE, "the parent process is gone")


def _guard(descriptor: int, command: list[str]) -> NoReturn:
    """Run the command as a child, and interrupt it when the parent's end of the pipe closes."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        os.close(descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _execute(command)
    # Signals are sent to the whole process group: they are meant for the command, not for the guard.
    # Only after the fork, or the child would ignore an early one.
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    interrupted = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        watched = [wake_read] if interrupted else [wake_read, descriptor]
        readable, _, _ = select.select(watched, [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
        if descriptor in readable and not os.read(descriptor, 4096):
            interrupted = True
            os.kill(child, signal.SIGINT)


def _reset_signals() -> None:
    # A background parent ignores SIGINT, and ignored signals stay ignored across exec. The command
    # would then outlive a parent that dies before the command installs its own handlers.
    for number in (*_STOP_SIGNALS, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(command: list[str]) -> NoReturn:
    try:
        os.execv(command[0], command)
    except OSError as error:
        _fail(CANNOT_EXECUTE, f"cannot execute {command[0]}: {error}")


def _call_libc(function: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*map(ctypes.c_ulong, arguments)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")


def _fail(code: int, sentence: str) -> NoReturn:
    os.write(2, f"pulse: {sentence}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
