"""Files of carriage returns alone, empty ones and headers alone: one clear error from readers of judgements."""

import pytest

from capgrade.agreement.judgement_files import read_judgements
from capgrade.schemas.errors import InputError
from tests.conftest import make_captions

JUDGED = (
    "image_id,caption_id,score\ni0,i0#0,3\ni1,i1#0,4\n",
    "image_id,caption_id,score,rater\ni0,i0#0,3,x\n",
    "caption,image,agg_score\nCOCO_val2014:sentid:1,COCO_val2014_00000000000a.jpg,3\n",
    "i0\ti0#0\t1\t3\t0\ni1\ti1#0\t0\t0\t3\n",
)


def test_judgements(tmp_path):
    captions, path = make_captions([["a dog runs"], ["a cat sits"]]), tmp_path / "judged"
    for text in JUDGED:
        found = {text.replace("\n", "\r"): "carriage returns alone", "": "no header"}
        if "image" in text:
            found[text.split("\n")[0] + "\n"] = "a header alone"
        for given, said in found.items():
            path.write_text(given, newline="")
            with pytest.raises(InputError, match=said):
                read_judgements(path, captions)
    path.write_text("\ufeff" + JUDGED[0].replace("\n", "\r\n"), newline="", encoding="utf-8")
    assert read_judgements(path, captions).score.tolist() == [3, 4], "Excel's mark of UTF-8 and line ends are read"
