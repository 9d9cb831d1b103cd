"""A model from its files: a folder with config.json and safetensors, one such file or index, or a GGUF file.

Headers only: no tensor data is read. What the header says is held against what the config says, and a
disagreement becomes a note.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.from_config import model_from_config, with_quantiser_file
from planner.model.model import Model
from planner.model.sources.folder import StoredWeights, read_folder, read_index
from planner.model.sources.gguf.config import config_from_gguf
from planner.model.sources.gguf.split import read_gguf_parts
from planner.model.sources.held_types import type_notes
from planner.model.sources.json_file import read_json_object
from planner.model.sources.open_file import explain
from planner.model.sources.safetensors import read_safetensors
from planner.model.sources.stored import StoredTensor, total_bytes
from planner.model.spec import ModelSpec
from planner.model.tensor import Part, Split, Tensor
from planner.model.tensors import draft_tensors, tensors

_CONFIG: Final = "config.json"
# What checkpoints keep that no model counts as a weight: tables, masks, and what is already counted elsewhere.
_BUFFERS: Final = (
    "rotary_emb.inv_freq",
    "masked_bias",
    "position_ids",
    ".attn.bias",
    ".attention.bias",
    "correction_bias",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "exp_probs_b.bias",
)
# Bytes of weights, beside those in 16 bit, that some storage could have: one bit a weight; fp32, drafts, a second head.
_LEAST, _MOST = 0.05, 5
_PACKED: Final = frozenset({"U8", "I8", "I32", "U32", "F4", "F8_E4M3", "F8_E5M2", "F8_E8M0"})


def load_from_files(path: Path, *, assume_family: str | None = None) -> Model:
    """The model that a folder or file holds, with the exact bytes of its tensors.

    Args:
        path: a folder, a .safetensors file, a .safetensors.index.json or a .gguf file.
        assume_family: read the config as this model_type.

    Raises:
        SourceError: the file is not what its name says, is damaged, or lacks its siblings.
        ConfigError, UnsupportedArchitecture: as `model_from_config`.
    """
    path = Path(path)
    if path.name.endswith(".gguf") and not path.is_dir():
        return _from_gguf(path, assume_family)
    if path.is_dir():
        return _from_folder(path, assume_family)
    if path.name.endswith(".safetensors"):
        found = read_safetensors(path)
        weights = StoredWeights(tensors=found, total_bytes=total_bytes(found), files=(path.name,))
    elif path.name.endswith(".index.json"):
        weights = read_index(path)
    else:
        raise SourceError(
            f"{path}: is neither a folder nor a config.json, .safetensors, .safetensors.index.json or .gguf file"
        )
    return _with_config(path.parent, str(path), weights, assume_family)


def _from_folder(folder: Path, assume_family: str | None) -> Model:
    ggufs = _gguf_models(folder)
    if not _exists(folder / _CONFIG) and ggufs:
        if len(ggufs) > 1:
            names = ", ".join(file.name for file in ggufs[:5])
            raise SourceError(f"{folder}: holds several GGUF models; pass one of them: {names}")
        return _from_gguf(ggufs[0], assume_family)
    if not _exists(folder / _CONFIG):
        raise SourceError(f"{folder}: has no config.json; pass a model's folder, its config.json or a .gguf file")
    return _with_config(folder, str(folder), read_folder(folder), assume_family)


def _gguf_models(folder: Path) -> list[Path]:
    """The .gguf files of a folder, of split ones the first part, image projectors left out."""
    try:
        found = sorted(file for file in folder.iterdir() if file.name.endswith(".gguf"))
    except OSError as error:
        raise SourceError(f"{folder}: {explain(error)}") from None
    return [
        file
        for file in found
        if not file.name.startswith("mmproj") and ("-of-" not in file.name or "-00001-of-" in file.name)
    ]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _with_config(folder: Path, name: str, weights: StoredWeights | None, assume_family: str | None) -> Model:
    """The model of the folder's config.json with these weights."""
    config = folder / _CONFIG
    if not _exists(config):
        raise SourceError(
            f"{name}: there is no config.json beside it, and a header alone does not say what model it is"
        )
    values = with_quantiser_file(read_json_object(config), config)
    origin = "config.json and file headers" if weights else "config.json of a folder"
    return _joined(values, weights, name=name, origin=origin, assume_family=assume_family)


def model_of_repository(
    repo_id: str, values: dict[str, object], *, revision: str | None = None, assume_family: str | None = None
) -> Model:
    """The model of a Hub repository's config, with the bytes that its headers state.

    A repository whose headers cannot be had (no safetensors, no answer, no permission) is planned by its config, with
    a note.

    Args:
        values: its config.json.

    Raises:
        ConfigError, UnsupportedArchitecture: as `model_from_config`.
    """
    from planner.model.sources.hub import fetch_weights

    plain = model_from_config(dict(values), name=repo_id, origin="Hub", assume_family=assume_family)
    try:
        weights = fetch_weights(repo_id, revision=revision)
    except SourceError as error:
        plain.notes += (f"weights are the config's, since the headers of the files could not be read: {error}",)
        return plain
    if weights is None:
        return plain
    return _joined(values, weights, name=repo_id, origin="Hub", assume_family=assume_family)


def _joined(
    values: dict[str, object], weights: StoredWeights | None, *, name: str, origin: str, assume_family: str | None
) -> Model:
    """The model of a config, with what its files store."""
    model = model_from_config(
        values,
        name=name,
        origin=origin,
        assume_family=assume_family,
        stored_bytes=weights.total_bytes if weights else None,
        stored=weights.tensors if weights else (),
        notes=weights.notes if weights else (),
    )
    _check_it_can_be(model)
    spec = model.spec
    notes = disagreements(model) + type_notes(model.id, model.stored, spec.dtype, spec.quantization_config)
    model.spec = with_stored_shapes(model)
    vars(model).pop("parameters", None)  # counted again, with the file's shapes
    model.notes += notes
    return model


