# make book    builds the book        make test    runs every check
# make lock    renews requirements.txt from the ranges in pyproject.toml
# make serve   shows the built book on 127.0.0.1
# make pdf     prints the built book into _build/book.pdf (needs Chromium)
# make benchmarks  measures this machine, for the book's page on performance (some ten minutes)
# make clean   removes what was built (the installed packages stay; make distclean removes them too)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed-for-this-requirements

.PHONY: book test lint lock serve pdf benchmarks claims clean distclean
.DELETE_ON_ERROR:

book: $(READY)
	@$(BIN)/python -m companion build

test: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -n auto

claims: $(READY)
	@$(BIN)/python -m companion claims

serve: $(READY)
	@$(BIN)/python -m companion serve

pdf: book
	@$(BIN)/python -m companion pdf

# The installer says in one line what is missing; it is plain Python so that it can.
$(READY): requirements.txt pyproject.toml src/companion/install.py
	@$(PYTHON) src/companion/install.py $(VENV)
	@touch $@

benchmarks: $(READY)
	@mkdir -p _build
	@OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest benchmarks -p no:xdist \
	    -o addopts= -o pythonpath=benchmarks -o python_files='bench_*.py' -o python_functions='bench_*' \
	    --benchmark-columns=min,rounds --benchmark-json=_build/performance.json
	@mv _build/performance.json book/back/performance.json

lock:
	@$(PYTHON) -m uv --version >/dev/null 2>&1 || { echo "make lock needs uv: $(PYTHON) -m pip install uv"; exit 2; }
	@$(PYTHON) -m uv pip compile --quiet --upgrade --universal --fork-strategy fewest \
	    --python-version 3.11 --extra test --extra benchmarks --no-header --no-annotate \
	    pyproject.toml --output-file requirements.txt
	@printf '%s\n' '# the two packages of this repository themselves' '-e .' >> requirements.txt

clean:
	rm -rf _build

distclean: clean
	rm -rf $(VENV) src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
