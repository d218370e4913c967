"""What Ray and its processes read from the environment."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A trial without a GPU sees none, also where there is one.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0: no tables
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # Each trial runs in a new thread, whose own arena would give its big blocks back each time.
    "MALLOC_ARENA_MAX": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # A job that takes longer than this to close fails the next one, and its slot is lost for good.
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}


@contextmanager
def environment(token_path: Path) -> Iterator[None]:
    """Sets what Ray and its processes read, and puts back what was there."""
    before = dict(os.environ)
    os.environ.pop("RAY_AUTH_MODE", None)  # unset, Ray turns the login on, imported or not
    os.environ.pop("OMP_NUM_THREADS", None)  # unset, Ray gives each process its CPUs' number
    os.environ.update(
        ENVIRONMENT,
        RAY_AUTH_TOKEN_PATH=str(token_path),  # the default needs a home folder
        PYTHONPATH=os.pathsep.join(entry or os.getcwd() for entry in sys.path),
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
