"""Every file opened once: is it a good image, and which bytes are they?"""

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.data.decode import check_image

POOL_MIN_IMAGES = 500  # below this the processes take longer to start than the images to read
CHUNK_IMAGES = 16

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What reading a file once has shown; `reason` says why it is no good, None if it is."""

    num_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str
    width: int
    height: int
    mode: str
    reason: str | None


def check_files(
    root: Path,
    paths: Sequence[str],
    *,
    known: Mapping[str, FileFacts],
    decoder: str,
    num_processes: int = 1,
    progress: Progress | None = None,
) -> dict[str, FileFacts]:
    """Return the facts of every file by path, in the order of `paths` (relative to root).

    Those in `known` are taken as they are where the file is the same one and unchanged.
    `progress` is told (files checked, files to check). Where a process ends before its work is
    done, this one does what is left.
    """
    facts = {path: known[path] for path in paths if _is_unchanged(root / path, known.get(path))}
    todo = [path for path in paths if path not in facts]
    chunks = [todo[start : start + CHUNK_IMAGES] for start in range(0, len(todo), CHUNK_IMAGES)]
    num_processes = num_processes if len(todo) > POOL_MIN_IMAGES else 1
    num_checked = 0
    with _mapping(num_processes) as map_chunks:
        checked = map_chunks(partial(_check_chunk, root, decoder), chunks)
        for chunk, chunk_facts in zip(chunks, checked, strict=True):
            facts.update(zip(chunk, chunk_facts, strict=True))
            num_checked += len(chunk)
            if progress:
                progress(num_checked, len(todo))
    return {path: facts[path] for path in paths}


def _check_chunk(root: Path, decoder: str, paths: Sequence[str]) -> list[FileFacts]:
    return [_check_file(root, decoder, path) for path in paths]


def _check_file(root: Path, decoder: str, path: str) -> FileFacts:
    try:
        status = (root / path).stat()
        data = (root / path).read_bytes()
    except OSError as error:
        reason = f"cannot be opened ({error.strerror}); put it back or set data.on_bad_image=skip"
        return FileFacts(0, 0, 0, 0, "", 0, 0, "", f"{path}: {reason}")
    verdict = check_image(data, path, decoder)
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    return FileFacts(
        num_bytes=len(data),
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        digest=digest,
        width=verdict.width,
        height=verdict.height,
        mode=verdict.mode,
        reason=verdict.reason,
    )


def _is_unchanged(path: Path, fact: FileFacts | None) -> bool:
    if fact is None:
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    # Unpacked archives and copies share names, sizes and times of change with other files, never
    # the inode with the time that the kernel itself stamps on it; a moved folder keeps both.
    now = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return now == (fact.num_bytes, fact.mtime_ns, fact.ctime_ns, fact.inode)


@contextmanager
def _mapping(num_processes: int) -> Iterator[Callable[..., Iterable[list[FileFacts]]]]:
    """Yield a `map` that works in this many processes, or in this one."""
    if num_processes <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, initializer=_start_worker) as pool:
        yield partial(_map_in_pool, pool)


def _map_in_pool(
    pool: ProcessPoolExecutor,
    check: Callable[[Sequence[str]], list[FileFacts]],
    chunks: Sequence[Sequence[str]],
) -> Iterator[list[FileFacts]]:
    num_done = 0
    try:
        for facts in _submit_all(pool, check, chunks):
            yield facts
            num_done += 1
    except BrokenProcessPool:
        # Short of memory, or started by a script without a main guard; one process suits both.
        yield from map(check, chunks[num_done:])


def _submit_all(
    pool: ProcessPoolExecutor,
    check: Callable[[Sequence[str]], list[FileFacts]],
    chunks: Sequence[Sequence[str]],
) -> Iterator[list[FileFacts]]:
    # Processes started while Ctrl-C is blocked never see it: it is for their parent alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.map(check, chunks)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _start_worker() -> None:
    """Make a worker end with its parent, however that ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
