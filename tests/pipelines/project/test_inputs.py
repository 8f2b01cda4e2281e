"""What the stages of a pipeline are made of, as DVC compares it."""

from pathlib import Path

from capgrade.params import Params, load_params
from capgrade.pipelines.project import inputs
from capgrade.pipelines.project.inputs import walk_files, write_inputs
from tests.conftest import contents


def params(*sets: str) -> Params:
    return load_params(None, sets)


def test_files_are_known_by_their_content_and_pictures_by_name_and_size(tmp_path: Path) -> None:
    captions, pictures = tmp_path / "c.csv", tmp_path / "pictures" / "a"
    pictures.mkdir(parents=True)
    captions.write_text("image_id,caption\n1,a dog\n")
    (pictures / "1.jpg").write_bytes(b"12345")
    given = [
        "captions.source=csv",
        f"captions.input={captions}",
        f"regions.images={tmp_path / 'pictures'}",
    ]
    found = write_inputs(params(*given), tmp_path / "data" / "inputs")
    assert found["images"] == {str(tmp_path / "pictures"): {"a/1.jpg": 5}}
    before = contents(tmp_path / "data" / "inputs")
    captions.touch()
    (pictures / "1.jpg").touch()
    write_inputs(params(*given), tmp_path / "data" / "inputs")
    assert contents(tmp_path / "data" / "inputs") == before
    captions.write_text("image_id,caption\n1,a cat\n")
    (pictures / "2.jpg").write_bytes(b"1")
    write_inputs(params(*given), tmp_path / "data" / "inputs")
    now = contents(tmp_path / "data" / "inputs")
    assert {name for name in now if now[name] != before[name]} == {"captions.json", "images.json"}


def test_what_the_pipeline_makes_itself_is_left_to_dvc(tmp_path: Path) -> None:
    """It is not there when the pipeline first runs, and would make a stage run again in the
    second."""
    made = tmp_path / "data" / "captions" / "truth.arrow"
    given, out = params(f"agree.judgements={made}"), tmp_path / "data" / "inputs"
    before = write_inputs(given, out)
    made.parent.mkdir(parents=True)
    made.write_bytes(b"1")
    assert write_inputs(given, out) == before


def test_a_dataset_of_the_hub_is_known_by_its_name(tmp_path: Path) -> None:
    given = params("captions.source=hub", "captions.input=nlphuji/flickr30k")
    assert write_inputs(given, tmp_path / "data" / "inputs")["captions"] == {
        "nlphuji/flickr30k": None
    }


def test_the_code_is_one_digest_in_a_checkout_and_its_version_where_it_is_installed(
    tmp_path: Path, monkeypatch
) -> None:
    package = tmp_path / "capgrade"
    (package / "text").mkdir(parents=True)
    (package / "text" / "a.py").write_text("1\n")
    (package / "text" / "notes.md").write_text("1\n")
    monkeypatch.setattr(inputs, "PACKAGE", package)
    assert inputs.checkout_digest() == {}
    (tmp_path / "pyproject.toml").touch()
    before = inputs.checkout_digest()
    (package / "text" / "notes.md").write_text("22\n")
    assert inputs.checkout_digest() == before
    (package / "text" / "a.py").write_text("22\n")
    assert inputs.checkout_digest() != before


def test_links_are_followed_and_do_not_lead_in_circles(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.jpg").write_bytes(b"123")
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "back").symlink_to(folder)
    (folder / ".hidden").write_bytes(b"1")
    (folder / "broken").symlink_to(tmp_path / "nothing")
    assert [(path.relative_to(folder).as_posix(), size) for path, size in walk_files(folder)] == [
        ("link/1.jpg", 3)
    ]
