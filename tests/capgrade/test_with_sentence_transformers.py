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
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.utils.data import BatchSampler
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from capgrade import Labels, evaluate
from capgrade.schemas.errors import InputError
from capgrade.with_sentence_transformers import GradedEvaluator, accepted_apart

TRAINING = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "learning_rate": 0.1,
    "report_to": "none",
}


@pytest.fixture(scope="module")
def labels(dataset: Path) -> Labels:
    return Labels.load(dataset).exact("rouge_l")


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
    rows = Dataset.from_dict(negatives.tuples(images=first))
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
    rows = Dataset.from_dict(negatives.lists(images=first))
    pairs = [(rows[0]["query"], document) for document in rows[0]["documents"]]
    before = encoder.predict(pairs)
    trainer = CrossEncoderTrainer(encoder, given, train_dataset=rows, loss=LambdaLoss(encoder))
    assert trainer.train().global_step == 2
    assert np.abs(encoder.predict(pairs) - before).max() > 0
