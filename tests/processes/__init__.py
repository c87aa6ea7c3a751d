"""Tests with real operating-system processes."""
