"""Writes and reads that turn away an older holder."""

import asyncio
import copy
import os
import random
import signal
import subprocess
import sys
import threading

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.db import DatabaseError, IntegrityError, connections, models, transaction
from django.db.migrations.writer import MigrationWriter
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_claims import (
    ClaimLost,
    InvalidClaim,
    LossReason,
    StaleFence,
    UnsupportedFeature,
    claim,
    force_release,
    hold,
    list_claims,
)
from django_claims.fencing import (
    FenceField,
    afenced_get,
    afenced_read,
    afenced_save,
    afenced_update,
    fenced_get,
    fenced_read,
    fenced_save,
    fenced_update,
    fences,
)
from django_claims.holds import Hold
from tests.fencing_app.models import MODELS, Bottle, Parcel, Place, ProxyStock, Stock, Supplier, Tank
from tests.helpers import MEMORY, run_in_thread, shift_holds, tidy

TEA = 1001  # a primary key that is not the first
_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture
def shop_entry(tmp_path):
    """What DATABASES has for the alias 'shop'."""
    options = {"timeout": 30, "init_command": "PRAGMA synchronous=OFF"}
    return {"NAME": str(tmp_path / "shop.sqlite3"), "OPTIONS": options}


@pytest.fixture(autouse=True)
def shop(settings, shop_entry, django_db_blocker):
    """The alias 'shop' with its tables, and claims in memory."""
    settings.CLAIMS = {"default": {"BACKEND": MEMORY, "TTL": 60}}
    settings.DATABASE_ROUTERS = ["tests.fencing_app.models.Router"]
    connections.settings["shop"] = {**copy.deepcopy(connections.settings["default"]), **shop_entry}
    with django_db_blocker.unblock():
        if Stock._meta.db_table not in connections["shop"].introspection.table_names():
            with connections["shop"].schema_editor() as editor:
                for model in MODELS:
                    editor.create_model(model)
        yield connections["shop"]
        for model in reversed(MODELS):
            model._base_manager.all()._raw_delete("shop")
        connections["shop"].close()
    del connections["shop"]
    del connections.settings["shop"]


@pytest.fixture
def tea():
    return Stock.objects.create(pk=TEA, code="tea", shelf="a", count=5)


def row(**which):
    found = Stock.objects.get(**which or {"code": "tea"})
    return found.count, found.fence


def take(name="stock"):
    """Take the claim, from whoever has it, for a thread of its own."""
    recipe = claim(name, ttl=60)
    lease = recipe.lease()
    if lease is not None:
        assert force_release(name, fence=lease.fence)
    taken = run_in_thread(recipe.acquire)
    assert taken is not None
    return taken


@pytest.fixture
def unaware(monkeypatch):
    """Holders that were paused after their last look, and so do not know what happened since."""
    monkeypatch.setattr(Hold, "held", property(lambda self: True))


@pytest.fixture
def old(unaware):
    """The holder that is paused."""
    return take()


@pytest.fixture
def new(old):
    """The one that came after."""
    return take()


def statements(shop):
    return CaptureQueriesContext(shop)


# The stale holder, from end to end.


def test_a_holder_paused_beyond_its_ttl_is_turned_away_by_the_row(tea, old):
    count = fenced_get(Stock.objects.filter(pk=tea.pk), old).count

    # Here it is paused; its lease ends, and the next one takes over and writes.
    with take() as new:
        assert fenced_update(Stock.objects.filter(pk=tea.pk), new, count=100) == 1

    with pytest.raises(StaleFence) as caught:
        fenced_update(Stock.objects.filter(pk=tea.pk), old, count=count + 1)

    assert (caught.value.name, caught.value.fence) == ("stock", old.fence)
    assert row() == (100, new.fence)
    assert new.fence > old.fence


def test_one_that_has_had_time_to_look_is_told_so_before_it_writes(tea, monkeypatch, shop):
    moved = shift_holds(monkeypatch)
    with claim("stock", ttl=60) as late:
        moved.by = 61

        with statements(shop) as asked, pytest.raises(ClaimLost) as caught:
            fenced_update(Stock.objects.filter(pk=tea.pk), late, count=1)

    assert caught.value.reason is LossReason.EXPIRED
    assert len(asked) == 0
    assert row() == (5, 0)


