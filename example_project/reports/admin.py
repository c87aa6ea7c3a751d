"""The admin of the app's own tables; that of the claims comes with django_claims."""

from django.contrib import admin

from reports.models import Customer, Order, Report

admin.site.register(Customer)


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("number", "customer", "day", "amount")
    list_select_related = ("customer",)
    search_fields = ("number", "customer__name")
    date_hierarchy = "day"


@admin.register(Report)
class ReportAdmin(admin.ModelAdmin):
    list_display = ("made_at", "orders", "total", "fence")
