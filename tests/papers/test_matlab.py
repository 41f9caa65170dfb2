"""Images and masks of ImageNet-Segmentation, in a file of MATLAB."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.pictures import matlab_file
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, MissingExtra


def write_mat(path: Path, images: list[np.ndarray], masks: list[np.ndarray], row: bool = False) -> Path:
    path.write_bytes(matlab_file(images, masks, row))
    return path


@pytest.mark.parametrize("row", [False, True])
def test_imagenet_segmentation(tmp_path: Path, row: bool) -> None:
    numbers = np.random.default_rng(0)
    images = [numbers.integers(0, 256, (4 + i, 7, 3), np.uint8) for i in range(3)]
    masks = [numbers.integers(0, 2, (4 + i, 7), np.uint8) for i in range(3)]
    path = write_mat(tmp_path / "gtsegs_ijcv.mat", images, masks, row)
    data = open_dataset("imagenet_segmentation", local=tmp_path)
    assert data.format == "mat"
    assert len(data) == len(list(data)) == 3
    for example, image, mask in zip(data, images, masks, strict=True):
        assert np.array_equal(np.asarray(example.image.open()), image)
        assert np.array_equal(example.mask.open(), mask)
    (one,) = pickle.loads(pickle.dumps(data)).rows(2, 3)
    assert one.content["image"] != next(iter(data)).content["image"]
    assert open_dataset("imagenet_segmentation", local=path).digest == open_dataset(path).digest


def test_other_files_of_matlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    image, mask = np.zeros((4, 5, 3), np.uint8), np.zeros((4, 5), np.uint8)
    (tmp_path / "old.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(BadInput, match=r"old\.mat cannot be read as a MATLAB file of version 7\.3"):
        open_dataset(tmp_path / "old.mat")
    with h5py.File(tmp_path / "other.mat", "w") as file:
        file["value/img"] = [1, 2]
    with pytest.raises(BadInput, match=r"other\.mat has no /value/img of references: it is not laid out as gtsegs"):
        open_dataset(tmp_path / "other.mat")
    with pytest.raises(BadInput, match="has 2 images and 1 masks"):
        open_dataset(write_mat(tmp_path / "a.mat", [image, image], [mask]))
    with pytest.raises(BadInput, match=r"imagenet_segmentation is not on the hub: give local=.*gtsegs_ijcv\.mat"):
        open_dataset("imagenet_segmentation")


def test_what_lies_in_other_files_is_not_fetched(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(bytes(60))
    image, mask = np.zeros((4, 5, 3), np.uint8), np.zeros((4, 5), np.uint8)
    path = write_mat(tmp_path / "a.mat", [image, image], [mask, mask])
    with h5py.File(path, "a") as file:
        secret = file.create_dataset("raw", (60,), np.uint8, external=[(str(tmp_path / "secret"), 0, 60)])
        huge = file.create_dataset("huge", (1 << 20, 1 << 20), np.uint8, chunks=(64, 64))
        file["value/img"][0, 0], file["value/img"][1, 0] = secret.ref, huge.ref
    outside, large = open_dataset(path)
    with pytest.raises(BadInput, match=r"a\.mat has '/raw' in another file"):
        outside.image.open()
    with pytest.raises(BadInput, match=r"has 1,099,511,627,776 numbers in '/huge', more than an image has"):
        large.image.open()
    with h5py.File(tmp_path / "b.mat", "w") as file:
        file["value"] = h5py.ExternalLink(str(path), "/value")
    with pytest.raises(BadInput, match=r"b\.mat has '/value/img' in another file"):
        open_dataset(tmp_path / "b.mat")


def test_hdf5_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.mat").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match="this data needs h5py: pip install h5py"):
        open_dataset(tmp_path / "a.mat")
