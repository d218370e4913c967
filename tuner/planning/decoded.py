"""Whether a data set is decoded once and kept, and what of it fits on a GPU."""

DISK_SHARE = 0.5  # of what is free: the checkpoints need room, too
MEMORY_SHARE = 0.5  # beyond it the pages that one trial reads push out those of another
DEVICE_SHARE = 0.25  # of a trial's share of a card


def why_not_decoded(num_bytes: int, *, free_bytes: int, memory_bytes: int) -> str | None:
    """Returns why the decoded images are better not kept, None where they are.

    Args:
        num_bytes: Of all of them.
        free_bytes: Free on the disk of the cache, beside what checkpoints need.
        memory_bytes: Of the machine.
    """
    for share, room_bytes, room in (
        (DISK_SHARE, free_bytes, "that checkpoints leave free on its disk"),
        (MEMORY_SHARE, memory_bytes, "of memory"),
    ):
        if num_bytes > share * room_bytes:
            return (
                f"they take {num_bytes / 1e9:.1f} GB, above half of the {room_bytes / 1e9:.1f} GB "
                f"{room} (data.cache=decoded or device keeps them all the same)"
            )
    return None


def device_cache_bytes(gpu_share: float, card_memory_bytes: int) -> int:
    """Returns what decoded images may take of a trial's share of a card."""
    return int(DEVICE_SHARE * gpu_share * card_memory_bytes)
