"""The pictures of images, for measures that look at them."""

from __future__ import annotations

from capgrade.pictures.listing import list_pictures, match_pictures, pictures_digest
from capgrade.pictures.picture import Picture
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.hub import hub_revision


def pictures_of(captions: Captions, source: str) -> list[Picture]:
    """The picture of each image, by `match_images`. InputError, which names the first images that
    have none."""
    listing = list_pictures(source)
    match = match_pictures(captions.image_files, listing, source)
    if match.missing:
        why = listing.reasons(
            {image_id: captions.image_files[image_id] for image_id in match.missing}
        )
        reason_of_first = "".join(
            f"; {image_id!r}: {reason}" for image_id, reason in list(why.items())[:1]
        )
        remedy = "give a picture of each image, named by its id or image_file, or drop these images"
        raise InputError(f"{match.lines()[0]}{reason_of_first}", file=source, remedy=remedy)
    return [listing[match.numbers[image_id]] for image_id in captions.image_ids]


def digest_of_pictures(source: str) -> str:
    """The digest of their content; of a dataset of the hub its name and commit."""
    return pictures_digest(source) or f"{source} {hub_revision(source, 'dataset')}"
