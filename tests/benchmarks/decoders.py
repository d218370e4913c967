"""JPEG decoders one by one, per core: images per second, and whether their pixels are the same.

    python tests/benchmarks/decoders.py FOLDER results/benchmarks/decoders.json

FOLDER holds the unpacked `cifar10-small/` and `imagenette-small/`. PyTurboJPEG is left out where
it is not installed: `pip install "PyTurboJPEG<2"`, which needs libturbojpeg 2.
"""

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg
from PIL import Image

from tuner.data.decode import decode, use_one_thread
from tuner.planning.environment import git_commit, processor, versions

SETS = ("cifar10-small", "imagenette-small")
NUM_IMAGES = 400
TURNS = 7

Decode = Callable[[bytes], np.ndarray]


def main() -> None:
    folder, to = Path(sys.argv[1]), Path(sys.argv[2])
    use_one_thread()
    decoders = installed()
    figures = {
        "command": f"python tests/benchmarks/decoders.py FOLDER {to}",
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
        "sets": [{"set": name, "decoders": compare(folder / name, decoders)} for name in SETS],
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures["sets"], indent=2))


def installed() -> dict[str, Decode]:
    found: dict[str, Decode] = {
        "tuner, simplejpeg": lambda data: decode(data, "", "simplejpeg", is_checked=True),
        "tuner, cv2": lambda data: decode(data, "", "cv2", is_checked=True),
        "tuner, pil": lambda data: decode(data, "", "pil", is_checked=True),
        "simplejpeg": lambda data: simplejpeg.decode_jpeg(data, colorspace="RGB"),
        "cv2": lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB),
        "pillow": lambda data: np.asarray(Image.open(BytesIO(data)).convert("RGB")),
    }
    if importlib.util.find_spec("turbojpeg"):
        import turbojpeg

        library = turbojpeg.TurboJPEG()
        found["PyTurboJPEG"] = lambda data: library.decode(data, pixel_format=turbojpeg.TJPF_RGB)
    return found


def compare(folder: Path, decoders: dict[str, Decode]) -> dict[str, dict[str, Any]]:
    paths = sorted(folder.glob("train/*/*.*"))
    files = [path.read_bytes() for path in paths[:: len(paths) // NUM_IMAGES]]
    rates: dict[str, list[float]] = {name: [] for name in decoders}
    for turn in range(TURNS):
        names = list(decoders) if turn % 2 == 0 else list(decoders)[::-1]
        for name in names:
            started = time.process_time()
            for data in files:
                decoders[name](data)
            rates[name].append(len(files) / (time.process_time() - started))
    expected = [decoders["pillow"](data) for data in files]
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return {
        name: {
            "images_per_s": round(medians[name], 1),
            "ratio_to_tuner_cv2": round(medians[name] / medians["tuner, cv2"], 3),
            "same_bits_as_pillow": sum(
                np.array_equal(decoders[name](data), pixels)
                for data, pixels in zip(files, expected, strict=True)
            ),
            "images": len(files),
        }
        for name in decoders
    }


if __name__ == "__main__":
    main()
