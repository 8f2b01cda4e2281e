"""Features made from captions: `regions` reads them, and images of like words have like
features."""

from pathlib import Path

import numpy as np

from capgrade.pipelines.features.convert import import_regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.regions import RegionStore
from research.studies.made_features import REGIONS, WIDTH, make
from tests.conftest import caption_table, write_captions_folder

SETS = [["a red dog"], ["red dog a"], ["two tall ships"]]


def test_they_are_imported_and_follow_the_words(tmp_path: Path) -> None:
    captions = write_captions_folder(
        tmp_path / "c", [caption_table(SETS, "train"), caption_table(SETS[:1], "test", "t")]
    )
    assert make(captions, tmp_path / "f") == {"train": 3, "test": 1}
    files = tuple(str(tmp_path / "f" / f"{split}_ims.npy") for split in ("train", "test"))
    import_regions(tmp_path / "r", RegionsParams(format="scan", features=files))
    store = RegionStore(tmp_path / "r")
    assert len(store) == 4 and store["i0"].features.shape == (REGIONS, WIDTH)
    of = [store[f"i{k}"].features.astype(np.float64).mean(axis=0) for k in range(3)]
    cosine = np.corrcoef(np.stack(of))
    assert cosine[0, 1] > 0.8 > 0.3 > abs(cosine[0, 2])
