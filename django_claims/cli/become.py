"""
Becomes another program when it is told to. A process of its own, started by path; imports nothing of ours.

    become.py FD PARENT PROGRAM [ARGUMENT …]

Waits for a line on the file descriptor: the fence of the claim under which the program runs.
End of file means that there is none, and so no program. Between fork and exec it asks the
kernel to be killed when its parent dies, where the kernel does such a thing (Linux).
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NO_SUCH_PROGRAM, CANNOT_START = 127, 126  # what shells exit with


def die_with(parent: int) -> None:
    """Be killed by the kernel when the parent dies. A program that changes its user loses this again."""
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            pass
    if os.getppid() != parent:
        os._exit(1)  # it died before it could be asked for


def wait_for_fence(fd: int) -> str:
    """Return the fence, or '' if there will be none."""
    said = b""
    while not said.endswith(b"\n"):
        piece = os.read(fd, 100)
        if not piece:
            return ""
        said += piece
    return said.decode().strip()


def main(fd: int, parent: int, program: list[str]) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it waits is no traceback
    die_with(parent)
    fence = wait_for_fence(fd)
    if not fence:
        os._exit(1)
    os.close(fd)
    os.environ["CLAIM_FENCE"] = fence
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(program[0], program)
    except (OSError, ValueError) as error:
        print(f"claims run: cannot start {program[0]!r}: {error}", file=sys.stderr, flush=True)
        os._exit(NO_SUCH_PROGRAM if isinstance(error, FileNotFoundError) else CANNOT_START)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
