"""manage.py of the test project; the environment may ask for a peculiar platform or project."""

import os
import signal
import sys

for name in filter(None, os.environ.get("JOBS_HIDE", "").split(",")):
    delattr(signal if name.startswith("SIG") else os, name)


def project_handler(number, frame):
    if os.environ["JOBS_HANDLER"] == "fails":
        raise ValueError("the project's own failure")
    os.write(1, f"project handler {number}\n".encode())  # print() may be what the signal interrupts


if "JOBS_HANDLER" in os.environ:
    signal.signal(signal.SIGTERM, project_handler)

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    if "JOBS_HANDLER" in os.environ:
        print(f"restored {signal.getsignal(signal.SIGTERM) is project_handler}", flush=True)
