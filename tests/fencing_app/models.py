# ruff: noqa: DJ008
"""A little shop, some of whose rows know the last holder that wrote them."""

import uuid

from django.db import models

from django_claims.fencing import FenceField


class Supplier(models.Model):
    name = models.CharField(max_length=50)

    class Meta:
        app_label = "fencing_app"


class Stock(models.Model):
    code = models.CharField(max_length=20, unique=True)
    shelf = models.CharField(max_length=20, default="")
    count = models.IntegerField(default=0)
    changed = models.DateTimeField(auto_now=True)
    supplier = models.ForeignKey(Supplier, models.CASCADE, null=True)
    fence = FenceField()

    class Meta:
        app_label = "fencing_app"


class ProxyStock(Stock):
    class Meta:
        app_label = "fencing_app"
        proxy = True


class Bottle(Stock):
    """Its fence is in its parent's table."""

    litres = models.IntegerField(default=1)

    class Meta:
        app_label = "fencing_app"


class Tank(Supplier):
    """Its fence is in its own table, its name in its parent's."""

    level = models.IntegerField(default=0)
    fence = FenceField()

    class Meta:
        app_label = "fencing_app"


class Parcel(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    weight = models.IntegerField(default=0)
    fence = FenceField()

    class Meta:
        app_label = "fencing_app"


class Place(models.Model):
    pk = models.CompositePrimaryKey("row", "bay")
    row = models.IntegerField()
    bay = models.IntegerField()
    count = models.IntegerField(default=0)
    fence = FenceField()

    class Meta:
        app_label = "fencing_app"


MODELS = [Supplier, Stock, Bottle, Tank, Parcel, Place]


class Router:
    """Send all of it to the alias 'shop'; read from 'replica' where there is such an alias."""

    def db_for_read(self, model, **hints):
        from django.db import connections

        if model._meta.app_label != "fencing_app":
            return None
        return "replica" if "replica" in connections.settings else "shop"

    def db_for_write(self, model, **hints):
        return "shop" if model._meta.app_label == "fencing_app" else None

    def allow_relation(self, obj1, obj2, **hints):
        return True
