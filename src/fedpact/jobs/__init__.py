"""A job in a TOML file, from its reading to the folder of its run."""

from fedpact.jobs.evaluation import evaluate_run
from fedpact.jobs.job_file import JobFile, read_job
from fedpact.jobs.running import find_threshold, run_job

__all__ = ["JobFile", "evaluate_run", "find_threshold", "read_job", "run_job"]
