"""Images as tokens: the handwritten digits that come with scikit-learn, MNIST, CIFAR-10.

An image is cut into square patches, a patch is a token. Nothing is ever downloaded.
"""

from __future__ import annotations

import gzip
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Whole = NDArray[np.int32]


@dataclass(frozen=True)
class Images:
    """Images as patches ``(images, tokens, pixels of a patch)``, with labels ``(images,)``."""

    name: str
    patches: Floats
    labels: Whole
    classes: int = 10


class Split(NamedTuple):
    """Indices of the images to train on, to tune with, and to test with; no image is in two."""

    train: Whole
    validation: Whole
    test: Whole


def digits() -> Images:
    """Return the 1797 handwritten digits of scikit-learn, 8 x 8 pixels, as 16 patches of 2 x 2.

    >>> digits().patches.shape
    (1797, 16, 4)
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return _images("digits", images.reshape(-1, 8, 8), labels, patch=2)


def mnist(folder: str | Path) -> Images:
    """Read MNIST's four IDX files (gzipped or not): 70,000 images as 16 patches of 7 x 7.

    The first 60,000 are the usual training set.
    """
    folder = _folder(folder, "MNIST")
    parts = [
        [_idx(folder, f"{part}-{what}") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]
        for part in ("train", "t10k")
    ]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    return _images("mnist", images, labels, patch=7)


def cifar10(folder: str | Path) -> Images:
    """Read CIFAR-10's six batches (Python version): 60,000 images as 16 patches of 8 x 8.

    The first 50,000 are the usual training set. The files are pickles, which can run code:
    read only those that you trust.
    """
    folder = _folder(folder, "CIFAR-10")
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = [pickle.loads(_bytes(folder, name), encoding="bytes") for name in names]
    images = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([batch[b"labels"] for batch in batches])
    return _images("cifar10", images.transpose(0, 2, 3, 1), labels, patch=8)


def split(count: int, seed: int, *, train: int, validation: int, test: int) -> Split:
    """Cut ``count`` images at random, reproducibly by ``seed``, into three disjoint parts."""
    for name, size in (("train", train), ("validation", validation), ("test", test)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if train + validation + test > count:
        raise ValueError(
            f"train + validation + test must be at most {count} images, "
            f"got {train} + {validation} + {test}"
        )
    order = np.random.default_rng([seed, 0]).permutation(count).astype(np.int32)
    return Split(*np.split(order[: train + validation + test], [train, train + validation]))


def shuffled(images: Images, seed: int) -> Images:
    """Return the same images with their labels permuted: nothing can be learned from them."""
    order = np.random.default_rng([seed, 1]).permutation(len(images.labels))
    return replace(images, name=f"{images.name}-shuffled", labels=images.labels[order])


def cut(images: NDArray[Any], patch: int) -> NDArray[Any]:
    """Cut ``(N, height, width[, channels])`` into patches ``(N, tokens, values)``, row by row.

    >>> cut(np.arange(16).reshape(1, 4, 4), 2)[0, :2]
    array([[0, 1, 4, 5],
           [2, 3, 6, 7]])
    """
    if images.ndim == 3:
        images = images[..., None]
    count, height, width, channels = images.shape
    if height % patch or width % patch:
        raise ValueError(f"patch must divide {height} and {width}, got {patch}")
    rows = images.reshape(count, height // patch, patch, width // patch, patch, channels)
    return rows.swapaxes(2, 3).reshape(count, -1, patch * patch * channels)


def _images(name: str, images: NDArray[Any], labels: NDArray[Any], patch: int) -> Images:
    values = np.asarray(images, dtype=np.float32)
    values = (values - values.mean()) / values.std()
    return Images(name, cut(values, patch), np.asarray(labels, dtype=np.int32))


def _folder(folder: str | Path, what: str) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(
            f"folder must hold the files of {what}, which are never downloaded: "
            f"there is no folder {path}"
        )
    return path


def _bytes(folder: Path, name: str) -> bytes:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            content = path.read_bytes()
            return gzip.decompress(content) if path.suffix == ".gz" else content
    found = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
    raise FileNotFoundError(f"folder {folder} must hold {name} or {name}.gz; it holds {found}")


def _idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Read an IDX file: 0, 0, type (8: bytes), number of axes, sizes (big-endian), values."""
    content = _bytes(folder, name)
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError(f"{name} in {folder} is not an IDX file of bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if values.size != np.prod(shape):
        raise ValueError(
            f"{name} in {folder} must hold {np.prod(shape)} values, it holds {values.size}"
        )
    return values.reshape(shape)
