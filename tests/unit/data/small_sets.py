"""Tiny sets in the formats that torchvision reads, 12 images of training and 6 to judge by."""

import hashlib
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

LABELS = {"train": [0, 2, 1, 2] * 3, "test": [2, 0, 1] * 2}

Make = Callable[[Path, pytest.MonkeyPatch], None]


def pixels(split: str, *shape: int) -> NDArray[np.uint8]:
    """Return one random array of this shape for each image of the split."""
    rng = np.random.default_rng(len(split))
    return rng.integers(0, 256, (len(LABELS[split]), *shape), np.uint8)


def write_pickle(path: Path, content: object) -> str:
    """Write a pickle and return its MD5, which torchvision compares."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "cifar-10-batches-py"
    for split, name in (("train", "data_batch_1"), ("test", "test_batch")):
        batch = {"data": pixels(split, 3 * 32 * 32), "labels": LABELS[split]}
        listed = [[name, write_pickle(folder / name, batch)]]
        monkeypatch.setattr(datasets.CIFAR10, f"{split}_list", listed)
    names = ["airplane", "automobile", "bird"]
    md5 = write_pickle(folder / "batches.meta", {"label_names": names})
    monkeypatch.setitem(datasets.CIFAR10.meta, "md5", md5)


def cifar100(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "cifar-100-python"
    for split in ("train", "test"):
        batch = {"data": pixels(split, 3 * 32 * 32), "fine_labels": LABELS[split]}
        listed = [[split, write_pickle(folder / split, batch)]]
        monkeypatch.setattr(datasets.CIFAR100, f"{split}_list", listed)
    md5 = write_pickle(folder / "meta", {"fine_label_names": ["apple", "aquarium_fish", "baby"]})
    monkeypatch.setitem(datasets.CIFAR100.meta, "md5", md5)


def fashion_mnist(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "FashionMNIST/raw"
    folder.mkdir(parents=True)
    for split, name in (("train", "train"), ("test", "t10k")):
        images, labels = pixels(split, 28, 28), np.array(LABELS[split], np.uint8)
        head = struct.pack(">4BIII", 0, 0, 8, 3, *images.shape)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = struct.pack(">4BI", 0, 0, 8, 1, len(labels))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def imagenette(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, folder in (("train", "train"), ("test", "val")):
        for number, array in enumerate(pixels(split, 20, 24, 3)):
            wnid = ("n01440764", "n02102040", "n02979186")[LABELS[split][number]]
            path = root / "imagenette2" / folder / wnid / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(path)


def flowers102(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "flowers-102"
    (folder / "jpg").mkdir(parents=True)
    labels = [label + 1 for split in ("train", "test") for label in LABELS[split]]
    arrays = [*pixels("train", 20, 24, 3), *pixels("test", 20, 24, 3)]
    for number, array in enumerate(arrays, start=1):
        Image.fromarray(array).save(folder / f"jpg/image_{number:05d}.jpg")
    savemat(folder / "imagelabels.mat", {"labels": labels})
    ids = {"trnid": range(1, 13), "valid": range(13, 19), "tstid": range(1, 3)}
    savemat(folder / "setid.mat", {name: list(each) for name, each in ids.items()})
    files = dict(datasets.Flowers102._file_dict)
    for what, name in (("label", "imagelabels.mat"), ("setid", "setid.mat")):
        files[what] = (name, hashlib.md5((folder / name).read_bytes()).hexdigest())
    monkeypatch.setattr(datasets.Flowers102, "_file_dict", files)


SETS: dict[str, Make] = {
    "CIFAR10": cifar10,
    "CIFAR100": cifar100,
    "FashionMNIST": fashion_mnist,
    "Imagenette": imagenette,
    "Flowers102": flowers102,
}
CLASSES = {
    "CIFAR10": ("airplane", "automobile", "bird"),
    "CIFAR100": ("apple", "aquarium_fish", "baby"),
    "FashionMNIST": ("Pullover", "T-shirt/top", "Trouser"),
    "Imagenette": (
        "cassette player",
        "English springer, English springer spaniel",
        "tench, Tinca tinca",
    ),
    "Flowers102": ("canterbury bells", "hard-leaved pocket orchid", "pink primrose"),
}
NAMED_SPLITS = ("Imagenette", "Flowers102")  # the others have training and test