def test_a_released_hold_writes_nothing(tea):
    with claim("stock") as over:
        pass

    for attempt in (
        lambda: fenced_update(Stock.objects.filter(pk=tea.pk), over, count=1),
        lambda: fenced_save(tea, over),
        lambda: fenced_read(Stock.objects.all(), over),
        lambda: fenced_get(Stock.objects.all(), over),
    ):
        with pytest.raises(ClaimLost):
            attempt()
    assert row() == (5, 0)


# fenced_update().


def test_the_holder_may_write_as_often_as_it_likes(tea):
    with claim("stock") as held:
        for _ in range(3):
            assert fenced_update(Stock.objects.filter(pk=tea.pk), held, count=models.F("count") + 1) == 1

    assert row() == (8, held.fence)


@pytest.mark.parametrize("which", [{"pk": TEA}, {"code": "tea"}, {"pk": TEA, "shelf": "a"}], ids=str)
def test_a_row_named_by_a_unique_value_is_written_in_one_statement(shop, tea, which):
    with claim("stock") as held, statements(shop) as asked:
        changed = fenced_update(Stock.objects.filter(**which), held, count=6)

    assert changed == 1
    assert [query["sql"].split()[0] for query in asked] == ["UPDATE"]
    assert row() == (6, held.fence)


def test_a_queryset_that_matches_nothing_gives_zero_after_one_more_look(shop, tea):
    with claim("stock") as held, statements(shop) as asked:
        changed = fenced_update(Stock.objects.filter(pk=404), held, count=6)

    assert changed == 0
    assert [query["sql"].split()[0] for query in asked] == ["UPDATE", "SELECT"]
    assert row() == (5, 0)


def test_an_empty_queryset_gives_zero(tea):
    with claim("stock") as held:
        assert fenced_update(Stock.objects.none(), held, count=6) == 0
        assert fenced_update(Stock.objects.filter(shelf="z"), held, count=6) == 0
        assert fenced_read(Stock.objects.none(), held) == []


def test_of_several_rows_all_are_written_or_none(tea, old, new):
    Stock.objects.create(code="mate", shelf="a", count=5)
    fenced_update(Stock.objects.filter(code="mate"), new, count=7)

    with pytest.raises(StaleFence):
        fenced_update(Stock.objects.filter(shelf="a"), old, count=1)

    assert row(code="tea") == (5, 0)
    assert row(code="mate") == (7, new.fence)
    assert fenced_update(Stock.objects.filter(shelf="a"), new, count=2) == 2
    assert row(code="tea") == row(code="mate") == (2, new.fence)


def test_an_outer_transaction_goes_on_after_a_stale_write(tea, old, new):
    Stock.objects.create(code="mate", shelf="a", count=5)
    fenced_update(Stock.objects.filter(code="mate"), new, count=7)

    with transaction.atomic(using="shop"):
        Stock.objects.filter(code="tea").update(shelf="b")
        Stock.objects.filter(code="tea").update(shelf="a")
        with pytest.raises(StaleFence):
            fenced_update(Stock.objects.filter(shelf="a"), old, count=1)
        with pytest.raises(StaleFence):
            fenced_update(Stock.objects.filter(code="mate"), old, count=1)
        Stock.objects.filter(code="tea").update(count=6)

    assert row(code="tea") == (6, 0)
    assert row(code="mate") == (7, new.fence)


def test_a_rolled_back_write_takes_its_fence_with_it(tea, old, new):
    with pytest.raises(ZeroDivisionError), transaction.atomic(using="shop"):
        fenced_update(Stock.objects.filter(pk=tea.pk), new, count=9)
        raise ZeroDivisionError

    assert row() == (5, 0)
    assert fenced_update(Stock.objects.filter(pk=tea.pk), old, count=6) == 1


def test_a_filter_over_a_relation_works(tea, old, new):
    supplier = Supplier.objects.create(name="Leaf")
    Stock.objects.filter(pk=tea.pk).update(supplier=supplier)
    leafy = Stock.objects.filter(supplier__name="Leaf")

    assert fenced_update(leafy, new, count=6) == 1
    with pytest.raises(StaleFence):
        fenced_update(leafy, old, count=1)

    assert row() == (6, new.fence)
    assert fenced_update(Stock.objects.filter(supplier__name="Root"), new, count=1) == 0


