"""Graded losses beside open_clip's own, on one and two processes, and in its training loop."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from capgrade import Labels
from capgrade.losses import GradedClipLoss, GradedSigLipLoss
from tests.conftest import call, caption_table, on_processes, random_sets, write_captions_folder

PAIRS = 8
# Each process has its share of the pairs. Gradients are the mean over processes, as
# DistributedDataParallel takes it.
SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
import tests.peers.conftest
import open_clip
from capgrade import Labels
from capgrade.losses import GradedClipLoss, GradedSigLipLoss
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if world > 1:
    dist.init_process_group("gloo")
labels = Labels.load(sys.argv[1] + "/relevance", captions=sys.argv[1] + "/captions")
ours = {"rank": rank, "world_size": world}
keys = [5, 1, 3, 0, 2, 7, 4, 6]
mine = slice(rank * 8 // world, (rank + 1) * 8 // world)
found = {}
def mean_of(x):
    if world > 1:
        dist.all_reduce(x)
    return x / world
for name, loss in {
    "clip": open_clip.loss.ClipLoss(local_loss=True, gather_with_grad=True, cache_labels=True, **ours),
    "clip_whole": open_clip.loss.ClipLoss(gather_with_grad=True, **ours),
    "graded_clip": GradedClipLoss(labels, softness=0.05, local_loss=True, gather_with_grad=True, **ours),
    "siglip": open_clip.loss.SigLipLoss(**ours),
    "graded_siglip": GradedSigLipLoss(labels, dist_impl=None, **ours),
}.items():
    vectors = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))[:, mine].requires_grad_()
    scale, bias = torch.tensor(7.0, requires_grad=True), torch.tensor(-3.0, requires_grad=True)
    images, texts = torch.nn.functional.normalize(vectors, dim=2)
    given = {"image_features": images, "text_features": texts, "logit_scale": scale, "logit_bias": bias}
    if "graded" in name:
        given["keys"] = keys[mine]
    value = loss(**given, output_dict=True)["contrastive_loss"]
    value.backward()
    # A vector of one process gets gradients from the losses of all: they are there already, as `gather` sums them.
    found[name] = {
        "loss": mean_of(value.detach().clone()).item(),
        "vectors": (vectors.grad / world).tolist(),
        "scale": mean_of(scale.grad).item(),
    }
open(sys.argv[1] + f"/{world}-{rank}.json", "w").write(json.dumps(found))
if world > 1:
    dist.destroy_process_group()
"""


def labels_of(folder: Path, matrix: np.ndarray) -> Labels:
    """A matrix of relevance, images by captions, as dense labels of images with one caption
    each."""
    sets = random_sets(len(matrix), seed=3, least=1, most=1)
    write_captions_folder(folder / "captions", [caption_table(sets)])
    np.save(folder / "matrix.npy", matrix.astype(np.float32))
    made = (
        f"--captions {folder}/captions --measures mine --set"
        f" measures.imported.mine={folder}/matrix.npy"
    )
    assert call("relevance", *made.split(), "--out", folder / "relevance") == 0
    return Labels.load(folder / "relevance", captions=folder / "captions")


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("identity")
    labels_of(folder, np.eye(PAIRS))
    return folder


@pytest.mark.parametrize("world", [1, 2])
def test_of_identity_labels_the_losses_are_those_of_open_clip(identity: Path, world: int) -> None:
    for said in on_processes(world, SCRIPT, identity):
        for ours, theirs in (
            ("graded_clip", "clip"),
            ("graded_clip", "clip_whole"),
            ("graded_siglip", "siglip"),
        ):
            off = abs(said[ours]["loss"] - said[theirs]["loss"])
            print(
                f"{world} processes, {ours}: {said[ours]['loss']:.7f}, {theirs}"
                f" {said[theirs]['loss']:.7f}"
            )
            assert off < 1e-6
            assert np.allclose(said[ours]["vectors"], said[theirs]["vectors"], rtol=0, atol=1e-6), (
                ours,
                theirs,
            )
            assert said[ours]["scale"] == pytest.approx(said[theirs]["scale"], abs=1e-6), (
                ours,
                theirs,
            )
        assert np.abs(said["clip"]["vectors"]).max() > 0.01


TOWERS = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "patch_size": 8, "head_width": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
}


def learn(
    model: torch.nn.Module,
    data: dict[str, SimpleNamespace],
    loss: GradedClipLoss,
    optimizer: torch.optim.Optimizer,
    args: Namespace,
) -> None:
    """An epoch of the loop of this open_clip, 3 or 4."""
    import open_clip
    from open_clip_train import train

    if not hasattr(open_clip, "CLIPTask"):
        train.train_one_epoch(model, data, loss, 0, optimizer, None, None, None, args)
        return
    kind = open_clip.SigLIPTask if isinstance(loss, GradedSigLipLoss) else open_clip.CLIPTask
    state = train.TrainState(kind(model, loss=loss), optimizer)
    train.train_one_epoch(state, data, args)


@pytest.mark.parametrize("kind", [GradedClipLoss, GradedSigLipLoss])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_model_trains_two_steps_in_open_clips_loop(
    kind: type, accumulated: int, tmp_path: Path
) -> None:
    import open_clip

    random = np.random.default_rng(0)
    labels = labels_of(tmp_path, np.maximum(np.eye(PAIRS), random.random((PAIRS, PAIRS)) * 0.9))
    torch.manual_seed(0)
    model = open_clip.CLIP(
        **TOWERS,
        output_dict=True,
        **({"init_logit_bias": -10.0} if kind is GradedSigLipLoss else {}),
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images, texts = torch.rand(PAIRS, 3, 16, 16), torch.randint(1, 64, (PAIRS, 8))
    dataset: list = list(zip(images, texts, labels.caption_ids, strict=True))
    if hasattr(open_clip, "CLIPTask"):
        dataset = [dict(zip(("image", "text", "keys"), pair, strict=True)) for pair in dataset]
    batch = PAIRS // 2 // accumulated
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    loader = torch.utils.data.DataLoader(dataset, batch, sampler=order)
    loader.num_batches, loader.num_samples = len(loader), PAIRS
    options = {"softness": 0.2} if kind is GradedClipLoss else {}
    loss = kind(labels, "mine", **options)
    losses, rows = [], []

    def keep(module: torch.nn.Module, given: tuple, value: dict[str, torch.Tensor]) -> None:
        losses.append(value["contrastive_loss"].item())
        rows.append(loss._rows.tolist())

    loss.register_forward_hook(keep)
    data = {"train": SimpleNamespace(dataloader=loss.keyed(loader), set_epoch=lambda epoch: None)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    args = Namespace(
        device="cpu",
        precision="fp32",
        distill=False,
        distributed=False,
        accum_freq=accumulated,
        skip_scheduler=True,
        grad_clip_norm=None,
        rank=0,
        local_rank=0,
        log_local=False,
        log_every_n_steps=1,
        batch_size=batch,
        world_size=1,
        wandb=False,
        horovod=False,
    )
    learn(model, data, loss, optimizer, args)
    assert (
        rows == [order[:4]] * accumulated + [order[4:]] * accumulated and np.isfinite(losses).all()
    )
    moved = [
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    ]
    assert "visual.proj" in moved and "text_projection" in moved
