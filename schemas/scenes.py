"""Tables of the generated world: its images, the truth behind them, and what each caption says."""

import pyarrow as pa

SCENE_IMAGES = pa.schema(
    [
        ("image_id", pa.string()),
        ("split", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("png", pa.binary()),
    ]
)
_RELATIONS = pa.list_(
    pa.struct([("subject", pa.int32()), ("predicate", pa.string()), ("object", pa.int32())])
)
_OBJECTS = pa.list_(
    pa.struct(
        [
            ("kind", pa.string()),
            ("colour", pa.string()),
            ("size", pa.string()),
            ("x0", pa.float32()),
            ("y0", pa.float32()),
            ("x1", pa.float32()),
            ("y1", pa.float32()),
            ("depth", pa.float32()),
            ("visible", pa.float32()),
        ]
    )
)
# A row per image; boxes in pixels, relations between positions in `objects`.
SCENE_TABLE = pa.schema(
    [
        ("image_id", pa.string()),
        ("split", pa.string()),
        ("background", pa.string()),
        ("objects", _OBJECTS),
        ("relations", _RELATIONS),
    ]
)
_MENTIONS = pa.list_(
    pa.struct(
        [
            ("concept", pa.string()),
            ("count", pa.int32()),
            ("colour", pa.string()),
            ("size", pa.string()),
            ("objects", pa.list_(pa.int32())),
        ]
    )
)
_SPANS = pa.list_(
    pa.struct([("start", pa.int32()), ("end", pa.int32()), ("objects", pa.list_(pa.int32()))])
)
# A row per caption; relations between positions in `mentions`, spans over the words of
# caption.split().
MEANINGS = pa.schema(
    [
        ("caption_id", pa.string()),
        ("mentions", _MENTIONS),
        ("relations", _RELATIONS),
        ("background", pa.string()),
        ("spans", _SPANS),
    ]
)
