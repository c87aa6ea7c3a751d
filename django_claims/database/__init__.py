"""The table of DatabaseBackend, in an app of its own: nobody gets a table that they do not use."""
