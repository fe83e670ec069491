.PHONY: help test slow device lint type format bench wheel-check

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

test:  ## the default test suite
	python -m pytest

slow:  ## the exhaustive suites
	python -m pytest -m slow

device:  ## the tests that need a GPU; they say why where there is none
	python -m pytest -m device -rs

lint:  ## ruff, check only
	ruff check . && ruff format --check .

type:  ## mypy --strict
	mypy

format:  ## rewrite the sources in house style
	ruff check --fix . ; ruff format .

bench:  ## speed of the simulator
	python -m benchmarks

wheel-check:  ## build the wheel and list what is in it
	pip wheel --no-deps -w dist . && python -m zipfile -l dist/ptxsim-*.whl
