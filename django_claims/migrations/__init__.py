"""Migrations without tables: the permissions of the admin pages."""