def _check_it_can_be(model: Model) -> None:
    """The files can hold this model.

    Raises:
        SourceError: whole layers are missing, a matrix of a layer has another shape, or the total is out of all
            proportion to the config's.
    """
    plain = 2 * max(1, model.parameters)
    stored = model.stored_bytes
    if stored is not None and not plain * _LEAST <= stored <= plain * _MOST:
        raise SourceError(
            f"{model.id}: the files state {stored:,} bytes of weights, the config makes {model.parameters:,} weights"
            f" ({plain:,} bytes in 16 bit): these are not one model"
        )
    if not model.stored or any(tensor.dtype in _PACKED or tensor.file.endswith(".gguf") for tensor in model.stored):
        return
    made = {tensor.name: tensor.shape for tensor in tensors(model.spec)}
    held = {tensor.name for tensor in model.stored}
    if not held & set(made):
        return  # another spelling of the names: the number of elements is compared as a whole
    prefix, count = f"{model.spec.layer_prefix}.", len(model.spec.layers)
    present = {name[len(prefix) :].partition(".")[0] for name in held & set(made) if name.startswith(prefix)}
    absent = [index for index in range(count) if str(index) not in present]
    if absent and present:
        raise SourceError(
            f"{model.id}: the files hold {len(present)} of the {count} layers that the config makes (first absent:"
            f" {prefix}{absent[0]}): these are not one model, or shards are missing"
        )
    odd = [
        tensor for tensor in model.stored if tensor.name.startswith(prefix) and _differs(tensor, made.get(tensor.name))
    ]
    if odd:
        raise SourceError(
            f"{model.id}: {len(odd)} matrices of layers have another shape than the config makes, first"
            f" {odd[0].name[:80]}: {_shape(made[odd[0].name])} by the config, {_shape(odd[0].shape)} in {odd[0].file}"
        )


def with_stored_shapes(model: Model) -> ModelSpec:
    """The spec with the embedding and the output matrix as the headers have them: the headers are the inventory."""
    stored = {tensor.name: tensor for tensor in model.stored if not tensor.file.endswith(".gguf")}

    def as_stored(found: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            replace(tensor, shape=stored[tensor.name].shape, split=_cut_anew(tensor, stored[tensor.name].shape))
            if tensor.name in stored and _differs(stored[tensor.name], tensor.shape)
            else tensor
            for tensor in found
        )

    embeddings, head = as_stored(model.spec.embeddings), as_stored(model.spec.head)
    if embeddings == model.spec.embeddings and head == model.spec.head:
        return model.spec
    return replace(model.spec, embeddings=embeddings, head=head)


def _cut_anew(tensor: Tensor, shape: tuple[int, ...]) -> Split | None:
    """The vocabulary's split over the rows that are there."""
    split = tensor.split
    if split is None or not split.vocabulary or split.dim >= len(shape):
        return split
    return replace(split, parts=(Part(shape[split.dim], shape[split.dim]),))


def _from_gguf(path: Path, assume_family: str | None) -> Model:
    header = read_gguf_parts(path)
    config = config_from_gguf(header, origin=str(path))
    weights = StoredWeights(tensors=header.tensors, total_bytes=total_bytes(header.tensors), files=(path.name,))
    origin = "GGUF metadata and tensor list"
    return _joined(config, weights, name=str(path), origin=origin, assume_family=assume_family)


def disagreements(model: Model) -> tuple[str, ...]:
    """Where the tensors of the files are not those that the config makes: a note for each kind.

    Shapes are compared tensor by tensor where the names agree. The number of elements is compared as a whole where
    nothing is packed; draft layers, a tied head stored twice and buffers are no disagreement.
    """
    if not model.stored:
        return ()
    made = {tensor.name: tensor.shape for tensor in tensors(model.spec)}
    notes = []
    odd = [tensor for tensor in model.stored if _differs(tensor, made.get(tensor.name))]
    if odd:
        first = odd[0]
        more = first.numel - prod(made[first.name])
        notes.append(
            f"config and header disagree on {len(odd)} tensors, first {first.name[:80]}: {_shape(made[first.name])} by"
            f" the config, {_shape(first.shape)} in {first.file}; planned as the file has it ({more:+,} weights)"
        )
    counted = [tensor for tensor in model.stored if not tensor.name.endswith(_BUFFERS)]
    if not odd and not any(tensor.dtype in _PACKED for tensor in counted):
        held = sum(tensor.numel for tensor in counted)
        drafts = sum(tensor.numel for tensor in draft_tensors(model.spec))
        head = model.spec.vocab_size * model.spec.hidden_size if model.spec.tie_word_embeddings else 0
        expected = {model.parameters + more for more in (0, drafts, head, drafts + head)}
        if held not in expected:
            notes.append(
                f"config and header disagree: {model.parameters:,} weights in {len(made):,} tensors by the config,"
                f" {held:,} in {len(counted):,} by the file; planned are the config's"
            )
    return tuple(notes)


def _differs(tensor: StoredTensor, shape: tuple[int, ...] | None) -> bool:
    """Another shape than the config's, not counting packed arrays and dimensions of one element."""
    if shape is None or tensor.shape == shape or tensor.dtype in _PACKED:
        return False
    return prod(tensor.shape) != prod(shape) or [s for s in tensor.shape if s != 1] != [s for s in shape if s != 1]


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one element"
