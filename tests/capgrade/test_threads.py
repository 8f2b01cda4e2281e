"""Runs of a loop on threads: each number once, on as many threads as are set, and errors."""

import os
import threading

import numba
import numpy as np
import pytest

from capgrade.kernels import in_threads, njit
from tests.capgrade.test_kernels import said
from tests.conftest import ROOT


@njit(nogil=True)
def count(first, last, out):
    """Adds one where it comes by."""
    for k in range(first, last):
        out[k] += 1


@pytest.fixture(autouse=True)
def two_threads():
    before = numba.get_num_threads()
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
    yield
    numba.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_every_number_once(n: int) -> None:
    out = np.zeros(n, np.int64)
    in_threads(count, n, out)
    assert (out == 1).all()


def test_as_many_runs_as_threads_are_set_and_one_of_them_here() -> None:
    ran: list[tuple[int, int, bool]] = []

    def kernel(first: int, last: int) -> None:
        ran.append((first, last, threading.current_thread() is threading.main_thread()))

    numba.set_num_threads(1)
    in_threads(kernel, 7)
    assert ran == [(0, 7, True)]
    if numba.config.NUMBA_NUM_THREADS > 1:
        numba.set_num_threads(2)
        in_threads(kernel, 7)
        assert sorted(ran[1:]) == [(0, 3, True), (3, 7, False)]


@pytest.mark.parametrize("bad", [0, 6])
def test_an_error_of_any_run_when_all_have_ended(bad: int) -> None:
    ran: list[int] = []

    def kernel(first: int, last: int) -> None:
        if first <= bad < last:
            raise ValueError(f"bad {bad}")
        ran.append(first)

    with pytest.raises(ValueError, match=f"bad {bad}"):
        in_threads(kernel, 7)
    assert len(ran) == numba.get_num_threads() - 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork() -> None:
    """A child has none of its parent's threads."""
    in_threads(count, 4, np.zeros(4, np.int64))
    child = os.fork()
    if not child:
        out = np.zeros(4, np.int64)
        numba.get_num_threads = lambda: 2  # not numba's own threads, which do not survive either
        in_threads(count, 4, out)
        os._exit(0 if (out == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("torch_first", [True, False])
def test_torch_keeps_the_number_of_threads_that_it_was_given(torch_first: bool) -> None:
    """numba's threads, when they start, set OpenMP's number, which torch has too: training had one thread or two by
    what was computed before it, and other last bits."""
    pytest.importorskip("torch")
    code = "import torch\n" if torch_first else ""
    code += "from capgrade.kernels import in_threads; in_threads(lambda first, last: None, 2)\n"
    code += "import torch; print(torch.get_num_threads())"
    assert said(ROOT, code, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="2") == "1"
