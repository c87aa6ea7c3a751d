"""The permissions of the admin pages; no table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LiveClaim",
            fields=[
                ("key", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("alias", models.CharField(max_length=255)),
                ("name", models.CharField(max_length=255)),
            ],
            options={
                "verbose_name": "live claim",
                "verbose_name_plural": "live claims",
                "permissions": [
                    ("view_claim", "Can view live claims and stop flags"),
                    ("stop_claim", "Can ask claims to stop, and keep them stopped"),
                    ("clear_stop_claim", "Can clear stop flags"),
                    ("force_release_claim", "Can force-release claims"),
                ],
                "managed": False,
                "default_permissions": (),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="StopRequestRow",
            fields=[
                ("key", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ],
            options={
                "verbose_name": "stop flag",
                "verbose_name_plural": "stop flags",
                "managed": False,
                "default_permissions": (),
                "base_manager_name": "objects",
            },
        ),
    ]
