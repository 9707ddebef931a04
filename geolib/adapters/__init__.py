"""Encodings inside other libraries' models: timm's vision transformers, Hugging Face's language models.

``use_encoding(model, encoding)`` changes one model, keeps its weights and their names, and nothing else of the process.
Neither library is needed to import this module.
"""

from typing import Any

from geolib._checks import require
from geolib.adapters.language import HeldTokens, OnTheWay, in_language_model, language_part
from geolib.adapters.vision import HeldAttention, HeldPositions, Positions, in_vision_model
from geolib.attention import Encoding
from geolib.encodings import check_encoding

__all__ = ["HeldAttention", "HeldPositions", "HeldTokens", "OnTheWay", "Positions", "use_encoding"]


def use_encoding(model: Any, encoding: Encoding, positions: Positions = None) -> Any:
    """The model itself, its attention with the encoding in it; called again, with another one.

    Parameters
    ----------
    model : Module
        A ``VisionTransformer`` of timm: norms of queries and keys, gates, dropouts and masks stay. Or a language model
        of Hugging Face's library, of a kind in ``geolib.encodings.KINDS`` (Llama and its kin): the encoding stands in
        place of its rotation, at its ``position_ids``; ``RoPE.from_config(model.config)`` changes nothing.
    encoding : Encoding
        For head_dim and heads of the model, which it shares from here on. Pairs of Hugging Face's checkpoints are
        half-split: ``HalfSplit``.
    positions : Tensor, (tokens, axes), a function of rows and columns, or None
        For timm: of the patches; a function makes them for each picture, also for grids of other sizes. Rows and
        columns of the picture's patches when None. Whole numbers keep their digits.

    Raises
    ------
    ValueError
        For a model of another kind, an attention of another kind inside, and an encoding that does not fit the model,
        adds to embeddings (these models have their own) or, in a language model, has gates that read the layer's input.
        In a pass: for positions of other samples, patches on another grid than those of ``positions``.

    Warns
    -----
    UserWarning
        Where a language model's own encoding is another one: it has learned to read by that, and must learn anew.

    Notes
    -----
    The encoding is placed once a pass, so activation checkpointing of both kinds is exact. An encoding that turns pairs
    as a language model's own rotation does takes its place, in the model's dtype. With any other, keys stay in the
    cache as they are, with their positions, and are carried in every step: gates, attenuations and heads of their own
    work, in caches that grow, are of fixed size or keep a window, but in none that rounds keys.

    >>> use_encoding(torch.nn.Linear(2, 2), Encoding())
    Traceback (most recent call last):
    ValueError: model: got Linear; timm's VisionTransformer, or a language model of transformers ...
    """
    check_encoding(encoding, "encoding")
    part = language_part(model)
    if part is None:
        in_vision_model(model, encoding, positions)
    else:
        require(positions is None, "positions", type(positions).__name__, "None: a language model has position_ids")
        in_language_model(part, encoding)
    return model
