from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LeaseRow",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("format", models.SmallIntegerField()),
                ("name", models.CharField(max_length=500)),
                ("token", models.CharField(max_length=64)),
                ("fence", models.BigIntegerField()),
                ("kind", models.CharField(max_length=1)),
                ("holder", models.TextField()),
                ("progress", models.TextField()),
                ("ttl_ms", models.BigIntegerField()),
                ("heartbeat_ms", models.BigIntegerField()),
                ("acquired_us", models.BigIntegerField()),
                ("renewed_us", models.BigIntegerField()),
                ("expires_us", models.BigIntegerField()),
                ("flag_kind", models.CharField(max_length=1)),
                ("flag_ends_us", models.BigIntegerField()),
                ("flag_asked_us", models.BigIntegerField()),
                ("flag_seen_us", models.BigIntegerField()),
                ("flag_words", models.TextField()),
                ("forced_fence", models.BigIntegerField()),
                ("forced_until_us", models.BigIntegerField()),
                ("news_until_us", models.BigIntegerField(db_index=True)),
            ],
            options={
                "verbose_name": "lease",
                "verbose_name_plural": "leases",
                "db_table": "django_claims_lease",
            },
        ),
    ]
