"""Fetching ahead changes nothing that is read."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from capgrade.pipelines.sampling.prefetch import prefetch


@njit
def total(array):
    found = 0.0
    for k in range(array.shape[0]):
        prefetch(array, min(k + 8, array.shape[0] - 1))
        found += array[k].sum()
    return found


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float32])
def test_rows_are_read_as_they_are(dtype: type) -> None:
    array = np.arange(300).reshape(100, 3).astype(dtype)
    assert total(array) == array.sum(dtype=np.float64)
    assert total(array[::2]) == array[::2].sum(dtype=np.float64)
