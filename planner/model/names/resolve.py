"""A name that is no file and no bundled model -> the bundled model it rests on, and how it is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.errors import SourceError
from planner.model.names.bundled import bundled_config, by_last_part, find_exact, fold, lay_over
from planner.model.names.spelling import copies_others, find_base, find_ollama_tag, find_sibling, present_name

_SITES: Final = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
_SPLIT_FILE: Final = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)", re.IGNORECASE)
_MIX: Final = re.compile(r"(ud-)?(iq|q|tq)\d\w*|mxfp4_moe|f16|bf16|f32", re.IGNORECASE)
# Only unsloth's dynamic mixes have an XL, and people leave the UD- out.
_LARGE_ENDS: Final = re.compile(r"q\d_k_xl", re.IGNORECASE)
_EXL: Final = re.compile(r"[-_](exl[23])$", re.IGNORECASE)
_WIDTH: Final = re.compile(r"(\d(?:\.\d+)?)bpw(?:[-_]h\d)?", re.IGNORECASE)
_AFTER_COLON: Final = {"awq": "awq", "gptq": "gptq-int4", "fp8": "fp8-dynamic", "nvfp4": "nvfp4", "mxfp4": "mxfp4"}
# Parts that not every model has, by what its config has then.
_PARTS: Final = {"vision": ("vision_config", "audio_config"), "draft": ("num_nextn_predict_layers",)}
# A name that says its size is one model's, whoever publishes it.
_SIZE: Final = re.compile(r"\d[bm](-|$)")
# Exporters who start from a float32 checkpoint write 16 bit (unsloth's gemma exports; vLLM casts the rest).
_SIXTEEN_BIT: Final = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a name rests on.

    Args:
        base: the bundled model's Hub id.
        quantization: the quantization_config of the export; None: as the base, {}: not quantised.
        sets: what it changes of the base's config.
        note: what was found, in a sentence.
        assumed: what rests on a rule rather than on a file; "" for another name of the same files.
    """

    base: str
    quantization: Mapping[str, object] | None = None
    sets: Mapping[str, object] = field(default_factory=dict)
    note: str = ""
    assumed: str = ""

    def config(self) -> dict[str, object]:
        """The base's config with what the export changes."""
        values = bundled_config(self.base)
        if self.quantization is not None:
            for key in ("quantization_config", "compression_config", "_hf_quant_config"):
                values.pop(key, None)
            if self.quantization:
                values["quantization_config"] = dict(self.quantization)
                _sixteen_bit(values)
        lay_over(values, self.sets)
        return values


def resolve_bundled(name: str) -> str | None:
    """The bundled model of that name: in any case, or by its last part alone.

    Raises:
        SourceError: the last part alone names models of several makers.
    """
    exact = find_exact(name)
    if exact is not None or "/" in name:
        return exact
    candidates = by_last_part().get(fold(name), ())
    makers = {present_name(found.split("/", 1)[0]) for found in candidates}
    own = {maker for maker in makers if not copies_others(maker)}
    if len(own) > 1:
        raise SourceError(f"{name!r} names several bundled models: {', '.join(candidates)}")
    return find_base(next(iter(own), ""), name)


def resolve_name(name: str) -> Resolved | None:
    """What a name that is neither bundled nor a file stands for; None when no rule holds.

    Another spelling of a bundled name, a tag of Ollama's library, a quantisation after a colon, an export by the rules
    of `exports.csv`, or a copy under an account that publishes other makers' models.
    """
    text = name.strip()
    for site in _SITES:
        text = text.removeprefix(site)
    text, colon, after = text.partition(":")
    if colon and "/" not in text:
        return _from_tag(f"{text}:{after}")
    if colon and after != "latest":
        return _with_storage(text, after)
    if text.endswith(".gguf"):
        text = _SPLIT_FILE.sub("", text).replace("\\", "/").rpartition("/")[2]
    organisation, _, last = text.rpartition("/")
    return _export(organisation, last) or _other_name(organisation, last) or (None if organisation else _from_tag(last))


def nearest_to(name: str) -> str:
    """The bundled model that comes nearest by base name, as the end of a message."""
    from planner.model.names.exports import read_export_name
    from planner.model.names.spelling import nearest

    organisation, _, last = name.partition(":")[0].rpartition("/")
    bases = [reading.base for reading in read_export_name(organisation, last)]
    found = nearest(bases[0] if bases else last)
    return f"; nearest bundled model: {found}" if found else "; `vram-planner models` lists what is bundled"


