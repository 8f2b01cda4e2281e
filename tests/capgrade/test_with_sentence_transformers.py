"""The evaluator inside of sentence-transformers, batches of its sampler, and its trainers."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import LambdaLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import mine_hard_negatives
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.utils.data import BatchSampler
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

import capgrade
from capgrade import Labels, evaluate
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import CapgradeWarning
from capgrade.with_sentence_transformers import (
    GradedEvaluator,
    GradedRankingLoss,
    accepted_apart,
    without_accepted,
)

TRAINING = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "learning_rate": 0.1,
    "report_to": "none",
}


@pytest.fixture(scope="module")
def labels(dataset: Path) -> Labels:
    return capgrade.exact(Labels.load(dataset), "rouge_l")


@pytest.fixture
def model(labels: Labels) -> SentenceTransformer:
    """Random vectors of words."""
    words = sorted({word for text in labels.texts for word in text.split()})
    tokenizer = Tokenizer(
        WordLevel({word: k for k, word in enumerate(["?", *words])}, unk_token="?")
    )
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")


@pytest.fixture
def first(labels: Labels) -> list[str]:
    """Each image's first caption, in place of a picture."""
    return [labels.texts[list(labels.owner).index(row)] for row in range(len(labels.image_ids))]


def test_it_evaluates_both_directions(labels, model, first):
    found = GradedEvaluator(labels, first, name="scenes")(model)
    scores = model.similarity(model.encode(first), model.encode(labels.texts)).numpy()
    wanted = evaluate(scores, labels, ["ndcg@10", "kendall_tau_b", "asp"], intervals=None).scored
    means = {
        f"scenes_{way}_{name}": mean for way, of in wanted.items() for name, mean in of.mean.items()
    }
    assert found == pytest.approx(means, abs=1e-6)


def test_what_does_not_fit_is_refused(labels, dataset, model, first):
    with pytest.raises(InputError, match="11 images for labels of 12 -> give one for each row"):
        GradedEvaluator(labels, first[:-1])
    with pytest.raises(InputError, match="metrics \\['recall@1'\\] -> give graded ones"):
        GradedEvaluator(labels, first, metrics=["recall@1"])
    with pytest.raises(InputError, match="'kendall_tau_b' needs the relevance of every pair"):
        GradedEvaluator(Labels.load(dataset), first, measure="cider")(model)


def options(**more) -> dict:
    return {
        "batch_size": 4,
        "drop_last": True,
        "valid_label_columns": [],
        "generator": torch.Generator(),
        **more,
    }


@pytest.mark.parametrize("queries", ["images", "captions"])
@pytest.mark.parametrize("k", [0, 2])
def test_no_batch_has_what_the_labels_accept(labels, queries, k):
    negatives = labels.negatives(k, accepted_below=0.7, queries=queries)
    sampler = accepted_apart(negatives)(range(60), **options(drop_last=False))
    batches = list(sampler)
    assert sorted(row for batch in batches for row in batch) == list(range(60)) and len(
        sampler
    ) == len(batches)
    assert sum(len(batch) == 4 for batch in batches) > 9
    relevance = labels.block(range(12), range(60)).relevance
    apart = 0
    for batch in batches:
        for a, b in product(batch, repeat=2):
            if a != b:
                for document in negatives.documents[b]:
                    anchor = negatives.anchors[a]
                    image, caption = (
                        (anchor, document) if queries == "images" else (document, anchor)
                    )
                    assert relevance[image, caption] < 0.7 and labels.owner[caption] != image
                    apart += 1
    assert apart
    sampler.set_epoch(1)
    assert list(sampler) != batches
    assert list(accepted_apart(negatives)(range(60), **options(drop_last=False))) == batches


def test_batches_that_cannot_be_made_are_refused(labels, dataset):
    negatives = labels.negatives(0, accepted_below=0.5)
    with pytest.raises(InputError, match="a dataset of 59 rows, and 60 pairs"):
        accepted_apart(negatives)(range(59), **options())
    sampled = Labels.load(dataset).negatives(0, accepted_below=0.5, measure="rouge_l")
    with pytest.raises(InputError, match="no batch of 12 rows: the labels keep all but"):
        len(accepted_apart(sampled)(range(60), **options(batch_size=12)))