def test_what_is_filtered_by_may_be_what_is_written(tea):
    Stock.objects.create(code="mate", shelf="a")

    with claim("stock") as held:
        assert fenced_update(Stock.objects.filter(shelf="a"), held, shelf="b") == 2
        assert fenced_update(Stock.objects.filter(code="tea", shelf="b"), held, shelf="c") == 1
        assert fenced_update(Stock.objects.filter(shelf="a"), held, shelf="b") == 0


@pytest.mark.parametrize(
    "rows",
    [
        Stock.objects.exclude(code="mate"),
        Stock.objects.filter(models.Q(pk=TEA) | models.Q(shelf="b")),
        Stock.objects.filter(models.Exists(Stock.objects.filter(pk=models.OuterRef("pk"), count=5))),
        Stock.objects.annotate(twice=models.F("count") * 2).filter(twice=10),
        Stock.objects.order_by("-code"),
        Stock.objects.distinct(),
        Stock.objects.select_related("supplier"),
        Stock.objects.only("code"),
        Stock.objects.filter(pk__in=Stock.objects.filter(count=5)),
        Stock.objects.filter(pk=models.F("pk")),
        Stock.objects,
        ProxyStock.objects.filter(pk=TEA),
        ProxyStock.objects.all(),
    ],
    ids=range(13),
)
def test_querysets_of_every_kind_are_fenced(tea, old, new, rows):
    assert fenced_update(rows, old, shelf="b") == 1
    assert fenced_update(rows, new, count=models.F("count")) == 1
    with pytest.raises(StaleFence):
        fenced_update(rows, old, count=1)

    assert row() == (5, new.fence)


def test_a_fence_in_the_parents_table_is_compared_there(old, new):
    bottle = Bottle.objects.create(code="oil", litres=3)
    for rows in (Bottle.objects.filter(pk=bottle.pk), Bottle.objects.filter(litres=3)):
        assert fenced_update(rows, new, litres=3, count=2) == 1
        with pytest.raises(StaleFence):
            fenced_update(rows, old, litres=4)
        with pytest.raises(StaleFence):
            fenced_update(rows, old, count=4)

    bottle.refresh_from_db()
    assert (bottle.litres, bottle.count, bottle.fence) == (3, 2, new.fence)
    with pytest.raises(StaleFence):
        fenced_update(Stock.objects.filter(code="oil"), old, count=1)


def test_values_in_the_parents_table_are_guarded_by_a_fence_in_the_childs(old, new):
    tank = Tank.objects.create(name="north")

    assert fenced_update(Tank.objects.filter(pk=tank.pk), new, name="south", level=3) == 1
    with pytest.raises(StaleFence):
        fenced_update(Tank.objects.filter(pk=tank.pk), old, name="east")

    tank.refresh_from_db()
    assert (tank.name, tank.level, tank.fence) == ("south", 3, new.fence)


@pytest.mark.parametrize("which", [{"supplier__name": "Leaf"}, {"litres": 1}], ids=str)
def test_a_database_that_cannot_read_the_table_it_writes_is_asked_before(old, new, which, shop, monkeypatch):
    monkeypatch.setattr(shop.features, "update_can_self_select", False)  # MySQL
    Bottle.objects.create(code="tea", supplier=Supplier.objects.create(name="Leaf"))
    rows = Bottle.objects.filter(**which)

    assert fenced_update(rows, new, count=2) == 1
    with pytest.raises(StaleFence):
        fenced_update(rows, old, count=1)

    assert row() == (2, new.fence)


def test_composite_primary_keys_are_fenced(old, new):
    place = Place.objects.create(row=1, bay=2)

    assert fenced_update(Place.objects.filter(pk=(1, 2)), new, count=3) == 1
    with pytest.raises(StaleFence):
        fenced_update(Place.objects.filter(pk=(1, 2)), old, count=4)
    with pytest.raises(StaleFence):
        fenced_save(place, old)
    fenced_save(place, new)
    fenced_save(Place(row=1, bay=3), new)

    assert list(Place.objects.order_by("pk").values_list("bay", "count", "fence")) == [
        (2, 0, new.fence),
        (3, 0, new.fence),
    ]


