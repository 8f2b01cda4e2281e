"""What files of Hugging Face datasets are called."""

from capgrade.schemas.dataset_files import path_here, split_of


def test_names_of_files_tell_the_split() -> None:
    names = {
        "test-00000-of-00001.parquet": "test",
        "val.json": "validation",
        "captions.dev.jsonl": "validation",
        "latest.csv": None,
        "train_1.parquet": "train",
        "evaluation.csv": "test",
    }
    assert {name: split_of(name) for name in names} == names


def test_a_path_of_another_machine_is_its_name() -> None:
    assert [path_here(path) for path in ("/home/x/1.jpg", "a/1.jpg", None)] == [
        "1.jpg",
        "a/1.jpg",
        None,
    ]
