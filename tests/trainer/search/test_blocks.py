"""A split scored block by block, or where a coarse model says so: against everything at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, read_manifest
from capgrade.schemas.regions import RegionStore
from capgrade.trainer.data.pairs import SplitPairs
from capgrade.trainer.evaluation.task import load_task
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.search import index
from capgrade.trainer.search.encode import compute_scores, encode_split
from capgrade.trainer.search.index import select_candidates
from capgrade.trainer.stages.embed import EmbedParams
from tests.trainer.fit import runs

SIZES = {"vse": "{embed: 16, word: 8}", "saf": "{embed: 16, word: 8, similarity: 8}"}


@pytest.fixture(scope="module", params=SIZES)
def run(request, small, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("blocks") / request.param
    model = f"train.model={{name: {request.param}, options: {SIZES[request.param]}}}"
    runs.run(small.data, folder, model, epochs=1)
    return folder


def at_once(small, run: Path):
    model, tokens, _ = load_run(run)
    captions = read_captions(small.data.captions, "test")
    pairs = SplitPairs(captions, RegionStore(small.data.regions), tokens.encode(captions))
    images, texts = encode_split(model, pairs)
    return images, texts, compute_scores(model, images, texts)


def embed(small, run: Path, out: Path, **told: Any) -> dict[str, Any]:
    params = EmbedParams(split="test", **told)
    return index.embed(small.data.captions, out, params, run=run, regions=small.data.regions)


def test_blocks_are_the_whole(small, run: Path, tmp_path: Path, monkeypatch) -> None:
    """Three captions at a time; no more are ever scored together, and encodings are those of
    everything at once."""
    seen = []
    monkeypatch.setattr(index, "SIZE", 3)
    monkeypatch.setattr(
        index,
        "compute_scores",
        lambda model, a, b: (seen.append(len(b)), compute_scores(model, a, b))[1],
    )
    embed(small, run, tmp_path / "index")
    images, texts, want = at_once(small, run)
    assert max(seen) == 3 and sum(seen) == 16
    np.testing.assert_allclose(np.load(tmp_path / "index" / "similarity.npy"), want, atol=1e-6)
    kept = {
        path.stem: torch.from_numpy(np.load(path)) for path in (tmp_path / "index").glob("*.*.npy")
    }
    for side, encoded in (("images", images), ("captions", texts)):
        there = {
            f"{side}.{name}": tensor for name, tensor in vars(encoded).items() if tensor is not None
        }
        assert there.keys() == {name for name in kept if name.startswith(side)}
        for name, tensor in there.items():
            torch.testing.assert_close(kept[name], tensor, atol=1e-6, rtol=1e-5)


def test_what_a_coarse_model_ranks_first_alone_is_scored(small, run: Path, tmp_path: Path) -> None:
    coarse = np.random.default_rng(0).random((8, 16)).astype(np.float32)
    np.save(tmp_path / "coarse.npy", coarse)
    out = tmp_path / "index"
    embed(small, run, out, coarse=str(tmp_path / "coarse.npy"), coarse_top=2)
    wanted = (coarse >= np.sort(coarse)[:, -2:-1]) | (coarse >= np.sort(coarse, axis=0)[-2])
    found = np.load(out / "similarity.npy")
    np.testing.assert_allclose(found[wanted], at_once(small, run)[2][wanted], atol=1e-6)
    assert (found[~wanted] == -np.inf).all() and (~wanted).any()
    assert read_manifest(out, "embed")["params"]["embed"]["coarse_top"] == 2
    _, notes = load_task(small.data.captions, similarity=out / "similarity.npy", split="test")
    assert any("only the 2 best pairs" in note for note in notes)
    np.save(tmp_path / "short.npy", coarse[:-1])
    with pytest.raises(InputError, match="score the same captions table"):
        embed(small, run, out, coarse=str(tmp_path / "short.npy"))


def test_an_index_may_refine_itself(small, run: Path, tmp_path: Path) -> None:
    """What was read is the matrix as it was, not the one that took its place."""
    out = tmp_path / "index"
    embed(small, run, out)
    first = digest(out / "similarity.npy")
    found = embed(small, run, out, coarse=str(out / "similarity.npy"), coarse_top=1)
    assert found["inputs"]["coarse"] == first != digest(out / "similarity.npy")


def test_equal_scores_keep_their_order() -> None:
    assert select_candidates(np.zeros((3, 2)), 1).tolist() == [
        [True, True],
        [True, False],
        [True, False],
    ]
