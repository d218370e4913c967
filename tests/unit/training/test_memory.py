import platform
import subprocess
import sys

import pytest

# Counts the page faults of a block that was freed before, in the main thread or in another one.
PROGRAM = """
import resource, sys, threading
import torch
from tuner.training.memory import keep_freed_memory

def count_faults():
    faults = []
    for _ in range(24):  # it takes some until small blocks lie elsewhere
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(72 * 2**18)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(min(faults))

torch.set_num_threads(1)
if {is_kept}:
    keep_freed_memory()
if {in_thread}:
    thread = threading.Thread(target=count_faults)
    thread.start()
    thread.join()
else:
    count_faults()
"""


def faults(*, is_kept: bool, in_thread: bool) -> int:
    program = PROGRAM.format(is_kept=is_kept, in_thread=in_thread)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
@pytest.mark.parametrize("in_thread", [False, True])
def test_memory_that_a_step_frees_is_there_for_the_next(in_thread: bool) -> None:
    pages = 72 * 2**20 // 4096
    assert faults(is_kept=False, in_thread=in_thread) > pages / 2
    assert faults(is_kept=True, in_thread=in_thread) < pages / 10
