"""Source of plain texts, for language models and masked language models."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, ClassVar

from s2s.data.sources import RowFormat, Source, digest_of, from_hub, from_table, join_texts, split_table, text_columns
from s2s.data.text_files import Columns
from s2s.errors import UserError
from s2s.recipe.schema import PlainTextSettings

if TYPE_CHECKING:
    import datasets

TEXT = {"text": "string"}


class TextSource(Source[PlainTextSettings, "datasets.Dataset"]):
    """Plain texts in the column `text`, stored by Arrow on disk.

    Training texts that are also in a held-out split are removed.
    """

    item_name: ClassVar[str] = "texts"

    def read(self, name: str, split: str | tuple[str, str], train: "datasets.Dataset | None") -> "datasets.Dataset":
        """Read a split from a table or from a data set on the hub."""
        settings, path = self.settings, split_table(self, name, str(split))
        local = settings.local.text if path is not None and settings.corpus != "files" else None
        columns = Columns(text_columns(settings, local), "data.text", quoting=settings.quoting)
        reading = RowFormat(columns, "texts", TEXT, lambda cells, number, where: {"text": join_texts(cells)})
        found = from_hub(settings, str(split), reading)[0] if path is None else from_table(path, reading)
        if not len(found):
            raise UserError(f"data.{name} has no texts", remedy="look at the file, or name another")
        return found

    def keys(self, part: "datasets.Dataset") -> Iterable[Hashable]:
        return part["text"]

    def digest(self, part: "datasets.Dataset") -> str:
        return digest_of(part["text"])
