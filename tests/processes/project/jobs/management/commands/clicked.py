import djclick as click

from django_claims import current_hold, single_instance
from jobs import bodies


@single_instance(key="region")
@click.command()
@click.argument("region")
def command(region):
    """Of django-click."""
    bodies.region(current_hold(), region)