def _from_tag(text: str) -> Resolved | None:
    tag = find_ollama_tag(text)
    base = find_exact(tag.base) if tag is not None else None
    if tag is None or base is None:
        return None
    note = f"{text} is read as Ollama's tag {tag.tag}: {base} stored as {tag.storage}; `ollama show` says what it is"
    return Resolved(base=base, quantization=_quantization(tag.storage), note=note, assumed=f"tag {tag.tag}")


def _with_storage(repository: str, storage: str) -> Resolved | None:
    """A repository of GGUF files (or a plain model) with the mix after a colon."""
    wanted = storage if _MIX.fullmatch(storage) else _AFTER_COLON.get(storage.lower())
    organisation, _, last = repository.rpartition("/")
    kind, width = _EXL.search(last), _WIDTH.fullmatch(storage)
    if wanted is None and kind is not None and width is not None:
        # the widths of one model are branches of its repository
        wanted = f"{kind[1].lower()}-{width[1]}bpw"
    if wanted is None:
        return None
    if _LARGE_ENDS.fullmatch(wanted):
        wanted = f"UD-{wanted}"
    stem = re.sub(r"[-_]((i1-)?gguf|exl[23])$", "", last, flags=re.IGNORECASE)
    base = find_base(organisation, stem) or find_sibling(organisation, stem)
    if base is None:
        return None
    note = f"{repository}:{storage} is read by its name: {base} stored as {wanted}; the file's header decides"
    return Resolved(base=base, quantization=_quantization(wanted), note=note, assumed=f"storage {wanted} by name")


def _export(organisation: str, last: str) -> Resolved | None:
    # the rules are read when no model has this very name
    from planner.model.names.exports import holds_for, read_export_name
    from planner.model.names.storage import stated_config

    for reading in read_export_name(present_name(organisation), last):
        base = find_base(organisation, reading.base) or find_sibling(organisation, reading.base)
        rule, values = reading.rule, {} if base is None else bundled_config(base)
        if base is None or not holds_for(rule, base, values):
            continue
        shown = f"{organisation}/{last}" if organisation else last
        if not reading.storage:
            note = f"{shown} is read by its name: {base} in 16 bit ({rule.evidence})"
            return Resolved(base=base, quantization={}, note=note, assumed=f"{base} in 16 bit by name")
        stated = stated_config(
            reading.storage, group_size=reading.group_size, keeps=rule.keeps, cache=rule.cache, spread=rule.spread
        )
        makers = "this maker's" if rule.makers else "any maker's"
        note = f"{shown} is read by its name: {base} stored as {reading.storage}"
        kept = [word for word in rule.keeps if word not in _PARTS or any(key in values for key in _PARTS[word])]
        note += f", kept in 16 bit: {', '.join(kept)}" if kept else ""
        note += f", cache {rule.cache}" if rule.cache else ""
        note += f" (as {makers} names that end in {reading.ending}: {rule.evidence})"
        if rule.spread != (0, 0):
            note += "; what else stays in 16 bit the name does not say: the file's header decides"
        return Resolved(
            base=base, quantization=stated, sets=rule.sets, note=note, assumed=f"storage {reading.storage} by name"
        )
    return None


def _other_name(organisation: str, last: str) -> Resolved | None:
    """A renamed maker, another spelling, or a copy."""
    base = find_base(organisation, last)
    if not organisation:
        return None
    if base is None:
        sibling = find_sibling(organisation, last)
        if sibling is None:
            return None
        note = f"{organisation}/{last} is read as a tuning of the same base as {sibling}: the shape of that"
        return Resolved(base=sibling, note=note, assumed=f"the shape of {sibling}")
    owner, home = base.split("/", 1)[0].lower(), present_name(organisation).lower()
    if owner == home:
        return Resolved(base=base, note=f"{organisation}/{last} is another name of {base}")
    if copies_others(organisation):
        note = f"{organisation}/{last} is read as a copy of {base}: {organisation} publishes other makers' models"
        return Resolved(base=base, note=note, assumed=f"a copy of {base}")
    if copies_others(owner) or _SIZE.search(fold(last)):
        note = f"{organisation}/{last} is read as {base}, the bundled model of that name"
        return Resolved(base=base, note=note, assumed=f"the same model as {base}")
    return None


def _quantization(storage: str) -> Mapping[str, object]:
    from planner.model.names.storage import stated_config

    return stated_config(storage)


def _sixteen_bit(values: dict[str, object]) -> None:
    inner = values.get("text_config")
    for section in (values, inner):
        for key in ("torch_dtype", "dtype"):
            if isinstance(section, dict) and section.get(key) in ("float32", "torch.float32"):
                section[key] = _SIXTEEN_BIT