def test_without_values_the_fence_alone_is_written(tea, old, new):
    assert fenced_update(Stock.objects.filter(pk=tea.pk), old) == 1
    assert fenced_update(Stock.objects.all(), new) == 1

    assert row() == (5, new.fence)


def test_a_relation_may_be_written_by_either_name(tea):
    supplier = Supplier.objects.create(name="Leaf")

    with claim("stock") as held:
        assert fenced_update(Stock.objects.filter(pk=tea.pk), held, supplier=supplier) == 1
        assert fenced_update(Stock.objects.filter(pk=tea.pk), held, supplier_id=None) == 1


def test_reads_that_decide_go_to_the_database_that_is_written(tea, old, new, tmp_path):
    entry = copy.deepcopy(connections.settings["shop"])
    connections.settings["replica"] = {**entry, "NAME": str(tmp_path / "empty.sqlite3")}
    try:
        fenced_update(Stock.objects.filter(pk=tea.pk), new, count=6)
        with pytest.raises(StaleFence):
            fenced_update(Stock.objects.filter(pk=tea.pk), old, count=1)
        assert fenced_get(Stock.objects.filter(code="tea"), new).count == 6
        assert [stock.count for stock in fenced_read(Stock.objects.all(), new)] == [6]
    finally:
        del connections.settings["replica"]


# What is wrong is said.


def test_a_slice_is_refused(tea):
    with claim("stock") as held, pytest.raises(InvalidClaim, match="slice"):
        fenced_update(Stock.objects.all()[:1], held, count=1)


def test_a_model_without_a_fence_is_told_what_to_add():
    with claim("stock") as held, pytest.raises(InvalidClaim, match=r"fence = FenceField\(\)"):
        fenced_update(Supplier.objects.all(), held, name="x")


@pytest.mark.parametrize(
    "rows", [Stock.objects.filter(fence=0), Stock.objects.exclude(pk=TEA, fence__lte=5)], ids=[1, 2]
)
def test_a_filter_by_the_fence_itself_is_refused(tea, rows):
    with claim("stock") as held:
        for read_or_write in (fenced_update, fenced_read, fenced_get):
            with pytest.raises(InvalidClaim, match="filters by 'fence'"):
                read_or_write(rows, held)


def test_the_fence_is_no_value_to_pass(tea):
    with claim("stock") as held, pytest.raises(InvalidClaim, match="leave it out"):
        fenced_update(Stock.objects.all(), held, fence=3)


def test_a_field_that_is_not_there_is_djangos_error(tea):
    with claim("stock") as held, pytest.raises(FieldDoesNotExist, match="colour"):
        fenced_update(Stock.objects.all(), held, colour="red")

    assert row() == (5, 0)


def test_a_recipe_is_no_hold(tea):
    with pytest.raises(InvalidClaim, match="not a Claim"):
        fenced_update(Stock.objects.all(), claim("stock"), count=1)


def test_a_backend_without_fences_is_refused(tea):
    with claim("stock") as held:
        held.fence = 0
        with pytest.raises(UnsupportedFeature, match="fences"):
            fenced_update(Stock.objects.all(), held, count=1)

    assert row() == (5, 0)


def test_without_a_hold_it_is_the_innermost_of_this_thread(tea):
    with claim("outer"), claim("stock") as held:
        fenced_update(Stock.objects.filter(pk=tea.pk), count=6)
        assert row() == (6, held.fence)

        with pytest.raises(InvalidClaim, match="has none"):
            run_in_thread(lambda: fenced_update(Stock.objects.filter(pk=tea.pk), None, count=7))

    with pytest.raises(InvalidClaim, match="Pass what acquire"):
        fenced_update(Stock.objects.filter(pk=tea.pk), hold=None, count=7)
    assert row() == (6, held.fence)


# fenced_save().


