PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt
DEMO = whyformer-demo.html
SEED ?= $(shell date +%s)
OUT ?= runs

.PHONY: demo check test coverage test-cpus mutants same measures fuzz lint bench results docs clean

demo: $(VENV)/installed
	@$(BIN)/whyformer demo --html $(DEMO)

check: $(VENV)/installed-test
	WHYFORMER_FUZZ_CASES=30 $(BIN)/python -m pytest -q --exitfirst --sample -m "not slow and not long"

test: $(VENV)/installed-test
	WHYFORMER_STRICT=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

coverage: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --cov --cov-report=term

test-cpus: $(VENV)/installed-test
	$(BIN)/python tests/cpus.py

mutants: $(VENV)/installed-test
	$(BIN)/python tests/mutants/run.py

same: $(VENV)/installed-test
	$(BIN)/python tools/same.py --base $(BASE)

measures: $(VENV)/installed-test
	$(BIN)/python tools/measures.py

fuzz: $(VENV)/installed-test
	@echo "seed $(SEED)"
	WHYFORMER_FUZZ_SEED=$(SEED) WHYFORMER_FUZZ_CASES=3000 $(BIN)/python -m pytest -q --numprocesses 2 tests/fuzz
	MOMENTS=20 $(BIN)/python -m pytest -q tests/cli/test_terminal.py -k ctrl_c

lint: $(VENV)/installed-lint
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python benchmarks/cost/explain.py

results: $(VENV)/installed
	$(BIN)/python -m whyformer_papers.results --models $(MODELS) --data $(DATA) --out $(OUT) --docs docs \
		$(if $(DEVICE),--device $(DEVICE))

docs: $(VENV)/installed-test
	$(BIN)/python tools/docs.py
	$(BIN)/python tools/matrix.py

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --quiet --disable-pip-version-check install "pip>=25.1"
	@touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(PIP) --group test
	$(PIP) --upgrade --no-deps --target $(VENV)/timm --group timm
	@touch $@

$(VENV)/installed-lint: $(VENV)/installed-test
	$(PIP) --group lint
	@touch $@

clean:
	rm -rf $(VENV) dist test-cpus $(DEMO)
