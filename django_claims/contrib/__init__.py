"""Ties to other packages: one optional package a file, imported nowhere else."""