def test_their_trainer_takes_tuples_and_batches_and_keeps_the_checkpoint_that_it_says_is_best(
    labels, model, first, tmp_path
):
    negatives = labels.negatives(2, accepted_below=0.7)
    evaluator = GradedEvaluator(labels, first, metrics=["asp"])
    best = {"metric_for_best_model": "eval_t2i_asp", "load_best_model_at_end": True}
    steps = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    given = SentenceTransformerTrainingArguments(
        str(tmp_path), batch_sampler=accepted_apart(negatives), **TRAINING, **best, **steps
    )
    rows = Dataset.from_dict(negatives.columns(images=first))
    before, vectors = evaluator(model)["t2i_asp"], model.encode(labels.texts)
    trainer = SentenceTransformerTrainer(
        model,
        given,
        train_dataset=rows,
        loss=MultipleNegativesRankingLoss(model),
        evaluator=evaluator,
    )
    assert isinstance(trainer.get_train_dataloader().batch_sampler, BatchSampler)
    assert trainer.train().global_step == 2
    assert np.abs(model.encode(labels.texts) - vectors).max() > 0.01
    logged = [line["eval_t2i_asp"] for line in trainer.state.log_history if "eval_t2i_asp" in line]
    assert len(logged) == 2 and trainer.state.best_metric == max(logged) != before
    assert evaluator(model)["t2i_asp"] == pytest.approx(max(logged), abs=1e-9)


def test_their_cross_encoder_learns_grades_of_lists(labels, model, first, tmp_path):
    """LambdaLoss reads whole lists and their grades."""
    negatives = labels.negatives(2, accepted_below=0.7)
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    words |= {
        word: k
        for k, word in enumerate(sorted({w for text in labels.texts for w in text.split()}), 4)
    }
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    BertForSequenceClassification(
        BertConfig(vocab_size=len(words), num_labels=1, **size)
    ).save_pretrained(tmp_path)
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    encoder = CrossEncoder(str(tmp_path), device="cpu")
    given = CrossEncoderTrainingArguments(
        str(tmp_path / "run"),
        save_strategy="no",
        batch_sampler=accepted_apart(negatives),
        **TRAINING,
    )
    rows = Dataset.from_dict(negatives.columns("labeled-list", first))
    pairs = [(rows[0]["anchor"], document) for document in rows[0]["positive"]]
    before = encoder.predict(pairs)
    trainer = CrossEncoderTrainer(encoder, given, train_dataset=rows, loss=LambdaLoss(encoder))
    assert trainer.train().global_step == 2
    assert np.abs(encoder.predict(pairs) - before).max() > 0


