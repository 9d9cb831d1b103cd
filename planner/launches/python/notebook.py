"""Jupyter notebooks: code cells in order, shell lines and magics, Colab's card. Outputs are not read."""

from __future__ import annotations

import re

from planner.launches.around import card_of
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, at_path, text_of
from planner.launches.python.reading import read_python
from planner.launches.record import LaunchError
from planner.launches.shell.commands import read_shell

_SHELL_MAGIC = re.compile(r"%%(?:bash|sh|shell|script)\b")
_WRITES = re.compile(r"%%writefile\s+(?:-a\s+)?(\S+)")


def read_notebook(context: Context, notebook: Map) -> None:
    """The runs and servers of a notebook's code cells, read as one script.

    Raises:
        LaunchError: a cell is no Python; names the cell.
    """
    around = Surroundings()
    card = text_of(at_path(notebook, "metadata.colab.gpuType"))
    if card:
        found = card_of("notebook", card)
        around.card, around.card_key = found.text, found.key
    pieces: list[str] = []
    for number, cell in enumerate(as_list(notebook.get("cells")), 1):
        if as_map(cell).get("cell_type") != "code":
            continue
        source = as_map(cell).get("source")
        text = "".join(str(one) for one in source) if isinstance(source, list) else text_of(source) or ""
        written = _WRITES.match(text)
        if written:
            context.files[written[1]] = (text.partition("\n")[2], 1)
        elif _SHELL_MAGIC.match(text):
            read_shell(context, text.partition("\n")[2], around=around)
        elif not text.startswith("%%") or text.startswith(("%%time", "%%capture")):
            pieces.append(_plain(text, number))
    read_python(context, "\n".join(pieces), around=around)


def _plain(text: str, number: int) -> str:
    """A cell as Python: form fields and cell magics off, continued shell lines joined.

    Raises:
        LaunchError: the cell is too long.
    """
    if len(text) > 1 << 20:
        raise LaunchError(f"cell {number} is too large", form="notebook")
    text = re.sub(r"^%%.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*[!%].*)\\\n\s*", r"\1 ", text, flags=re.MULTILINE)
    for _ in range(50):
        joined = re.sub(r"^(\s*!.*?)\\\n\s*", r"\1 ", text, flags=re.MULTILINE)
        if joined == text:
            break
        text = joined
    text = re.sub(r"^(\s*\w+\s*=\s*)[!%].*$", r"\1None", text, flags=re.MULTILINE)
    return re.sub(r"^(\s*)\?.*$|^(\s*)[\w.]+\?\??$", r"\1pass", text, flags=re.MULTILINE)
