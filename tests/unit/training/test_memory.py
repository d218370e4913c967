import platform
import subprocess
import sys

import pytest
import torch

from tuner.training.memory import has_margin, is_out_of_memory

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


@pytest.mark.parametrize(
    ("fence", "others", "coming", "has_room"),
    [
        (1.0, 0, 0, True),
        (1.0, 0, 21, False),
        (1.0, 23, 0, False),  # of the 77 that are left, 70 are more than nine tenths
        (0.5, 0, 0, False),
        (0.8, 0, 2, True),
        (0.8, 0, 3, False),
    ],
)
def test_a_margin_is_a_tenth_of_the_fence_and_of_what_others_leave(
    monkeypatch: pytest.MonkeyPatch, fence: float, others: int, coming: int, has_room: bool
) -> None:
    reserved = 75
    for name, answer in {
        "mem_get_info": (100 - others - reserved, 100),
        "memory_reserved": reserved,
        "max_memory_allocated": 70,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: fence)
    assert has_margin(torch.device("cuda"), coming) is has_room
    assert has_margin(torch.device("cpu"), 10**9)


def test_what_the_cpu_s_allocator_raises_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**48)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("CUDA error: out of memory"))
