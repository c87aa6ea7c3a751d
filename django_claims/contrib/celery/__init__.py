"""Celery: tasks and beat that run once at a time, stop when asked, and lose no work."""

# Tasks.

# Beat.
