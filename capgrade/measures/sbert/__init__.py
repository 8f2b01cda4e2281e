"""Sentence-BERT cosine of every caption with every image's reference set.

An embedding has a part that its image decides and a part that its writer chose. `SbertShared` tells
the two apart by all captions together, without any judgement: B is the covariance of images, W that
of captions of one image. The best linear estimate of the image's part is B (B + W)^-1 (e - mean).
Its matrix square root, half way between the embedding and that estimate, agrees best with people
(docs/measures.md). The captions may be those of another corpus, `shared_from`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from capgrade.measures.base import OVER_REFERENCES, Measure, Scorer
from capgrade.pretrained import fingerprint
from capgrade.schemas.block import MeasureDevice, ParamsBlock, SelfReference
from capgrade.schemas.natures import How, ModelAt, WhereOrName

if TYPE_CHECKING:
    from capgrade.measures.base import Scored
    from capgrade.measures.corpus import Corpus
    from capgrade.measures.sbert.fitted import FittedSbert
    from capgrade.measures.sbert.shared import SharedMap
    from capgrade.schemas.captions import Captions


class SbertParams(ParamsBlock):
    """Sentence-BERT: the model (embedded name, hub id or folder), how references are combined."""

    model: ModelAt = "all-MiniLM-L6-v2"
    references: Literal["max", "mean", "first"] = "max"
    self_reference: SelfReference = "included"
    shared_from: WhereOrName | None = None
    """captions that tell what those of one image share: coco (its 5K test images), or a captions
    FOLDER or FOLDER#SPLIT; None: those that are scored"""
    device: How[MeasureDevice] = "cpu"
    """of the encoder; a GPU's embeddings differ in the last bits"""


class Sbert(Measure[SbertParams]):
    """Cosine of Sentence-BERT embeddings, -1..1, over the references by `max`, `mean` or `first`.

    `first` is the pseudo label of BCLS (one caption stands for the image); `max` agrees best with
    people on Crisscrossed Captions (docs/measures.md).
    """

    name, parameters, block, modules = "sbert", SbertParams, "sbert", ("sentence_transformers",)
    low, high = -1.0, 1.0

    def fit(self, captions: Captions) -> FittedSbert:
        """Embed the raw captions (not the tokens).

        InputError when the model cannot be loaded, or `left_out` leaves an image without
        references.
        """
        from capgrade.measures.sbert.fitted import fit

        return fit(captions, self.params)

    def meaning(self) -> str:
        model, over = self.params.model, OVER_REFERENCES[self.params.references]
        return f"cosine of Sentence-BERT embeddings (`{model}`), -1..1: {over}"

    def files(self) -> dict[str, str]:
        return {"measures.sbert.model": fingerprint(self.params.model)}

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """The largest cosine of each candidate with a reference."""
        from capgrade.measures.base import mean_score
        from capgrade.measures.corpus import own_scores

        return {self.name: mean_score(own_scores(self.fit(corpus.table), corpus))}

    def unseen(self, fitted: FittedSbert, captions: Captions) -> Scorer | None:
        from capgrade.measures.sbert.fitted import UnseenSbert

        return UnseenSbert(self, fitted)


class SbertMean(Sbert):
    """Cosine of Sentence-BERT embeddings, -1..1: the mean over an image's references."""

    name, fixed = "sbert_mean", {"references": "mean"}


class SbertShared(Sbert):
    """Cosine, -1..1, of Sentence-BERT embeddings mapped to what captions of one image share.

    A value depends on all fitted captions, as they give the mean and the two covariances; with
    `shared_from` on those that it names, and then single captions have values, too.
    """

    name, fixed = "sbert_shared", {"references": "max"}

    def fit(self, captions: Captions) -> FittedSbert:
        """Map what `Sbert.fit` embeds. InputError as it, `SharedMap.of` and `SharedMap.read`."""
        from capgrade.measures.sbert.shared import SharedMap, map_embeddings

        plain = super().fit(captions)
        if (shared := self.shared) is None:
            shared = SharedMap.of(plain.embeddings[captions.refs], captions.ref_ptr)
        return map_embeddings(plain, shared)

    @property
    def shared(self) -> SharedMap | None:
        """The map of `shared_from`; None where it is learnt from what is scored."""
        from capgrade.measures.sbert.shared import SharedMap

        source = self.params.shared_from
        return None if source is None else SharedMap.read(source, self.params.model)

    def meaning(self) -> str:
        model, over = self.params.model, OVER_REFERENCES[self.params.references]
        source = self.params.shared_from
        corpus = f"of `{source}`" if source else "in this split"
        what = f"mapped to what captions of one image share {corpus}"
        return f"cosine of Sentence-BERT embeddings (`{model}`), {what}, -1..1: {over}"

    def files(self) -> dict[str, str]:
        if (source := self.params.shared_from) is None:
            return super().files()
        from capgrade.measures.sbert.shared import map_digest

        return {**super().files(), "measures.sbert.shared_from": map_digest(source)}

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """As `Sbert.of_corpus`, of mapped embeddings. Without `shared_from` the references of all
        candidates give the map, each set once."""
        from capgrade.measures.base import mean_score
        from capgrade.measures.corpus import own_scores
        from capgrade.measures.sbert.shared import SharedMap, map_embeddings

        plain, pairs = super().fit(corpus.table), corpus.candidates.pairs
        if (shared := self.shared) is None:
            shared = SharedMap.of(plain.embeddings[pairs.refs], pairs.ref_ptr)
        return {self.name: mean_score(own_scores(map_embeddings(plain, shared), corpus))}

    @property
    def depends_on_corpus(self) -> bool:
        return self.params.shared_from is None

    def unseen(self, fitted: FittedSbert, captions: Captions) -> Scorer | None:
        from capgrade.measures.sbert.fitted import UnseenSbert

        shared = self.shared  # one that was learnt from the captions is not kept
        return None if shared is None else UnseenSbert(self, fitted, shared.apply)


class SbertSharedMean(SbertShared):
    """As `sbert_shared`, with the mean over an image's references."""

    name, fixed = "sbert_shared_mean", {"references": "mean"}
