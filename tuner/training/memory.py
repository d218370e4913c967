"""Memory: what an error says of it, giving it back, and keeping it where giving it back costs."""

import ctypes
import gc
from contextlib import suppress

import torch

# Below torch.OutOfMemoryError, cuBLAS, cuDNN and the CPU's allocator tell low memory in words.
OUT_OF_MEMORY_WORDS = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: ",
)
MARGIN = 0.1  # for fragments, and evaluation
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # from malloc.h
LARGEST_BLOCK_BYTES = 2**30
LARGEST_BLOCK_BYTES_BEFORE_GLIBC_2_35 = 2**25  # it refuses more, and then keeps its 128 KiB


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether less memory would have avoided the error."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error) for w in OUT_OF_MEMORY_WORDS)


def release_memory(device: torch.device) -> None:
    """Give what nobody holds back to the device; its peak is counted from here."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def has_margin(device: torch.device, reserved_bytes: int) -> bool:
    """Say whether the peak left MARGIN free of what this process may take of a GPU.

    Args:
        device: A CPU always has.
        reserved_bytes: Of what is yet to come: the optimizer's state after the first step.
    """
    if device.type != "cuda":
        return True
    card_bytes = torch.cuda.get_device_properties(device).total_memory
    room_bytes = torch.cuda.get_per_process_memory_fraction(device.index) * card_bytes
    peak_bytes = torch.cuda.max_memory_allocated(device) + reserved_bytes
    return peak_bytes <= (1 - MARGIN) * room_bytes


def fence_gpu_memory(share: float, context_bytes: int) -> None:
    """Keep this process within its share of the card, so that it cannot fail others on it.

    Args:
        share: Of the card's memory, 0 to 1; 0, or no GPU, does nothing, and so does a whole card.
        context_bytes: What the process takes beside torch's allocator.
    """
    if 0 < share < 1 and torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        room = share - context_bytes / card.total_memory
        torch.cuda.set_per_process_memory_fraction(max(room, share / 2))


def keep_freed_memory() -> None:
    """Make this process keep the CPU memory that it frees, for its next block.

    Memory given back and taken again costs page faults, a tenth of a step (2026-11). Only glibc's
    main arena keeps large blocks. A thread stays in the arena of its first allocation: one that
    trains should start after this call, or in a process begun with MALLOC_ARENA_MAX=1.
    """
    with suppress(AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK_BYTES):
            mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK_BYTES_BEFORE_GLIBC_2_35)
        mallopt(M_TRIM_THRESHOLD, -1)
        mallopt(M_ARENA_MAX, 1)
