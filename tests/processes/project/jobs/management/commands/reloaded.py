import os
import sys
import time

from django.core.management.base import BaseCommand
from django.utils import autoreload

from django_claims import single_instance
from jobs import bodies


@single_instance
class Command(BaseCommand):
    help = "Serves, and starts anew when the module `watched` changes, as runserver does."

    def add_arguments(self, parser):
        parser.add_argument("--noreload", action="store_false", dest="use_reloader")

    def handle(self, *args, **options):
        if options["use_reloader"]:
            autoreload.run_with_reloader(self.serve)
        else:
            self.serve()

    def serve(self):
        sys.path.insert(0, os.environ["JOBS_DIR"])
        __import__("watched")
        bodies.say(f"serving {os.getpid()}")
        time.sleep(bodies.FOR_EVER)
