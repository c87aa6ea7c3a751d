"""The example in another skin of the admin: the one that CLAIMS_SKIN names."""

import os

from example.settings import *  # noqa: F403
from example.settings import INSTALLED_APPS, TEMPLATES

INSTALLED_APPS = [os.environ["CLAIMS_SKIN"], *INSTALLED_APPS]
TEMPLATES[0]["OPTIONS"]["context_processors"].append("django.template.context_processors.i18n")
