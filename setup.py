"""What pyproject.toml cannot say: the book's records go into the library, and PyPI's page gets whole addresses."""

import re
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "book" / "results"


def readme():
    """The README with the addresses of its pictures and files written out: PyPI does not have our folders."""
    address = re.search(r"(?m)^  url: (https://\S+)$", (HERE / "_config.yml").read_text("utf-8"))[1]
    text = (HERE / "README.md").read_text("utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{address}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{address}/blob/main/", text)


class WithRecords(build_py):
    """Packs the records of book/results into geolib/lab/results.zip, which an installed library unpacks when asked.

    One file in place of a thousand. An editable installation reads the book's own.
    """

    def run(self):
        """Copy the library, then pack the records, always to the same bytes."""
        super().run()
        if self.editable_mode:
            return
        packed = Path(self.build_lib, "geolib", "lab", "results.zip")
        self.mkpath(str(packed.parent))
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for source in sorted(RECORDS.rglob("*.json")):
                entry = zipfile.ZipInfo(source.relative_to(RECORDS).as_posix())
                archive.writestr(entry, source.read_bytes(), zipfile.ZIP_DEFLATED)


setup(
    cmdclass={"build_py": WithRecords},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