@pytest.mark.parametrize("form", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
def test_what_they_mine_is_left_without_what_the_labels_accept(labels, model, first, form):
    """Against a plain look at each pair, by their own miner."""
    pairs = Dataset.from_dict(labels.negatives(0, accepted_below=0.5).columns(images=first))
    mined = mine_hard_negatives(
        pairs, model, num_negatives=3, output_format=form, verbose=False, corpus=labels.texts
    )
    value = labels.block(range(len(first)), range(labels.n_captions)).relevance

    def accepts(anchor: str, text: str) -> bool:
        rows = [row for row, other in enumerate(first) if other == anchor]
        columns = [column for column, other in enumerate(labels.texts) if other == text]
        return any(
            labels.owner[c] == r or value[r, c] >= np.float32(0.4) for r in rows for c in columns
        )

    with pytest.warns(CapgradeWarning, match="are left out: the labels accept a negative"):
        found = without_accepted(mined, labels, accepted_below=0.4, images=first)
    assert found.column_names == mined.column_names
    if form == "labeled-list":
        for before, after in zip(mined, found, strict=True):
            kept = [
                (text, label)
                for text, label in zip(before["positive"], before["labels"], strict=True)
                if label == 1 or not accepts(before["anchor"], text)
            ]
            assert list(zip(after["positive"], after["labels"], strict=True)) == kept
        return
    names = [name for name in mined.column_names if name.startswith("negative")] or ["positive"]
    expected = [
        row
        for row in mined
        if row.get("label") == 1 or not any(accepts(row["anchor"], row[name]) for name in names)
    ]
    assert list(found) == expected and 0 < len(found) < len(mined)


def test_mined_rows_that_do_not_fit(labels, first):
    with pytest.raises(InputError, match="columns anchor, positive -> give what mine_hard"):
        without_accepted(
            Dataset.from_dict({"anchor": ["a"], "positive": ["b"]}), labels, accepted_below=0.5
        )
    row = {"anchor": [first[0]], "positive": [first[0]], "negative": ["nobody wrote this"]}
    with pytest.raises(InputError, match="no caption 'nobody wrote this'"):
        without_accepted(Dataset.from_dict(row), labels, accepted_below=0.5, images=first)


def features(model: SentenceTransformer, columns: list[list[str]]) -> list[dict]:
    return [model.preprocess(column) for column in columns]


@pytest.mark.parametrize("queries", ["images", "captions"])
def test_a_loss_of_own_documents_alone_is_theirs(labels, model, first, queries):
    """MultipleNegativesRankingLoss, where no two rows belong to one image."""
    pairs = labels.negatives(0, accepted_below=0.4, queries=queries)
    columns = pairs.columns(images=first, rows=True)
    image = pairs.anchors if queries == "images" else pairs.documents[:, 0]
    rows = np.unique(image, return_index=True)[1][:6].tolist()
    label = torch.tensor([columns["label"][k] for k in rows])
    batch = features(model, [[columns[n][k] for k in rows] for n in ("anchor", "positive")])
    theirs = MultipleNegativesRankingLoss(model)(batch, None)
    ours = GradedRankingLoss(model, labels, queries=queries)(batch, label)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-5)
    graded = GradedRankingLoss(model, labels, queries=queries, softness=0.1)(batch, label)
    assert float(graded) > 0 and graded.requires_grad


def test_several_positives_share_the_target(labels, model, first):
    """Five captions of an image in a row, against the formula in numpy."""
    images = [0, 3, 4]
    documents = [np.flatnonzero(labels.owner == image) for image in images]
    label = torch.tensor([[i, *own] for i, own in zip(images, documents, strict=True)])
    columns = [[first[i] for i in images]]
    columns += [[labels.texts[own[k]] for own in documents] for k in range(5)]
    loss = GradedRankingLoss(model, labels, accepted_below=0.5)
    found = float(loss(features(model, columns), label))
    vectors = [np.asarray(model.encode(column, normalize_embeddings=True)) for column in columns]
    logits = 20 * vectors[0] @ np.concatenate(vectors[1:]).T
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    rows = np.concatenate([[own[k] for own in documents] for k in range(5)])
    right = labels.block(images, rows).relevance >= np.float32(0.5)
    right |= labels.owner[rows] == np.array(images)[:, None]
    assert found == pytest.approx(
        -(log * right / right.sum(1, keepdims=True)).sum(1).mean(), abs=1e-5
    )
    with pytest.raises(InputError, match="no `label` of as many rows of labels -> take negatives"):
        loss(features(model, columns), label[:, :2])


def test_their_trainer_takes_the_loss_of_labels(labels, model, first, tmp_path):
    negatives = labels.negatives(2, accepted_below=0.7)
    rows = Dataset.from_dict(negatives.columns(images=first, rows=True))
    given = SentenceTransformerTrainingArguments(str(tmp_path), save_strategy="no", **TRAINING)
    before = model.encode(labels.texts)
    loss = GradedRankingLoss(model, labels, softness=0.1)
    trainer = SentenceTransformerTrainer(model, given, train_dataset=rows, loss=loss)
    assert trainer.train().global_step == 2
    assert np.abs(model.encode(labels.texts) - before).max() > 0.01