def test_a_new_instance_is_inserted_with_the_fence():
    with claim("stock") as held:
        made = Stock(code="tea", count=3)
        fenced_save(made, held)
        parcel = Parcel(weight=2)
        fenced_save(parcel, held)
        bottle = Bottle(code="oil")
        fenced_save(bottle)

    assert row() == (3, held.fence)
    assert made.pk and made.fence == held.fence
    assert Parcel.objects.get().fence == held.fence
    assert Bottle.objects.get().fence == held.fence


def test_a_saved_instance_is_written_whole(tea, old, new):
    before = tea.changed
    tea.count = 6
    fenced_save(tea, new)

    assert row() == (6, new.fence)
    assert tea.fence == new.fence
    assert tea.changed > before


def test_a_stale_save_changes_neither_the_row_nor_the_instance(tea, old, new):
    mine = Stock.objects.get(pk=tea.pk)
    fenced_save(tea, new)
    mine.count = 1

    with pytest.raises(StaleFence):
        fenced_save(mine, old)
    with pytest.raises(StaleFence):
        fenced_save(mine, old, update_fields=["count"])

    assert mine.fence == 0
    assert row() == (5, new.fence)


def test_update_fields_are_all_that_is_written(tea):
    tea.count, tea.shelf = 6, "z"

    with claim("stock") as held:
        fenced_save(tea, held, update_fields=["count"])

    assert row() == (6, held.fence)
    assert Stock.objects.get().shelf == "a"


def test_a_row_that_has_gone_is_inserted_again_as_save_does(tea):
    Stock.objects.all().delete()
    tea.pk = TEA

    with claim("stock") as held:
        fenced_save(tea, held)
        assert row() == (5, held.fence)
        Stock.objects.all().delete()
        tea.pk = TEA
        with pytest.raises(DatabaseError):
            fenced_save(tea, held, update_fields=["count"])

    assert not Stock.objects.exists()


def test_an_instance_made_by_hand_for_a_row_that_is_there_is_fenced_too(tea, old, new):
    fenced_update(Stock.objects.filter(pk=tea.pk), new, count=6)

    with pytest.raises(StaleFence):
        fenced_save(Stock(pk=tea.pk, code="tea"), old)
    fenced_save(Stock(pk=tea.pk, code="tea", count=9), new)

    assert row() == (9, new.fence)


def test_a_child_added_to_a_parent_that_is_there_is_fenced_by_the_parents_row(tea, old, new):
    fenced_update(Stock.objects.filter(pk=TEA), new, count=6)

    for child in (Bottle(stock_ptr=tea, code="oil"), Bottle(stock_ptr_id=TEA, code="oil"), Bottle(pk=TEA, code="oil")):
        with pytest.raises(StaleFence):
            fenced_save(child, old)
    assert row() == (6, new.fence)
    assert not Bottle.objects.exists()

    fenced_save(Bottle(stock_ptr_id=TEA, code="tea", count=7, litres=2), new)
    assert row() == (7, new.fence)
    assert Bottle.objects.get().litres == 2


def test_a_childs_save_writes_both_tables(new):
    bottle = Bottle.objects.create(code="tea", count=1, litres=1)
    bottle.count = bottle.litres = 3

    fenced_save(bottle, new)

    assert row() == (3, new.fence)
    assert Bottle.objects.get().litres == 3


@pytest.mark.parametrize("update_fields", [None, ["count"]])
def test_a_row_inserted_by_a_later_holder_at_the_same_moment_is_not_written_over(old, new, monkeypatch, update_fields):
    write = fences.Fence.write

    def write_then_pause(self, rows):
        found = write(self, rows)
        monkeypatch.undo()
        Stock.objects.bulk_create([Stock(pk=7, code="tea", count=8, fence=new.fence)])
        return found

    monkeypatch.setattr(fences.Fence, "write", write_then_pause)
    monkeypatch.setattr(Hold, "held", property(lambda self: True))
    mine = Stock(pk=7, code="tea", count=1)
    # SQLite has one writer: the other one's row is in this very transaction, and goes with it.
    with pytest.raises((IntegrityError, StaleFence)):
        fenced_save(mine, old, update_fields)

    assert mine.fence == 0
    assert not Stock.objects.filter(count=1).exists()


def test_a_save_that_fails_otherwise_leaves_the_fences_alone(tea):
    Stock.objects.create(code="mate")
    tea.code = "mate"

    with claim("stock") as held, pytest.raises(IntegrityError):
        fenced_save(tea, held)

    assert tea.fence == 0
    assert row() == (5, 0)


