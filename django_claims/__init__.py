"""Cross-process claims and stop flags for Django."""
