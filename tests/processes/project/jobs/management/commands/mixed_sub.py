from jobs.management.commands import mixed


class Command(mixed.Command):
    claim_name = None
