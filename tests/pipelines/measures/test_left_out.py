"""Own pairs without the caption among its references, for every measure: against reference sets that lack it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.measures import MEASURES, choose
from capgrade.pipelines.measures.own_pairs import own_left_out
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets

# SPICE's jars are not at hand; random captions share nothing: test_sbert_shared.py has some that do.
ELSEWHERE = ("spice", "sbert_shared", "sbert_shared_mean")
NAMES = [name for name in (*MEASURES, "people", "daa_average") if name not in ELSEWHERE]
CAPTIONS = make_captions(random_sets(12, seed=3, least=1, most=4))


def against_the_others(captions: Captions, name: str) -> np.ndarray:
    """Every caption with a reference set of its image's other captions: float32 [n_captions], NaN for none."""
    fitted = choose([name], MeasuresParams())[name].fit(captions)
    sets = [captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]] for i in captions.owner]
    others = [own[own != c] for c, own in enumerate(sets)]
    kept = np.array([c for c, own in enumerate(others) if len(own)])
    ref_ptr = np.concatenate([[0], np.cumsum([len(others[c]) for c in kept])])
    regrouped = fitted.regrouped(ref_ptr, np.concatenate([others[c] for c in kept]))  # type: ignore[attr-defined]
    out = np.full(captions.n_captions, np.nan, np.float32)
    out[kept] = [regrouped.score(np.array([k]), np.array([c]))[0, 0] for k, c in enumerate(kept)]
    return out


@pytest.mark.parametrize("name", NAMES)
def test_equals_reference_sets_without_the_caption(name: str) -> None:
    found = own_left_out(choose([name], MeasuresParams())[name], CAPTIONS)
    assert found is not None and found.dtype == np.float32
    assert np.isnan(found).any() and not np.isnan(found).all()
    np.testing.assert_allclose(found, against_the_others(CAPTIONS, name), atol=2e-6)


@pytest.mark.parametrize("name", ["cider", "sbert", "people"])
def test_is_what_the_setting_gives(name: str) -> None:
    """The same as `self_reference: left_out` through the whole matrix; the published form has other own values."""
    captions = make_captions(random_sets(9, seed=4, least=2))
    both = {"self_reference": "left_out"}
    params = MeasuresParams.model_validate({"cider": both, "sbert": both, "scene_graph": both})
    own = (captions.owner, np.arange(captions.n_captions))
    matrix = choose([name], params)[name].fit(captions).score(np.arange(9))
    found = own_left_out(choose([name], MeasuresParams())[name], captions)
    np.testing.assert_allclose(found, matrix[own], atol=1e-6)  # of a mixture the matrix is summed in float32
    published = choose([name], MeasuresParams())[name].fit(captions).score(np.arange(9))
    assert (found < published[own]).all()


def test_an_imported_matrix_has_none(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.zeros((12, CAPTIONS.n_captions), np.float32))
    mixtures = {"mine": {"given": 0.5, "rouge_l": 0.5}}
    params = MeasuresParams(imported={"given": str(tmp_path / "m.npy")}, mixtures=mixtures)
    for measure in choose(["given", "mine"], params).values():
        assert own_left_out(measure, CAPTIONS) is None