def test_a_deferred_fence_is_no_matter(tea, old, new):
    partial = Stock.objects.only("count").get()
    partial.count = 6
    fenced_save(partial, new)
    assert row() == (6, new.fence)

    stale = Stock.objects.only("count").get()
    with pytest.raises(StaleFence):
        fenced_save(stale, old)
    assert stale.fence == new.fence


def test_a_plain_save_leaves_the_stored_fence_as_it_is(tea, old, new):
    mine = Stock.objects.get(pk=tea.pk)
    fenced_update(Stock.objects.filter(pk=tea.pk), new, count=6)

    mine.shelf = "b"
    mine.save()

    assert Stock.objects.get().fence == new.fence
    mine.refresh_from_db()
    assert (mine.shelf, mine.fence) == ("b", new.fence)
    with pytest.raises(StaleFence):
        fenced_save(mine, old)


# Reads.


def test_a_read_bars_an_older_holder_though_nothing_was_written_yet(tea, old, new):
    assert fenced_get(Stock.objects.filter(code="tea"), old) == tea

    seen = fenced_get(Stock.objects.filter(code="tea"), new)

    assert (seen.count, seen.fence) == (5, new.fence)
    with pytest.raises(StaleFence):
        fenced_update(Stock.objects.filter(code="tea"), old, count=1)
    with pytest.raises(StaleFence):
        fenced_get(Stock.objects.filter(code="tea"), old)
    with pytest.raises(StaleFence):
        fenced_read(Stock.objects.all(), old)


def test_a_read_of_many_rows_gives_them_in_order_and_fences_each(tea, new):
    Stock.objects.create(code="mate", shelf="b")

    found = fenced_read(Stock.objects.order_by("code"), new)

    assert [stock.code for stock in found] == ["mate", "tea"]
    assert {stock.fence for stock in Stock.objects.all()} == {new.fence}


def test_get_raises_as_get_does_and_then_writes_no_fence(tea):
    Stock.objects.create(code="mate")

    with claim("stock") as held:
        with pytest.raises(Stock.DoesNotExist):
            fenced_get(Stock.objects.filter(code="none"), held)
        with pytest.raises(Stock.MultipleObjectsReturned):
            fenced_get(Stock.objects.all(), held)

    assert row() == (5, 0)


# Claims are off.


def test_when_claims_are_off_all_of_it_goes_on_unfenced(tea, settings):
    settings.CLAIMS = None
    Stock.objects.update(fence=9)

    with claim("stock") as held:
        for given in (held, None):
            assert fenced_update(Stock.objects.filter(pk=tea.pk), given, count=6) == 1
            assert fenced_read(Stock.objects.all(), given) == [tea]
            assert fenced_get(Stock.objects.all(), given) == tea
            fenced_save(tea, given)
    assert fenced_update(Stock.objects.filter(pk=tea.pk), hold("stock"), count=7) == 1

    assert row() == (7, 9)


# The twins.


def test_the_twins_do_the_same(settings, tmp_path):
    async def main():
        async with claim("stock") as held:
            await afenced_save(Stock(code="tea", count=1), held)
            changed = await afenced_update(Stock.objects.filter(code="tea"), held, count=2)
            without = await afenced_update(Stock.objects.filter(code="tea"), count=3)
            one = await afenced_get(Stock.objects.filter(code="tea"), held)
            many = await afenced_read(Stock.objects.all(), held)
            return changed, without, one.count, [stock.fence == held.fence for stock in many]

    assert asyncio.run(main()) == (1, 1, 3, [True])


# Many at once.


