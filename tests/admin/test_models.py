"""The models have no tables; what Django does to all models must leave the project unharmed."""

import io
import json

import pytest
from django.contrib.auth.models import Permission
from django.core import checks, serializers
from django.core.management import call_command
from django.db import connection

from django_claims.models import LiveClaim, StopRequestRow


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{}, {"use_base_manager": True}], ids=["plain", "all"])
def test_dumpdata_dumps_the_project(options):
    out = io.StringIO()

    call_command("dumpdata", stdout=out, **options)

    assert {row["model"] for row in json.loads(out.getvalue())} >= {"auth.permission"}
    assert "django_claims" not in {row["model"].split(".")[0] for row in json.loads(out.getvalue())}


@pytest.mark.django_db
def test_dumpdata_of_the_app_alone_is_empty():
    out = io.StringIO()

    call_command("dumpdata", "django_claims", stdout=out)

    assert json.loads(out.getvalue()) == []


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
def test_migrating_makes_the_permissions_and_no_table():
    assert {p.codename for p in Permission.objects.filter(content_type__app_label="django_claims")} == {
        "view_claim",
        "stop_claim",
        "clear_stop_claim",
        "force_release_claim",
    }
    assert not {LiveClaim._meta.db_table, StopRequestRow._meta.db_table} & set(connection.introspection.table_names())


@pytest.mark.django_db(transaction=True)
def test_the_migration_can_be_undone_and_done_again():
    call_command("migrate", "django_claims", "zero", verbosity=0)
    call_command("migrate", "django_claims", verbosity=0)


@pytest.mark.django_db
@pytest.mark.parametrize("model", [LiveClaim, StopRequestRow])
def test_the_models_have_no_rows_by_any_manager(model):
    assert list(model.objects.all()) == []
    assert model.objects.count() == 0
    assert list(model._default_manager.filter(pk="x")) == []
    assert list(model._base_manager.using("default").order_by("pk")) == []
    assert json.loads(serializers.serialize("json", model._base_manager.all())) == []


def test_the_checks_of_the_admin_are_content():
    assert checks.run_checks(tags=["admin", "models"]) == []
