"""A program that tells what signals it gets: `counts.py SECONDS CODE`; exits so long after the first."""

import os
import signal
import sys
import time

seconds, code = float(sys.argv[1]), int(sys.argv[2])
ends = time.monotonic() + 60


def handle(number, frame):
    global ends
    os.write(1, f"got {signal.Signals(number).name}\n".encode())
    ends = min(ends, time.monotonic() + seconds)


for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), handle)
os.write(1, b"ready\n")
while time.monotonic() < ends:
    time.sleep(0.02)
sys.exit(code)