BARRED = {
    "one row": lambda: (fenced_update, Stock.objects.filter(code="tea"), {"count": 1}),
    "many rows": lambda: (fenced_update, Stock.objects.filter(shelf="a"), {"count": 1}),
    "a relation": lambda: (fenced_update, Stock.objects.filter(supplier__name="Leaf"), {"count": 1}),
    "a subquery": lambda: (fenced_update, Stock.objects.filter(pk__in=Stock.objects.filter(shelf="a")), {"count": 1}),
    "a parent's fence": lambda: (fenced_update, Bottle.objects.filter(litres=1), {"litres": 7}),
    "a parent's field": lambda: (fenced_update, Tank.objects.filter(name="x"), {"name": "y"}),
    "a save": lambda: (fenced_save, Stock.objects.get(code="tea"), {}),
    "a child's save": lambda: (fenced_save, Bottle.objects.get(code="tea"), {}),
    "a read": lambda: (fenced_read, Stock.objects.filter(supplier__name="Leaf"), {}),
}


@pytest.mark.parametrize("case", BARRED)
def test_an_older_holder_that_waits_for_the_row_is_turned_away_when_it_gets_it(old, new, case, shop):
    supplier = Supplier.objects.create(name="Leaf")
    Stock.objects.create(code="mate", shelf="a", count=5, supplier=supplier)
    Bottle.objects.create(code="tea", shelf="a", count=5, supplier=supplier)
    Tank.objects.create(name="x")
    func, what, values = BARRED[case]()
    said = []

    def write():
        try:
            said.append(func(what, old, **values))
        except StaleFence as error:
            said.append(error.fence)
        finally:
            connections["shop"].close()

    older = threading.Thread(target=write)
    with transaction.atomic(using="shop"):
        fenced_update(Stock.objects.filter(code="tea"), new, count=9)
        fenced_update(Tank.objects.filter(name="x"), new, level=9)
        older.start()
        older.join(0.2)
        assert older.is_alive()
    older.join(30)

    assert said == [old.fence]
    assert row() == (9, new.fence)
    assert row(code="mate") == (5, 0)
    assert (Tank.objects.get().name, Bottle.objects.get().litres) == ("x", 1)


def increments(how, *, workers=4, rounds=15):
    """
    Count up in threads whose leases are broken at random between read and write.

    Return how many increments were acknowledged, how many turned away, and what the row says.
    """
    Stock.objects.create(code="tea")
    acknowledged, turned_away, errors = [], [], []
    start = threading.Barrier(workers)

    def work(seed):
        chance = random.Random(seed)
        start.wait()
        for _ in range(rounds):
            held = None
            while held is None:
                for lease in list_claims():  # somebody breaks the claim that another has
                    if chance.random() < 0.3:
                        force_release("stock", fence=lease.fence)
                held = claim("stock").acquire()
            try:
                how(held)
                acknowledged.append(held.fence)
            except StaleFence:
                turned_away.append(held.fence)
            finally:
                held.release()

    def run(seed):
        try:
            work(seed)
        except BaseException as error:
            errors.append(error)
        finally:
            connections["shop"].close()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    return len(acknowledged), len(turned_away), row()[0]


def test_with_the_fence_on_read_and_write_no_acknowledged_update_is_lost(unaware):
    def how(held):
        count = fenced_get(Stock.objects.filter(code="tea"), held).count
        fenced_update(Stock.objects.filter(code="tea"), held, count=count + 1)

    acknowledged, turned_away, counted = increments(how)

    assert acknowledged + turned_away == 60
    assert counted == acknowledged


def test_no_acknowledged_save_is_lost_either(unaware):
    def how(held):
        tea = fenced_get(Stock.objects.filter(code="tea"), held)
        tea.count += 1
        fenced_save(tea, held)

    acknowledged, _, counted = increments(how)

    assert counted == acknowledged


def overlapping(read, write, rounds=100, seed=1):
    """
    Let holders overlap at every point between read and write, one step at a time, in one thread.

    Return how many increments were acknowledged and what the row says.
    """
    Stock.objects.create(code="tea")
    chance, acknowledged, paused = random.Random(seed), 0, []
    for _ in range(rounds):
        if paused and chance.random() < 0.5:
            held, count = paused.pop(chance.randrange(len(paused)))
            try:
                write(held, count + 1)
                acknowledged += 1
            except StaleFence:
                pass
            held.release()
        else:
            held = take()
            paused.append((held, read(held)))
    for held, _ in paused:
        held.release()
    return acknowledged, row()[0]


