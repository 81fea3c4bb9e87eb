"""Experiments of papers, run again: one file each, all with `replicate(task) -> Replication`."""
