# Aliases for dev.py, which needs no make:  make test ARGS="tests/sdk -k retry"
.PHONY: setup demo test lint bench docs proto screenshots

setup demo test lint bench docs proto screenshots:
	@python3 dev.py $@ $(ARGS)
