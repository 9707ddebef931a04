"""What pyproject.toml cannot say: the book's records go into the library, and PyPI's page gets whole addresses."""

import re
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
    """Copies the records of book/results to geolib/lab/results, where an installed library looks for them.

    They are files and no link: a link breaks in a zip on Windows. An editable installation reads the book's own.
    """

    def run(self):
        """Copy the library, then the records."""
        super().run()
        for source in [] if self.editable_mode else sorted(RECORDS.rglob("*.json")):
            target = Path(self.build_lib, "geolib", "lab", "results", source.relative_to(RECORDS))
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(
    cmdclass={"build_py": WithRecords},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
