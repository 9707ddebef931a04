# make book    set up what the book needs, run every chapter, build the site into _build/html
# make pdf     print the built book into one file, linked from the landing page (needs a Chromium)
# make serve   show the built site on localhost
# make test    every check: lint, types, unit tests, explorables in a browser, the book with warnings as errors, the site in
#              a browser; make units, make explorables and so on make one of them
# make stills  photograph the gallery's explorables anew, after a change to any of them
# make pair PYTHON=python3.12 TORCH=2.6.0      the library's tests with another Python and another torch (or TORCH=newest)
# make release-check   build wheel and source distribution, look them over, install and use both away from this folder
# make address REPO=owner/name     write the repository's address everywhere; without REPO, look for strays
# make workflows       read .github with zizmor
# make clean   forget what was built (the virtual environment stays)
#
# Another Python: make PYTHON=python3.12 book. An environment of one's own (conda): make BIN="$(dirname $(which python))" ...
# with the packages of environment.yml installed.

PYTHON ?= python3
PORT ?= 8000
VENV := .venv

ifeq ($(origin BIN), undefined)
BIN := $(VENV)/bin
BOOK_READY := $(VENV)/book.stamp
TEST_READY := $(VENV)/test.stamp
endif

# As many workers as processors. A file's unit tests share a worker, so that what they share is made once; the site's are
# dealt out in runs of neighbours, done sooner than whole pages were.
SIDE_BY_SIDE := -n auto
A_FILE_TOGETHER := $(SIDE_BY_SIDE) --dist loadfile

# Python keeps what it has compiled, whatever the environment says: pytest would rewrite each test in each worker anew.
export PYTHONDONTWRITEBYTECODE =

PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Of `make pair`. torch settles the versions of torchvision and SymPy; OTHERS=newest leaves all other packages open too.
TORCH ?= newest
OTHERS ?= tested
PAIR := _build/pair
# Of `make release-check`: the tag of the release, if there is one, and the tests to run in the source distribution.
TAG ?=
TESTS ?= tests/test_rotations.py tests/test_release.py

.PHONY: book pdf serve test lint types units explorables site address stills pair release-check workflows clean

book: $(BOOK_READY)
	@PYTHONHASHSEED=0 $(BIN)/python book/build.py

pdf: book
	@$(BIN)/python book/pdf.py

serve:
	@test -f _build/html/index.html || { echo "There is no site yet: run make book first."; exit 2; }
	@echo "The book is at http://localhost:$(PORT)/ (stop with Ctrl-C)."
	@$(PYTHON) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

test: lint types units book explorables site

lint: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST_READY)
	$(BIN)/mypy

units: $(TEST_READY)
	$(BIN)/python -m pytest -m "not site and not browser" $(A_FILE_TOGETHER)

explorables: $(TEST_READY)
	$(BIN)/python -m pytest -m "browser and not site" $(A_FILE_TOGETHER)

site: $(TEST_READY) book
	$(BIN)/python -m pytest -m site $(SIDE_BY_SIDE)

address:
	@$(PYTHON) release/address.py $(REPO)

stills: $(TEST_READY)
	@$(BIN)/python book/stills.py

pair:
	@rm -rf $(PAIR)
	@$(PYTHON) -m venv $(PAIR)
	@grep -Ev '^(torch|torchvision|sympy)==' constraints.txt > $(PAIR)/others.txt
	$(PAIR)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check $(if $(filter newest,$(OTHERS)),,-c $(PAIR)/others.txt) \
	  torch$(if $(filter newest,$(TORCH)),,==$(TORCH)) -e ".[test]"
	$(PAIR)/bin/python -m pytest -m "not site" $(A_FILE_TOGETHER)

release-check:
	@$(PYTHON) release/versions.py $(TAG)
	@$(PYTHON) release/check.py --torch $(TORCH) --tests $(TESTS)

workflows:
	@rm -rf _build/zizmor
	@$(PYTHON) -m venv _build/zizmor
	@_build/zizmor/bin/python -m pip install --quiet --disable-pip-version-check -r release/tools.txt
	_build/zizmor/bin/zizmor --offline --persona=pedantic .github

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The test extra holds the book extra, so its installation serves both. `make test` must not install twice.
$(VENV)/test.stamp: pyproject.toml constraints.txt $(VENV)/bin/python
	@echo "Installing what the book and its tests need into $(VENV) (once; a few minutes) ..."
	@$(PIP_INSTALL) -e ".[test]"
	@touch $(VENV)/book.stamp $(VENV)/test.stamp

$(VENV)/book.stamp: pyproject.toml constraints.txt $(VENV)/bin/python
	@echo "Installing what the book needs into $(VENV) (once; a few minutes) ..."
	@$(PIP_INSTALL) -e ".[book]"
	@touch $(VENV)/book.stamp

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) here. Python 3.11 or later is needed: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or later is needed, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) could not make a virtual environment (on Debian: apt install python3-venv)."; exit 2; }
	@touch $(VENV)/bin/python
