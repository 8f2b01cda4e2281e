"""The pictures of a published dataset, found and looked through before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from capgrade.pictures.listing import ImageColumns, list_pictures, match_pictures, pictures_digest
from capgrade.pictures.picture import Picture
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, first_names
from capgrade.schemas.progress import progress
from capgrade.schemas.say import tell

_NAMED = 3  # images named in one message


@dataclass(frozen=True)
class Embedded:
    """The pictures of each split, by image id in the captions' order; and the digest of all."""

    pictures: Sequence[Mapping[str, Picture]]
    digest: str | None
    left_out: int = 0  # images without a readable picture

    @property
    def count(self) -> int:
        return sum(map(len, self.pictures))


def pictures_of_splits(splits: Sequence[Captions], params: PublishParams) -> Embedded | None:
    """The pictures of all images, each decoded once to see that it is whole; None where none are
    asked for. InputError for one that is missing or damaged, unless `unreadable` is skip, and where
    a split has none.
    """
    if params.images is None:
        return None
    columns = ImageColumns(params.image_column, params.image_id, "--image-column")
    there, found, without = list_pictures(params.images, columns), [], dict[str, str]()
    with progress("reading pictures", sum(one.n_images for one in splits)) as advance:
        for captions in splits:
            match = match_pictures(captions.image_files, there, params.images)
            why = there.reasons({one: captions.image_files[one] for one in match.missing})
            without |= {one: why.get(one, "no picture") for one in match.missing}
            whole = {}
            for image_id, k in match.numbers.items():
                picture = replace(there[k], image_id=image_id)
                try:
                    picture.decode()
                    whole[image_id] = picture
                except InputError as error:
                    without[image_id] = error.problem
                advance(1)
            if not whole:
                problem = f"a picture of none of the images of split '{captions.split}'"
                remedy = "give the pictures of these captions, named by image id or image_file"
                raise InputError(problem, file=params.images, remedy=remedy)
            found.append({one: whole[one] for one in captions.image_ids if one in whole})
    if without:
        named = first_names([f"{one} ({reason})" for one, reason in without.items()], _NAMED)
        problem = f"no picture of {len(without):,} images: {named}"
        if params.unreadable == "fail":
            remedy = "give them, or leave such images' pictures out: --unreadable skip"
            raise InputError(problem, file=params.images, remedy=remedy)
        tell(f"{params.images}: {problem}; left out")
    return Embedded(found, pictures_digest(params.images, columns), len(without))
