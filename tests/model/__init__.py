"""The protocol as a model in Promela, looked at in all of its states by spin."""
