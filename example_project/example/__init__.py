from importlib.util import find_spec

if find_spec("celery"):  # the rest of the example runs without
    from example.celery import app as celery_app

    __all__ = ["celery_app"]
