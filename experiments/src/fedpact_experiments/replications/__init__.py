"""Experiments of the papers, run again: a file each declares runs, tables, claims, figures; `runner` does the rest."""
