"""Models with a fence, on a database file of their own. In no INSTALLED_APPS: the tests make the tables."""
