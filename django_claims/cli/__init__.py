"""The verbs of `manage.py claims`: one a module, each with HELP, add_arguments() and run()."""