def test_the_experiment_loses_updates_without_the_fence_and_none_with_it(unaware):
    def plain_read(held):
        return Stock.objects.get().count

    def plain_write(held, count):
        Stock.objects.filter(code="tea").update(count=count)

    def read(held):
        return fenced_get(Stock.objects.filter(code="tea"), held).count

    def write(held, count):
        fenced_update(Stock.objects.filter(code="tea"), held, count=count)

    done, counted = overlapping(plain_read, plain_write)
    assert counted < done

    Stock.objects.all().delete()
    done, counted = overlapping(read, write)
    assert counted == done > 0


def test_a_write_fence_alone_does_not_save_a_read_from_before(unaware):
    """Why fenced_get() is there: the newer holder read, and the older one wrote behind its back."""
    tea = Stock.objects.create(code="tea", count=5)
    with take() as old, take() as new:
        count = Stock.objects.get().count

        assert fenced_update(Stock.objects.filter(pk=tea.pk), old, count=50) == 1
        assert fenced_update(Stock.objects.filter(pk=tea.pk), new, count=count + 1) == 1

    assert row()[0] == 6


# Processes.


@pytest.mark.parametrize("how, said, count", [("fenced", "StaleFence", 100), ("plain", "written", 6)])
def test_a_process_stopped_between_its_look_and_its_write(shop, tea, settings, how, said, count):
    file = shop.settings_dict["NAME"]
    database = "django_claims.backends.database.DatabaseBackend"
    settings.CLAIMS = {"default": {"BACKEND": database, "OPTIONS": {"database": "shop"}, "TTL": 60}}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.fencing_app.child", file, "1", how], stdout=subprocess.PIPE, text=True
    )
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with claim("stock", timeout=20) as held:
            fenced_update(Stock.objects.filter(code="tea"), held, count=100)
            os.kill(child.pid, signal.SIGCONT)
            output, _ = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()

    assert output.split() == [said]
    assert row()[0] == count


# The field.


def test_a_field_is_written_into_a_migration_by_where_it_is_for_good():
    _name, path, args, kwargs = FenceField().deconstruct()

    assert (path, args, kwargs) == ("django_claims.fencing.FenceField", [], {})
    assert MigrationWriter.serialize(FenceField()) == (
        "django_claims.fencing.FenceField()",
        {"import django_claims.fencing"},
    )
    assert FenceField(*args, **kwargs).default == 0


def test_what_differs_from_the_default_is_kept_in_a_migration():
    _, _, args, kwargs = FenceField(default=3, editable=True, db_index=True).deconstruct()

    assert kwargs == {"default": 3, "editable": True, "db_index": True}
    assert FenceField(*args, **kwargs).editable


def test_a_new_row_has_zero_and_forms_do_not_show_it():
    assert Stock().fence == 0
    assert not Stock._meta.get_field("fence").editable


def ours(model):
    """Return the ids of our own checks, and the field that each is about."""
    return [(m.id, m.obj.name) for m in model.check() if m.id.startswith("django_claims.")]


@isolate_apps("tests.fencing_app")
def test_a_model_with_several_is_an_error():
    class Twice(models.Model):  # noqa: DJ008
        one = FenceField()
        two = FenceField()

        class Meta:
            app_label = "fencing_app"

    assert ours(Twice) == [("django_claims.E030", "two")]
    with claim("stock") as held, pytest.raises(InvalidClaim, match="2 FenceFields"):
        fenced_update(Twice.objects.all(), held)


@isolate_apps("tests.fencing_app")
def test_a_second_one_beside_an_inherited_one_is_an_error():
    class Parent(models.Model):  # noqa: DJ008
        one = FenceField()

        class Meta:
            app_label = "fencing_app"

    class Child(Parent):  # noqa: DJ008
        two = FenceField()

        class Meta:
            app_label = "fencing_app"

    assert ours(Parent) == []
    assert ours(Child) == [("django_claims.E030", "two")]


@isolate_apps("tests.fencing_app")
def test_a_fence_that_may_be_null_is_an_error():
    class Nullable(models.Model):  # noqa: DJ008
        fence = FenceField(null=True)

        class Meta:
            app_label = "fencing_app"

    assert ours(Nullable) == [("django_claims.E031", "fence")]


def test_the_models_of_these_tests_are_in_order():
    assert [found for model in MODELS for found in ours(model)] == []
