"""The cache of embeddings: what names it, what happens when it is damaged or cannot be written, texts that are cut."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import embeddings
from capgrade.schemas import say
from capgrade.schemas.errors import InputError

TEXTS = ["two dogs", "a cat sits", "red ball", "one", "no man"]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(say, "_said", set())


def stored(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.npy"))


def embed(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    return embeddings.embed(texts, embeddings.EMBEDDED, folder)


def _other(path: Path) -> None:
    np.save(path, np.ones((2, 384), np.float32))


def _nan(path: Path) -> None:
    vectors = np.load(path)
    vectors[0, 3] = np.nan
    np.save(path, vectors)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "no header": lambda path: path.write_bytes(b"\x93NUM"),
    "text": lambda path: path.write_text("nothing"),
    "other rows": _other,
    "NaN": _nan,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_chunk_is_encoded_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "CHUNK", 2)
    whole = embed(tmp_path)
    files = stored(tmp_path)
    before = [path.read_bytes() for path in files]
    DAMAGE[kind](files[1])
    encoded: list[str] = []
    encode = embeddings.encode
    monkeypatch.setattr(embeddings, "encode", lambda e, chunk: encoded.extend(chunk) or encode(e, chunk))
    np.testing.assert_array_equal(embed(tmp_path), whole)
    assert len(encoded) == 2
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_cache_that_may_not_be_written_is_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(number, "no", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"cache.* cannot be written .* -> set CAPGRADE_CACHE"):
        embed(tmp_path / "cache")


def test_a_file_where_the_cache_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(InputError, match="set CAPGRADE_CACHE"):
        embed(tmp_path / "cache")


def test_what_changes_embeddings_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instruction set, a switch of oneDNN's or MKL's, the processor, a GPU in its place, a library's version."""
    import torch

    names = [embeddings.cache_name(TEXTS, embeddings.EMBEDDED)]
    assert torch.__version__.split("+")[0] in " ".join(embeddings.arithmetic())
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SOMETHING")
    names.append(embeddings.cache_name(TEXTS, embeddings.EMBEDDED))
    for name in ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR"):
        monkeypatch.setenv(name, "AVX2")
        names.append(embeddings.cache_name(TEXTS, embeddings.EMBEDDED))
    monkeypatch.setattr(embeddings, "_processor", lambda: "another")
    names.append(embeddings.cache_name(TEXTS, embeddings.EMBEDDED))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: "NVIDIA Something")
    assert embeddings.cache_name(TEXTS, embeddings.EMBEDDED) == names[-1]  # a GPU that is not asked for
    names.append(embeddings.cache_name(TEXTS, embeddings.EMBEDDED, "cuda"))
    monkeypatch.setattr(embeddings, "version", lambda name: "0.0")
    names.append(embeddings.cache_name(TEXTS, embeddings.EMBEDDED))
    assert len(set(names)) == 7


def test_a_hub_model_is_known_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache's layout: models--OWNER--NAME with refs/main and snapshots/COMMIT."""
    import huggingface_hub

    folder = tmp_path / "models--me--model"
    names = []
    for commit in ("1" * 40, "2" * 40):
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "modules.json").write_text("[]")
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
        look = huggingface_hub.file_download.try_to_load_from_cache
        monkeypatch.setattr(
            huggingface_hub, "try_to_load_from_cache", lambda m, f, look=look: look(m, f, cache_dir=tmp_path)
        )
        names.append(embeddings.cache_name(TEXTS, "me/model"))
    assert len(set(names)) == 2


def test_texts_beyond_the_limit_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two texts of 260 words that differ at their ends are one to the encoder; said again when read from the cache."""
    long = ["dog " * 260 + end for end in ("beach", "street")]
    first = embed(tmp_path, [*long, "a dog"])
    np.testing.assert_allclose(first[0] @ first[1], 1, atol=1e-5)
    said = "warning: 2 texts are longer than the 256 word pieces that the encoder reads"
    assert said in capsys.readouterr().err
    say._said.clear()
    embed(tmp_path, [*long, "a dog"])
    assert said in capsys.readouterr().err


def test_texts_within_the_limit_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of many letters, of as many pieces as the encoder reads."""
    embed(tmp_path, ["dog " * 254, "extraordinarily " * 60])
    assert "warning" not in capsys.readouterr().err
