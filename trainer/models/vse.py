"""VSE++ (Faghri et al. 2018): the cosine of an image's and a caption's vector."""

from torch.nn.functional import normalize

from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel, upcast
from capgrade.trainer.models.encoders import GruConfig, WordGru, linear, masked_mean


class Vse(RetrievalModel):
    """Image: l2norm(W l2norm(mean of its regions) + b); caption: l2norm(last state of a GRU);
    score: their cosine.

    The paper's image is one global feature of a ResNet-152, so R = 1; several regions are averaged.
    Features have unit length before W (model.py of vsepp, lines 118 and 156).
    """

    def __init__(self, config: GruConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.project = linear(feature_dim, config.embed)
        self.read = WordGru(vocabulary_size, config.word, config.embed, both_ways=False)

    def encode_images(self, images: Images) -> Encoded:
        feature = normalize(masked_mean(images.features, images.mask), dim=-1)
        return Encoded(normalize(upcast(self.project(feature)), dim=-1))

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        return Encoded(normalize(self.read(captions)[1], dim=-1))
