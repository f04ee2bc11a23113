import gzip
import pickle

import numpy as np
import pytest

from training import data

SIZES = {"train": 50, "validation": 20, "test": 30}


def test_digits_are_the_images_of_scikit_learn_cut_into_patches():
    from sklearn.datasets import load_digits

    found, raw = data.digits(), load_digits()
    assert found.patches.shape == (1797, 16, 4)
    image = (raw.images[7] - raw.images.mean()) / raw.images.std()
    np.testing.assert_allclose(found.patches[7, 6].reshape(2, 2), image[2:4, 4:6], rtol=1e-5)
    assert (found.labels == raw.target).all()


def test_patches_go_row_by_row_and_keep_colours_together():
    pixel = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    patches = data.cut(pixel, 2)
    assert patches.shape == (2, 6, 12)
    np.testing.assert_array_equal(patches[1, 4].reshape(2, 2, 3), pixel[1, 2:4, 2:4])
    with pytest.raises(ValueError, match="patch must divide 4 and 6, got 4"):
        data.cut(pixel, 4)


def test_a_split_is_disjoint_and_fixed_by_its_seed():
    parts = data.split(100, 5, **SIZES)
    assert [part.size for part in parts] == [50, 20, 30]
    assert sorted(np.concatenate(parts)) == list(range(100))
    again, other = data.split(100, 5, **SIZES), data.split(100, 6, **SIZES)
    assert all((a == b).all() for a, b in zip(parts, again))
    assert (parts.test != other.test).any()
    with pytest.raises(ValueError, match=r"at most 99 images, got 50 \+ 20 \+ 30"):
        data.split(99, 5, **SIZES)
    with pytest.raises(ValueError, match="validation must be at least 1, got 0"):
        data.split(99, 5, train=1, validation=0, test=1)


def test_shuffled_labels_are_the_same_labels_on_other_images():
    images = data.digits()
    wrong = data.shuffled(images, 1)
    assert (np.bincount(wrong.labels) == np.bincount(images.labels)).all()
    assert 0.05 < (wrong.labels == images.labels).mean() < 0.15
    assert wrong.name == "digits-shuffled"
    assert wrong.patches is images.patches


def idx(values):
    header = bytes([0, 0, 8, values.ndim]) + b"".join(
        int(size).to_bytes(4, "big") for size in values.shape
    )
    return header + values.astype(np.uint8).tobytes()


def write_mnist(folder):
    rng = np.random.default_rng(1)
    for part, count in (("train", 5), ("t10k", 3)):
        images = rng.integers(0, 256, (count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        labels = idx(np.arange(count))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return images


def test_mnist_is_read_from_idx_files_plain_or_gzipped(tmp_path):
    last = write_mnist(tmp_path)
    found = data.mnist(tmp_path)
    assert found.patches.shape == (8, 16, 49)
    assert found.labels.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    patch = found.patches[7, 5].reshape(7, 7)  # second row, second column, standardised
    raw = last[2, 7:14, 7:14]
    assert np.corrcoef(patch.ravel(), raw.ravel())[0, 1] > 1 - 1e-6
    assert abs(found.patches.mean()) < 1e-5
    assert abs(found.patches.std() - 1) < 1e-5


def test_cifar10_is_read_from_its_batches(tmp_path):
    rng = np.random.default_rng(2)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        values = rng.integers(0, 256, (2, 3072), dtype=np.uint8)
        (tmp_path / name).write_bytes(pickle.dumps({b"data": values, b"labels": [3, 4]}))
    found = data.cifar10(tmp_path)
    assert found.patches.shape == (12, 16, 192)
    assert found.labels.tolist() == [3, 4] * 6
    red = values[1, :1024].reshape(32, 32)[:8, 8:16]
    patch = found.patches[11, 1].reshape(8, 8, 3)[..., 0]
    assert np.corrcoef(patch.ravel(), red.ravel())[0, 1] > 1 - 1e-6


@pytest.mark.parametrize("read", [data.mnist, data.cifar10])
def test_files_that_are_not_there_are_named(read, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .* never downloaded"):
        read(tmp_path / "nowhere")
    (tmp_path / "readme").touch()
    with pytest.raises(FileNotFoundError, match=r"must hold \S+ or \S+\.gz; it holds readme"):
        read(tmp_path)


def test_a_broken_idx_file_is_named(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "t10k-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="must hold 2352 values, it holds 2351"):
        data.mnist(tmp_path)
    path.write_bytes(b"<html>")
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte .* is not an IDX file"):
        data.mnist(tmp_path)
