"""What a result depends on besides its settings: versions, processor, commit."""

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "tuner",
    "torch",
    "torchvision",
    "ray",
    "optuna",
    "numpy",
    "opencv-python-headless",
    "pillow",
    "simplejpeg",
    "timm",
)


def versions() -> dict[str, str]:
    """Returns the version of Python and of every package that can change a result, by name."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # ray and optuna are not needed where only a model is retrained
    return found


def processor() -> str:
    """Returns the processor's own name; equal names and thread counts give equal bits."""
    cpuinfo = Path("/proc/cpuinfo")
    if sys.platform == "linux" and cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def git_commit() -> str | None:
    """Returns the commit of this program's own checkout, `-dirty` behind it, or None elsewhere."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    folder = Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None  # no git on this machine: the version above is all there is to say
    inside = found.returncode == 0 and is_own_checkout(folder)
    return found.stdout.strip() if inside else None


def is_own_checkout(folder: Path) -> bool:
    """Says whether `folder` is tracked: an install inside somebody's repository is not ours."""
    command = ["git", "ls-files", "--error-unmatch", "__init__.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=10).returncode == 0
