"""Benchmarks of fedpact and the papers' experiments, run again: what `fedpact bench` and `fedpact replicate` do."""
