"""
Real processes on real stores, hurt on purpose; each writes what it asked and was told, and a checker judges that.

By hand: `python -m tests.faults --store redis --minutes 30 --nemesis all --seed 1`
"""
